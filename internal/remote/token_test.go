package remote

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A token tells account and device; its errors are this package's and repeat nothing of it. Its form is wire's matter.
func TestParseToken(t *testing.T) {
	const secret = "Zmlyc3Qtc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM"
	got, err := ParseToken("fgw1.plant-7.tablet-1." + secret)
	if err != nil || got != (Token{Account: "plant-7", Device: "tablet-1"}) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "fgw2.aa.bb." + secret, "fgw1.aa.bb." + secret + "\r\nX-Evil: 1", "fgw1.unassigned.bb." + secret} {
		if _, err := ParseToken(text); !errors.Is(err, ErrBadToken) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A credential file is read again when it was replaced, rewritten or came back, and not before.
func TestCredentialFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	source := CredentialFile(path)
	if source.Stamp() != "" {
		t.Error("a missing file has a stamp")
	}
	k := keyring{source: source, check: Fieldgw().check}
	if _, err := k.token(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got, err := k.token(); err != nil || got != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
		if k.changed() {
			t.Error("changed after it was read")
		}
	}
	write(path, "fgw1.a.b.Zmlyc3Qtc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM\n")
	if !k.changed() {
		t.Error("a file that came is no change")
	}
	expect("fgw1.a.b.Zmlyc3Qtc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM")
	write(path+".new", "fgw1.a.b.b3RoZXItc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if !k.changed() {
		t.Error("a replaced file is no change")
	}
	expect("fgw1.a.b.b3RoZXItc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM")
	write(path, "HUSHS")
	if _, err := k.token(); !errors.Is(err, ErrBadToken) || strings.Contains(err.Error(), "HUSHS") {
		t.Errorf("no token: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := k.token(); err == nil {
		t.Error("a file that everybody can read is accepted")
	}
}
