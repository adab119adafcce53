package config

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxCredential bounds a credential file, in bytes.
const maxCredential = 8 << 10

// ReadCredential returns the text of a credential file without its one trailing line end. What the text means is for
// the caller to find out; no error contains any of it.
//
// It returns [ErrCredentialExposed] when the group or everybody has any right to the file, with the command that cures
// it, [ErrCredentialFile] when the file is empty, larger than 8 KiB or no regular file, and the error of opening or
// reading otherwise (a missing file is fs.ErrNotExist).
func ReadCredential(path string) (text string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not hang the caller
	if err != nil {
		return "", fmt.Errorf("open credential: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("stat credential: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("read credential %s: %w: not a regular file", path, ErrCredentialFile)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		acl, err := readACL(f)
		if err != nil {
			return "", fmt.Errorf("read access list of credential %s: %w", path, err)
		}
		if exposed(perm, acl, os.Geteuid()) {
			return "", fmt.Errorf("read credential %s: %w: mode %04o (chmod 600 %s)", path, ErrCredentialExposed, perm, path)
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err != nil {
		return "", fmt.Errorf("read credential: %w", err)
	}
	if len(data) > maxCredential {
		return "", fmt.Errorf("read credential %s: %w: larger than %d bytes", path, ErrCredentialFile, maxCredential)
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(data) == 0 {
		return "", fmt.Errorf("read credential %s: %w: empty", path, ErrCredentialFile)
	}
	return string(data), nil
}

// readACL returns the file's POSIX access control list in the kernel's encoding, or nothing where there is none.
func readACL(f *os.File) ([]byte, error) {
	buf := make([]byte, 4096)
	n, err := unix.Fgetxattr(int(f.Fd()), "system.posix_acl_access", buf)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return buf[:n], nil
}

// The encoding of an access control list in an extended attribute: linux/posix_acl_xattr.h and linux/posix_acl.h.
const (
	aclVersion  = 2
	aclHeader   = 4 // bytes
	aclEntry    = 8 // bytes: tag 16, permissions 16, ID 32, little endian
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclMask     = 0x10
)

// exposed reports whether anybody but the owner and the user uid has a right to a file of these permission bits.
//
// With an access control list the group bits show the list's mask, not the group's rights (acl(5)). That matters since
// systemd 254: a credential of a service with User= is root's file of mode 0440, whose list lets that user in and no
// group (systemd issue 29435). A list that is not understood does not make a file safe.
func exposed(perm fs.FileMode, acl []byte, uid int) bool {
	if perm&0o077 == 0 {
		return false
	}
	if perm&0o007 != 0 || len(acl) < aclHeader || binary.LittleEndian.Uint32(acl) != aclVersion {
		return true
	}
	entries := acl[aclHeader:]
	if len(entries)%aclEntry != 0 {
		return true
	}
	ownGroup := false
	for ; len(entries) > 0; entries = entries[aclEntry:] {
		tag := binary.LittleEndian.Uint16(entries)
		rights := binary.LittleEndian.Uint16(entries[2:])
		id := binary.LittleEndian.Uint32(entries[4:])
		switch tag {
		case aclUserObj, aclMask:
		case aclGroupObj:
			ownGroup = true
			if rights != 0 {
				return true
			}
		case aclUser:
			if int64(id) != int64(uid) && rights != 0 {
				return true
			}
		default: // a named group, or everybody
			if rights != 0 {
				return true
			}
		}
	}
	return !ownGroup
}
