package durable

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Errors of opening and of leases.
var (
	// ErrNotRegular is returned when a path names a directory, FIFO, socket or device where a regular file is needed.
	ErrNotRegular = errors.New("not a regular file")
	// ErrBusy is returned by File.Lease when a process has the file open for writing (fcntl(2), EAGAIN).
	ErrBusy = errors.New("file is open for writing")
	// ErrNoLease is returned by File.Lease when no lease can be had at all: another owner without CAP_LEASE, a filesystem
	// without leases, or one where they prove nothing (Medium, Foreign). It says nothing about writers.
	ErrNoLease = errors.New("no lease can be had on this file")
	// ErrTooLarge is returned by ReadFile when the file exceeds the limit given.
	ErrTooLarge = errors.New("file is larger than allowed")
)

// IsNoSpace reports whether err says that the volume or the quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// IsCrossDevice reports whether err says that a rename or link would cross a mount (EXDEV).
func IsCrossDevice(err error) bool { return errors.Is(err, unix.EXDEV) }

// IsNotExist reports whether err says that the path does not exist.
func IsNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// IsExist reports whether err says that the target exists already.
func IsExist(err error) bool { return errors.Is(err, fs.ErrExist) }
