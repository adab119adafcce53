package remote

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/fieldgw/fieldgw/internal/config"
)

// Credential is where the device's token comes from. Its methods may be called by several goroutines.
type Credential interface {
	// Read returns the token's text. Errors must not contain any of it.
	Read() (string, error)
	// Stamp is cheap and returns something that changes whenever Read would return another text.
	Stamp() string
}

// CredentialFile is a Credential in a file that config.ReadCredential accepts. A file that cannot be looked at has an
// empty stamp; reading it says why.
func CredentialFile(path string) Credential { return credentialFile(path) }

type credentialFile string

// Read returns the file's text; the errors are those of config.ReadCredential.
func (f credentialFile) Read() (string, error) { return config.ReadCredential(string(f)) }

// Stamp is made of what the kernel changes when a file is written, replaced or given other rights (stat(2)).
func (f credentialFile) Stamp() string {
	info, err := os.Stat(string(f))
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim)
}

// keyring caches the token's text and knows when to read it again.
type keyring struct {
	source Credential // nil: there is none, and the text is empty
	check  func(text string) error

	mu    sync.Mutex
	known bool // text and stamp are those of one successful reading
	text  string
	stamp string // of the last reading, successful or not
}

// token returns the text, read again only after the source changed.
func (k *keyring) token() (string, error) {
	if k.source == nil {
		return "", nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known && k.source.Stamp() == k.stamp {
		return k.text, nil
	}
	return k.read()
}

// renewed reads the source whatever its stamp says, and reports whether the text is another than the refused one.
func (k *keyring) renewed(refused string) (text string, other bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err = k.read()
	return text, err == nil && text != refused, err
}

// changed reports whether the source is no longer what was last read.
func (k *keyring) changed() bool {
	if k.source == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.source.Stamp() != k.stamp
}

// read takes the stamp before the text, so that a change in between is seen at the next call.
func (k *keyring) read() (string, error) {
	k.known, k.text, k.stamp = false, "", k.source.Stamp()
	text, err := k.source.Read()
	if err != nil {
		return "", err
	}
	if err := k.check(text); err != nil {
		return "", err
	}
	k.known, k.text = true, text
	return text, nil
}
