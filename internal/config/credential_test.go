package config

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const secret = "fgw1.acct.dev.TOPSECRET"

// A credential is read only from a file of its owner alone; one line end goes, nothing else, and no error tells the text.
func TestReadCredential(t *testing.T) {
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
		err  error
	}{
		{secret, 0o600, secret, nil},
		{secret + "\n", 0o400, secret, nil},
		{secret + "\r\n", 0o600, secret, nil},
		{secret + "\n\n", 0o600, secret + "\n", nil},
		{" " + secret + " ", 0o600, " " + secret + " ", nil},
		{secret, 0o640, "", ErrCredentialExposed},
		{secret, 0o604, "", ErrCredentialExposed},
		{secret, 0o620, "", ErrCredentialExposed},
		{"", 0o600, "", ErrCredentialFile},
		{"\n", 0o600, "", ErrCredentialFile},
		{strings.Repeat("x", 8192), 0o600, strings.Repeat("x", 8192), nil},
		{strings.Repeat("x", 8191) + "\n", 0o600, strings.Repeat("x", 8191), nil},
		{strings.Repeat(secret, 8192), 0o600, "", ErrCredentialFile},
	} {
		path := write(t, t.TempDir(), "token", c.text)
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := ReadCredential(path)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("mode %o: got %d letters, %v; want %d, %v", c.mode, len(got), err, len(c.want), c.err)
		}
		if err != nil && strings.Contains(err.Error(), "TOPSECRET") {
			t.Errorf("the error tells the secret: %v", err)
		}
		if c.err == ErrCredentialExposed && !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("no remedy in %q", err)
		}
	}
}

// What is no readable file is refused at once, also a pipe that nobody writes to.
func TestReadCredentialOtherFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadCredential(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := ReadCredential(dir); !errors.Is(err, ErrCredentialFile) {
		t.Errorf("directory: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCredential(pipe); !errors.Is(err, ErrCredentialFile) {
		t.Errorf("pipe: %v", err)
	}
}

// acl encodes an access control list: tag, rights and ID of each entry.
func acl(entries ...[3]uint32) []byte {
	out := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range entries {
		out = binary.LittleEndian.AppendUint16(out, uint16(e[0]))
		out = binary.LittleEndian.AppendUint16(out, uint16(e[1]))
		out = binary.LittleEndian.AppendUint32(out, e[2])
	}
	return out
}

const none = 0xffffffff // the ID of entries without one

// The group bits of a file with an access list are the list's mask. A list that lets in this user alone, as systemd
// writes it, is not exposure; one that lets in any other is.
func TestExposed(t *testing.T) {
	const uid = 990
	owner, mask := [3]uint32{1, 4, none}, [3]uint32{0x10, 4, none}
	group, other, me := [3]uint32{4, 0, none}, [3]uint32{0x20, 0, none}, [3]uint32{2, 4, uid}
	for name, c := range map[string]struct {
		perm fs.FileMode
		acl  []byte
		want bool
	}{
		"owner only":           {0o400, nil, false},
		"group, no list":       {0o440, nil, true},
		"others":               {0o604, nil, true},
		"systemd":              {0o440, acl(owner, me, group, mask, other), false},
		"systemd, others too":  {0o444, acl(owner, me, group, mask, other), true},
		"another user":         {0o440, acl(owner, [3]uint32{2, 4, 991}, group, mask, other), true},
		"another, no rights":   {0o440, acl(owner, me, [3]uint32{2, 0, 991}, group, mask, other), false},
		"own group":            {0o440, acl(owner, me, [3]uint32{4, 4, none}, mask, other), true},
		"named group":          {0o440, acl(owner, me, group, [3]uint32{8, 4, 100}, mask, other), true},
		"no group entry":       {0o440, acl(owner, me, mask, other), true},
		"unknown version":      {0o440, append([]byte{3, 0, 0, 0}, acl(owner, group)[4:]...), true},
		"cut short":            {0o440, acl(owner, me, group, mask, other)[:10], true},
		"header only":          {0o440, acl(), true},
		"shorter than one":     {0o440, []byte{2}, true},
		"unknown tag with use": {0o440, acl(owner, group, [3]uint32{0x40, 4, none}), true},
	} {
		if got := exposed(c.perm, c.acl, uid); got != c.want {
			t.Errorf("%s: exposed = %v, want %v", name, got, c.want)
		}
	}
}

// Whatever an access list holds, a file that others or another user may read never counts as safe.
func FuzzExposed(f *testing.F) {
	f.Add(uint32(0o440), acl([3]uint32{1, 4, none}, [3]uint32{2, 4, 990}, [3]uint32{4, 0, none}, [3]uint32{0x10, 4, none}))
	f.Fuzz(func(t *testing.T, perm uint32, list []byte) {
		mode := fs.FileMode(perm) & 0o777
		safe := !exposed(mode, list, 990)
		if safe && mode&0o007 != 0 {
			t.Errorf("mode %o is safe", mode)
		}
		if withOther := append(list, acl([3]uint32{2, 4, 991})[4:]...); mode&0o070 != 0 && !exposed(mode, withOther, 990) {
			t.Errorf("mode %o with another user in %x is safe", mode, withOther)
		}
	})
}
