package store

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
)

const (
	defaultCompactBytes   = 16 << 20
	defaultCompactPercent = 25
	// After a compaction that failed, the next try waits until the free share has grown by so many points, or so long.
	compactGrowth = 10
	compactAgain  = time.Hour
)

// upkeep is what the writer goroutine remembers between two looks at the file.
type upkeep struct {
	seen         uint64    // commits at the last look
	reserveAt    time.Time // no reservation before
	reserveShort bool      // the last reservation failed
	failedAt     time.Time // of the last compaction, if it failed
	failedShare  int64     // free pages at that time, in per cent
}

// tend looks after the file between two batches: it keeps the reserve, and compacts when that is due.
func (s *Store) tend() {
	commits := s.commits.Load()
	if commits == s.upkeep.seen || s.Err() != nil {
		return
	}
	s.upkeep.seen = commits
	free, used, err := s.measure(s.gen)
	if err != nil {
		return // the file cannot be read: whoever needs it next is told by bbolt
	}
	if s.due(free, used) {
		s.tryCompact(free, used)
		if s.Err() != nil {
			return
		}
	}
	s.secure(s.gen)
}

// measure returns the bytes of all free pages, and of all pages. Those that a View still holds are not free: they become
// so by themselves. It touches nothing that is mapped, and so cannot fault.
func (s *Store) measure(g *generation) (free, used int64, err error) {
	info, err := g.file.Stat()
	if err != nil {
		return 0, 0, err
	}
	page, _, err := readMeta(g.file, info.Size())
	if err != nil {
		return 0, 0, err
	}
	used = int64(page.limit) * page.pageSize
	s.mu.Lock()
	defer s.mu.Unlock()
	g.used = used
	stats := g.db.Stats()
	pages := stats.FreePageN
	if g.views == 0 {
		pages += stats.PendingPageN
	}
	return int64(pages) * int64(g.pageSize), used, nil
}

// due decides whether the file is compacted now. At most two files exist at a time: none is made while a View holds the
// one before.
func (s *Store) due(free, used int64) bool {
	if free <= s.opts.CompactBytes || free*100 <= used*int64(s.opts.CompactPercent) {
		return false
	}
	if !s.upkeep.failedAt.IsZero() && free*100/used < s.upkeep.failedShare+compactGrowth &&
		time.Since(s.upkeep.failedAt) < compactAgain {
		return false
	}
	return s.usable() == nil && !s.holdsOld()
}

// tryCompact compacts and notes how it went.
func (s *Store) tryCompact(free, used int64) {
	began := time.Now()
	err := s.compact(s.gen, used-free)
	if err != nil && s.Err() == nil {
		if errors.Is(err, ErrClosed) {
			return
		}
		if s.upkeep.failedAt.IsZero() {
			s.opts.Logger.Warn("cannot compact the store file; it stays in use as it is",
				logging.KeyPath, s.path, logging.KeyBytes, used, logging.KeyErr, err)
		}
		s.upkeep.failedAt, s.upkeep.failedShare = time.Now(), free*100/used
		return
	}
	if err != nil {
		return // the store has failed with it
	}
	s.upkeep.failedAt = time.Time{}
	s.mu.Lock()
	s.compactions++
	s.lastCompaction = time.Now().UTC()
	now := s.gen.used
	s.mu.Unlock()
	s.opts.Logger.Info("compacted the store file", logging.KeyPath, s.path,
		logging.KeyBytes, now, "bytes_before", used, logging.KeyDuration, time.Since(began))
}

// compact replaces the file by a copy without free pages, in this order: a temporary beside it is filled, cut to its pages,
// synced, read back from the medium and held against what the source was found to hold, opened and locked, given its
// reserve, and renamed over the old file; then the directory is synced. Until the rename a crash leaves the old file and a
// temporary, which the next Open removes; from the rename on, either file whole. The writer is busy with it, so nothing is
// committed meanwhile and the two hold the same.
//
// Where the old file is known to be the one in use, an error says why it stays so. When that is not known, or when the old
// file shows damage, the store fails with that error.
func (s *Store) compact(g *generation, live int64) (err error) {
	// A temporary from before can only be one whose removal failed.
	if err := clearLeftovers(s.path, s.opts.FS, s.opts.Logger); err != nil {
		return err
	}
	if err := s.roomFor(g, live+max(s.opts.Reserve, 0)); err != nil {
		return err
	}
	temp, err := tempName(s.path)
	if err != nil {
		return err
	}
	var next *generation
	published := false
	defer func() {
		if published {
			return
		}
		if next != nil {
			err = errors.Join(err, isolated(next.db.Close))
		}
		if rerr := s.opts.FS.Remove(temp); rerr != nil && !durable.IsNotExist(rerr) {
			err = errors.Join(err, rerr)
		}
	}()
	want, err := s.duplicate(g, temp)
	if err != nil {
		return noSpace(err)
	}
	page, err := s.finishCopy(temp, want)
	if err != nil {
		return noSpace(fmt.Errorf("verify the copy: %w", err))
	}
	if next, err = s.openCopy(temp, page); err != nil {
		return fmt.Errorf("open the copy: %w", err)
	}
	published, err = s.publish(g, next, temp)
	return err
}

// roomFor tells whether the volume can take so many bytes more. A copy that filled it before it failed would have taken
// the space from everybody else meanwhile.
func (s *Store) roomFor(g *generation, need int64) error {
	var volume unix.Statfs_t
	if err := unix.Fstatfs(int(g.file.Fd()), &volume); err != nil {
		return fmt.Errorf("ask for the room on the volume of %s: %w", s.path, err)
	}
	// The conversions widen on 32-bit ARM. Zero blocks are what some file systems answer that do not know.
	unit := uint64(max(volume.Frsize, 1))
	room := min(volume.Bavail, math.MaxInt64/unit) * unit
	if volume.Blocks > 0 && int64(room) < need {
		return fmt.Errorf("%w: the copy needs %d bytes where %d are available", ErrNoSpace, need, room)
	}
	return nil
}

// openCopy makes the verified temporary ready for use. It is locked before it gets its name: another process that opens
// the name finds a lock at every moment. Its reserve is there before that of the old file is given up.
func (s *Store) openCopy(temp string, page metaPage) (*generation, error) {
	f, err := openLocked(temp, 0)
	if err != nil {
		return nil, err
	}
	g, err := newGeneration(f, page, s.opts)
	if err != nil {
		return nil, errors.Join(err, release(f))
	}
	if err := s.reserve(g); err != nil {
		return nil, errors.Join(err, isolated(g.db.Close))
	}
	return g, nil
}

// publish renames the copy over the old file and goes on with it. published false with an error says that the old file is
// the one in use, and untouched.
func (s *Store) publish(old, next *generation, temp string) (published bool, err error) {
	s.moving.Lock()
	defer s.moving.Unlock()
	if err := s.usable(); err != nil {
		return false, err
	}
	// Whoever put another file there, by hand, shall find it again.
	if same, err := leadsTo(s.path, old.file); err != nil || !same {
		return false, errors.Join(errReplaced, err)
	}
	err = s.opts.FS.Rename(temp, s.path)
	if err != nil {
		if same, serr := leadsTo(s.path, old.file); serr == nil && same {
			return false, err
		}
	}
	// The file once more: on FAT the rename leaves the entry of a synced file without its length.
	if err == nil {
		err = syncFile(s.opts.FS, s.path)
	}
	if err == nil {
		err = s.opts.FS.SyncDir(filepath.Dir(s.path))
	}
	if err != nil {
		err = s.fail(fmt.Errorf("replace %s by its compacted copy: %w: %w", s.path, ErrUnknownOutcome, err))
	}
	s.replace(next)
	return true, err
}
