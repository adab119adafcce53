package durable

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Lease is a read lease on an open file (fcntl(2), F_SETLEASE): while it is held nobody has the file open for writing,
// and a process that tries to is made to wait until the lease ends, at most /proc/sys/fs/lease-break-time (45 s).
// Whoever holds one therefore checks Held often and lets go at once when it answers false.
type Lease struct{ file *File }

// Lease takes a read lease. The file must have been opened for reading only. Errors: ErrBusy while a writer has the file
// open (a shared writable mapping counts, except on overlayfs); ErrNoLease where none can be had, or where one proves
// nothing because the kernel does not know all who write (Medium, Foreign).
func (f *File) Lease() (*Lease, error) {
	_, err := unix.FcntlInt(f.file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		lease := &Lease{file: f}
		m, err := f.medium()
		if err == nil && m.Foreign {
			err = fmt.Errorf("lease %s: %w: %s has writers that this machine does not see", f.Name(), ErrNoLease, m.Name)
		}
		if err != nil {
			return nil, errors.Join(err, lease.Release())
		}
		return lease, nil
	case errors.Is(err, unix.EAGAIN):
		return nil, fmt.Errorf("lease %s: %w", f.Name(), ErrBusy)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EINVAL),
		errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		return nil, fmt.Errorf("lease %s: %w: %w", f.Name(), ErrNoLease, err)
	default:
		return nil, fmt.Errorf("lease %s: %w", f.Name(), err)
	}
}

// Held reports whether the lease is still unbroken. False means that somebody waits to open the file for writing, or
// has done so.
func (l *Lease) Held() bool {
	kind, err := unix.FcntlInt(l.file.file.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind == unix.F_RDLCK
}

// Release ends the lease and lets a waiting writer go on. Closing the file does the same.
func (l *Lease) Release() error {
	_, err := unix.FcntlInt(l.file.file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("release lease on %s: %w", l.file.Name(), err)
	}
	return nil
}
