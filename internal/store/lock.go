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
//
// A compaction by the holder puts another file under the name: then the lock that was waited for is that of a file which is
// gone, and the one to wait for is the new file's.
func openLocked(path string, timeout time.Duration) (*os.File, error) {
	began := time.Now()
	for {
		f, err := openForLock(path)
		if err != nil {
			return nil, err
		}
		if err := lockWithin(f, began, timeout); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		same, err := leadsTo(path, f)
		if err == nil && same {
			return f, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// leadsTo reports whether path is that of an open file.
func leadsTo(path string, f *os.File) (bool, error) {
	named, err := os.Lstat(path)
	if durable.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	open, err := f.Stat()
	if err != nil {
		return false, err
	}
	return os.SameFile(named, open), nil
}

func lockWithin(f *os.File, began time.Time, timeout time.Duration) error {
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
