package store

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// lockPoll is the time between two tries to get a lock that somebody holds.
const lockPoll = 50 * time.Millisecond

// openForLock opens an existing regular file for reading and writing. package durable hands out no descriptors, and a lock
// or bbolt needs one; what is written through it is bbolt's business, or the text in a lock file.
func openForLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
		return nil, fmt.Errorf("open %s: %w", path, durable.ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w", path, durable.ErrNotRegular)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openLocked opens an existing store file and locks it (flock(2)), waiting up to timeout. This is the descriptor that bbolt
// gets: its own flock on it succeeds at once, and until then nobody else can write the file.
func openLocked(path string, timeout time.Duration) (*os.File, error) {
	f, err := openForLock(path)
	if err != nil {
		return nil, err
	}
	if err := lockWithin(f, timeout); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func lockWithin(f *os.File, timeout time.Duration) error {
	began := time.Now()
	for {
		err := flock(f)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Since(began) >= timeout {
			return fmt.Errorf("open %s: %w by another process, which did not let go within %v; is a second daemon running?",
				f.Name(), ErrLocked, timeout)
		}
		time.Sleep(lockPoll)
	}
}

// flock takes the exclusive lock of an open file, or fails with EWOULDBLOCK.
func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		return nil
	}
}
