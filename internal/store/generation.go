package store

import (
	"io/fs"
	"os"
	"strconv"

	bolt "go.etcd.io/bbolt"

	"github.com/fieldgw/fieldgw/internal/logging"
)

const (
	// initialMap is mapped at once, so that the file can grow that far without waiting for every View to end; addresses
	// are all that it costs.
	initialMap   = 64 << 20
	initialMap32 = 16 << 20
	maxInt       = int(^uint(0) >> 1)
)

// generation is one file with bbolt's database on it. A compaction puts another in its place; Views that run keep theirs.
type generation struct {
	file     *os.File // bbolt's own descriptor, which carries the lock
	db       *bolt.DB
	log      *boltLog
	pageSize int

	// Guarded by Store.mu.
	views    int           // Views that run on it
	idle     chan struct{} // made when it is replaced, closed when no View is left
	used     int64         // bytes up to the end of its last page, at the last look
	reserved int64         // bytes from the beginning on for which the file was given blocks
}

// newGeneration hands a locked and verified file to bbolt. After an error the file may be open or closed: release it.
func newGeneration(f *os.File, page metaPage, opts Options) (*generation, error) {
	said := newBoltLog()
	settings := &bolt.Options{
		Timeout:         opts.LockTimeout,
		InitialMmapSize: initialMap,
		Logger:          said,
		MaxSize:         int(min(opts.MaxSize, int64(maxInt))),
		OpenFile:        func(string, int, fs.FileMode) (*os.File, error) { return f, nil },
	}
	if strconv.IntSize == 32 {
		settings.InitialMmapSize = initialMap32
	}
	g := &generation{file: f, log: said, pageSize: int(page.pageSize), used: int64(page.limit) * page.pageSize}
	err := isolated(func() (err error) {
		g.db, err = bolt.Open(f.Name(), filePerm, settings)
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// enter returns the file that is in use, which stays open until leave.
func (s *Store) enter() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gen.views++
	return s.gen
}

func (s *Store) leave(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.views--; g.views == 0 && g.idle != nil {
		close(g.idle)
	}
}

// replace makes next the file in use, for all that begin from now on, and closes the old one when its last View has ended.
// The writer goroutine calls it.
func (s *Store) replace(next *generation) {
	s.mu.Lock()
	old := s.gen
	s.gen = next
	old.idle = make(chan struct{})
	if old.views == 0 {
		close(old.idle)
	}
	s.mu.Unlock()
	gone := make(chan struct{})
	s.replaced = gone
	go func() {
		defer close(gone)
		select {
		case <-old.idle:
		case <-s.abandoned: // some View will never end; the process will
			return
		}
		if err := s.unstuck(old.db.Close); err != nil {
			s.opts.Logger.Warn("cannot close the store file that was replaced", logging.KeyPath, s.path, logging.KeyErr, err)
		}
	}()
}

// holdsOld reports whether the file before this one is still open for a View. For the writer goroutine, or after its end.
func (s *Store) holdsOld() bool {
	if s.replaced == nil {
		return false
	}
	select {
	case <-s.replaced:
		return false
	default:
		return true
	}
}
