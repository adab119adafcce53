package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/spool"
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
	if err := fsys.ClearTemps(accounts); err != nil {
		return account{}, fmt.Errorf("open accounts: %w", err)
	}
	acc := account{name: unassigned, device: cfg.Device.ID}
	pointer := filepath.Join(accounts, "current")
	last, err := lastAccount(fsys, accounts, pointer)
	if err != nil {
		return account{}, err
	}
	if last != "" {
		acc.name = last
	}
	if token, ok := identity(cfg); ok {
		if acc.device == "" {
			acc.device = token.Device
		}
		if token.Account != acc.name {
			acc.name = token.Account
		}
		if err := takeOver(fsys, accounts, token.Account); err != nil {
			return account{}, err
		}
		if last != acc.name {
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

// lastAccount is the account that the pointer names. One that is damaged, or names no account that is here, counts for
// nothing: then it is the only account there is, or none.
func lastAccount(fsys *durable.FS, accounts, pointer string) (string, error) {
	text, err := fsys.ReadFile(pointer, 256)
	name := strings.TrimSpace(string(text))
	if err == nil && wire.ValidName(name) {
		if there, err := fsys.Exists(filepath.Join(accounts, name)); err != nil || there {
			return name, err
		}
	}
	names, err := accountNames(fsys, accounts)
	if err != nil || len(names) != 1 {
		return "", err
	}
	return names[0], nil
}

// accountNames lists the accounts that this device has kept something for, unassigned left out.
func accountNames(fsys *durable.FS, accounts string) (names []string, err error) {
	err = fsys.List(accounts, func(e fs.DirEntry) error {
		if e.IsDir() && wire.ValidName(e.Name()) {
			names = append(names, e.Name())
		}
		return nil
	})
	return names, err
}

// takeOver gives what was captured before there was a credential to its first account. Another account's directory is never
// touched. Where the account is here already, the payloads are moved to it with their manifests, from which its recovery
// records them; what is left of the old directory is kept beside the accounts.
func takeOver(fsys *durable.FS, accounts, name string) error {
	from, to := filepath.Join(accounts, unassigned), filepath.Join(accounts, name)
	if ok, err := fsys.Exists(from); err != nil || !ok {
		return err
	}
	there, err := fsys.Exists(to)
	if err != nil {
		return err
	}
	if there {
		staged, err := spool.Merge(fsys, from, to)
		if err != nil {
			return fmt.Errorf("give captures to account %s: %w", name, err)
		}
		if staged {
			return nil // adoptions under way are finished by the account that began them
		}
		to = filepath.Join(accounts, "merged-"+time.Now().UTC().Format("20060102T150405.000"))
	}
	if err := fsys.RenameNew(from, to); err != nil {
		return fmt.Errorf("bind captures to account %s: %w", name, err)
	}
	return fsys.SyncDir(accounts)
}

// otherDebts names the accounts beside this one that still have undelivered files on this device.
func otherDebts(fsys *durable.FS, cfg *config.Config, current string) (debts []string, err error) {
	accounts := filepath.Join(cfg.StateDir, "accounts")
	names, err := accountNames(fsys, accounts)
	for _, name := range append(names, unassigned) {
		if name == current {
			continue
		}
		n, cerr := spool.Owed(fsys, filepath.Join(accounts, name))
		if cerr != nil {
			err = errors.Join(err, cerr)
		}
		if n > 0 {
			debts = append(debts, fmt.Sprintf("%s (%d)", name, n))
		}
	}
	return debts, err
}

// identity is the account and device that the credential names, or the certificate where there is no credential, or the
// configuration where neither can.
func identity(cfg *config.Config) (remote.Token, bool) {
	u := cfg.Uplink
	switch {
	case !u.Driver.Names():
		return remote.Token{Account: u.Account, Device: cfg.Device.ID}, true
	case u.Credential != "":
		text, err := config.ReadCredential(u.Credential)
		if err != nil {
			return remote.Token{}, false
		}
		token, err := remote.ParseToken(text)
		return token, err == nil
	case u.ClientCert != "":
		pair, err := remote.LoadCertificate(u.ClientCert, u.ClientKey)
		if err != nil {
			return remote.Token{}, false
		}
		named, err := remote.CertificateIdentity(pair.Leaf)
		return named, err == nil
	}
	return remote.Token{}, false
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
