package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// unassigned is the account of captures made before the device ever had a credential. The first one binds it.
const unassigned = wire.Unassigned

// account is whose captures these are, and where they are kept.
type account struct {
	name, device, dir string
}

func queueSchema() store.Schema { return queue.Schema() }

// bindAccount opens the directory of the account that the credential names. Without a readable credential it is the
// account that was open last, so that a tablet which lost its credential goes on capturing for the same one; before the
// first credential it is "unassigned", which the first credential's account then takes over by a rename.
func bindAccount(fsys *durable.FS, cfg *config.Config) (account, error) {
	accounts := filepath.Join(cfg.StateDir, "accounts")
	if err := fsys.MkdirAll(accounts, 0o700); err != nil {
		return account{}, fmt.Errorf("open accounts: %w", err)
	}
	acc := account{name: unassigned, device: cfg.Device.ID}
	pointer := filepath.Join(accounts, "current")
	last, err := fsys.ReadFile(pointer, 256)
	if err != nil && !durable.IsNotExist(err) {
		return account{}, fmt.Errorf("read current account: %w", err)
	}
	if name := strings.TrimSpace(string(last)); name != "" && filepath.Base(name) == name && name != "." && name != ".." {
		acc.name = name
	}
	if token, ok := readToken(cfg); ok {
		if acc.device == "" {
			acc.device = token.Device
		}
		if token.Account != acc.name {
			if err := takeOver(fsys, accounts, token.Account); err != nil {
				return account{}, err
			}
			acc.name = token.Account
		}
		if string(last) != acc.name {
			if err := fsys.WriteFile(pointer, []byte(acc.name), 0o600); err != nil {
				return account{}, fmt.Errorf("record current account: %w", err)
			}
		}
	}
	acc.dir = filepath.Join(accounts, acc.name)
	if err := fsys.MkdirAll(acc.dir, 0o700); err != nil {
		return account{}, fmt.Errorf("open account %s: %w", acc.name, err)
	}
	return acc, nil
}

// takeOver gives what was captured before the first credential to its account. Another account's directory is never
// touched.
func takeOver(fsys *durable.FS, accounts, name string) error {
	from, to := filepath.Join(accounts, unassigned), filepath.Join(accounts, name)
	there, err := fsys.Exists(to)
	if err != nil || there {
		return err
	}
	if ok, err := fsys.Exists(from); err != nil || !ok {
		return err
	}
	if err := fsys.RenameNew(from, to); err != nil {
		return fmt.Errorf("bind captures to account %s: %w", name, err)
	}
	return fsys.SyncDir(accounts)
}

func readToken(cfg *config.Config) (remote.Token, bool) {
	if cfg.Uplink.Credential == "" {
		return remote.Token{}, false
	}
	text, err := config.ReadCredential(cfg.Uplink.Credential)
	if err != nil {
		return remote.Token{}, false
	}
	token, err := remote.ParseToken(text)
	return token, err == nil
}

// errOtherAccount is returned when the credential names another account than the one whose captures are open: sending
// them with it would give one account's evidence to another.
var errOtherAccount = errors.New("the credential belongs to another account")

// accountCredential is the credential file, held to one account. A token of another one is refused and reported.
type accountCredential struct {
	remote.Credential
	account string
	other   func()
}

// Read returns the token's text when it belongs to the account.
func (c accountCredential) Read() (string, error) {
	text, err := c.Credential.Read()
	if err != nil {
		return "", err
	}
	token, err := remote.ParseToken(text)
	if err != nil {
		return "", err
	}
	if token.Account != c.account {
		c.other()
		return "", errOtherAccount
	}
	return text, nil
}
