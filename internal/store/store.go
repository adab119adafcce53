package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// Schema is what a program expects in its store.
type Schema struct {
	// Name tells kinds of stores apart ("device-queue", "server"); a file of another name is refused.
	Name string
	// Version is the current one, from 1.
	Version int
	// Buckets are the top-level buckets, all there are: structure lives in keys. Names that begin with "fieldgw." are ours.
	Buckets []string
	// Migrations holds, for each n below Version that may still be met, the step from n to n+1. All steps of an Open run
	// in one transaction, in which the buckets of the file and those of the schema can both be used. Those that the schema
	// no longer has must be empty at the end and are removed.
	Migrations map[int]func(*Tx) error
}

// Options are what Open needs beside the schema.
type Options struct {
	FS          *durable.FS   // nil means durable.OS()
	LockTimeout time.Duration // how long to wait for another holder of the file; 0 means 5 s
	// MaxSize is how large the file may become, in bytes; a commit that needs more fails with ErrFull. 0 means no limit
	// where addresses have 64 bits, and 512 MiB where they have 32: the file is mapped in one piece.
	MaxSize int64
	// CompactBytes and CompactPercent are what the free pages of the file must both exceed, in bytes and as a share of all
	// its pages, for the file to be replaced by a copy without them after a commit. 0 means 16 MiB and 25 %.
	CompactBytes   int64
	CompactPercent int
	// Reserve is how many bytes beyond the pages in use the volume keeps for the file, so that a disk that others have
	// filled still takes commits. 0 means 4 MiB, below 0 nothing.
	Reserve int64
	Logger  *slog.Logger // nil means silence
}

// Store is an open store file. Its methods may be called by any number of goroutines.
type Store struct {
	path    string
	opts    Options
	sealers map[string]sealer // of the buckets that may be used
	epoch   string
	created time.Time

	badValues int

	queue      chan *request
	closing    chan struct{}
	writerDone chan struct{}
	closeOnce  sync.Once
	closeErr   error

	// showing is held by the writer during a commit, and by a reader while it takes its snapshot.
	showing sync.RWMutex
	// moving is held while the path may lead to a file that is not yet, or no longer, the one in use.
	moving   sync.Mutex
	upkeep   upkeep        // by the writer goroutine
	replaced chan struct{} // closed when the file before this one is closed; nil if there was none

	mu             sync.Mutex
	gen            *generation   // the file in use; changed by the writer goroutine, which reads it without the lock
	err            error         // why the store failed
	failed         chan struct{} // closed with err set
	abandoned      chan struct{} // closed when, in addition, bbolt's locks may be held for ever
	noReserve      bool          // the file system cannot reserve blocks
	compactions    uint64
	lastCompaction time.Time

	commits, requests atomic.Uint64
}

// Stats describes a store at one moment.
type Stats struct {
	FileBytes int64  // apparent length of the file; it grows in steps of up to 16 MiB and is sparse where that is possible
	PageSize  int    // bytes
	FreePages int    // pages inside the file that hold nothing
	UsedBytes int64  // of the other pages
	MaxBytes  int64  // Options.MaxSize; 0 where there is no limit
	Commits   uint64 // since Open
	Requests  uint64 // Updates that those commits answered
	BadValues int    // values whose checksum was wrong at Open
	CreatedAt time.Time

	Compactions    uint64    // since Open
	LastCompaction time.Time // its end, in UTC; zero if there was none since Open
	// Reserved is how many bytes beyond the pages in use have blocks of their own, less than Options.Reserve while the
	// volume is too full. NoReserve says that its file system cannot do that (fallocate(2), EOPNOTSUPP).
	Reserved  int64
	NoReserve bool
}

// Epoch is a random text made when the file was created: two files, or one and its rebuilt successor, never share it.
func (s *Store) Epoch() string { return s.epoch }

// Path is where the store was opened.
func (s *Store) Path() string { return s.path }

// Failed is closed when the store can no longer be trusted; Err then says why. Nothing but a restart of the process
// helps.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Err returns nil, or the error with which the store has failed and every call is answered: ErrUnknownOutcome, ErrDamaged
// or ErrAborted.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stats reads the figures; after Close only the counters are left.
func (s *Store) Stats() Stats {
	stats := Stats{MaxBytes: s.opts.MaxSize, CreatedAt: s.created, BadValues: s.badValues, Commits: s.commits.Load(), Requests: s.requests.Load()}
	g := s.enter()
	defer s.leave(g)
	if info, err := g.file.Stat(); err == nil {
		bolted := g.db.Stats()
		stats.FileBytes, stats.PageSize, stats.FreePages = info.Size(), g.pageSize, bolted.FreePageN+bolted.PendingPageN
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stats.Compactions, stats.LastCompaction = s.compactions, s.lastCompaction
	stats.Reserved, stats.NoReserve = max(0, g.reserved-g.used), s.noReserve
	stats.UsedBytes = max(0, g.used-int64(stats.FreePages)*int64(stats.PageSize))
	return stats
}

// usable returns the error that a new call is answered with.
func (s *Store) usable() error {
	if err := s.Err(); err != nil {
		return err
	}
	select {
	case <-s.closing:
		return ErrClosed
	default:
		return nil
	}
}

// ended is usable for a call that found the writer gone.
func (s *Store) ended() error {
	if err := s.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// fail makes err the store's error unless it has one, and returns the one it has.
func (s *Store) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.failed)
	}
	return s.err
}

// abandon is fail after a panic inside of bbolt: nobody may wait for its locks from now on.
func (s *Store) abandon(err error) error {
	err = s.fail(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isAbandoned() {
		close(s.abandoned)
	}
	return err
}

// stuckAfter is how long Close waits for a writer that a fault may have left waiting for ever.
const stuckAfter = 5 * time.Second

// errStuck is returned by Close when the writer of a failed store does not end. The file stays locked, since it may still
// be written to.
var errStuck = errors.New("the writer does not end; the file stays locked until the process does")

// Close answers what was queued before it, waits for Views, and releases the file. After it every call returns ErrClosed,
// or what the store failed with. A second Close returns what the first did.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		if err := s.shut(); err != nil {
			s.closeErr = fmt.Errorf("close %s: %w", s.path, err)
		}
	})
	return s.closeErr
}

func (s *Store) shut() error {
	select {
	case <-s.writerDone:
		err := s.unstuck(s.gen.db.Close)
		if s.replaced != nil {
			<-s.replaced
		}
		if !s.isAbandoned() {
			return err
		}
	case <-s.abandoned:
		timer := time.NewTimer(stuckAfter)
		defer timer.Stop()
		select {
		case <-s.writerDone:
		case <-timer.C:
			return errStuck
		}
	}
	return release(s.gen.file)
}

func (s *Store) isAbandoned() bool {
	select {
	case <-s.abandoned:
		return true
	default:
		return false
	}
}

// release unlocks and closes a file behind bbolt's back, after a panic left it open. The mapping stays, and with it the
// open file, hence the explicit unlock.
func release(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_UN)
	if cerr := f.Close(); !errors.Is(cerr, os.ErrClosed) {
		return errors.Join(err, cerr)
	}
	return nil
}
