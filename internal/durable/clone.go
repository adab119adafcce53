package durable

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// OpClone is the operation of File.CloneFrom.
const OpClone Op = "clone"

// ErrNoClone is returned by CloneFrom where blocks cannot be shared: another filesystem, or one without reflinks.
var ErrNoClone = errors.New("blocks cannot be shared")

// CloneFrom makes this empty file share all blocks of src (ioctl_ficlone(2)): a copy that costs neither time nor space, as
// src was at one moment. Durable after Sync. Errors: ErrNoClone, and the caller copies instead; or the kernel's, which may
// mean that src could not be written to its own blocks.
func (f *File) CloneFrom(src *File) error {
	pass, err := f.fs.begin(OpClone, f.Name(), 0)
	if err != nil {
		return err
	}
	err = unix.IoctlFileClone(int(f.file.Fd()), int(src.file.Fd()))
	pass.leave()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL),
		errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.ETXTBSY):
		return fmt.Errorf("clone into %s: %w: %w", f.Name(), ErrNoClone, err)
	}
	return fmt.Errorf("clone into %s: %w", f.Name(), err)
}
