package store

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/logging"
)

const (
	defaultReserve = 4 << 20
	reserveStep    = 1 << 20     // reservations end at a multiple of it, so that few commits need one
	reserveAgain   = time.Minute // at the earliest, after one that failed
)

// secure sees to it that the reserve is there. A failure is no error of anybody's: it is logged once, and tried again
// after a later commit.
func (s *Store) secure(g *generation) {
	if time.Now().Before(s.upkeep.reserveAt) {
		return
	}
	err := s.reserve(g)
	if err == nil {
		if s.upkeep.reserveShort {
			s.opts.Logger.Info("the reserve of the store file is complete again", logging.KeyPath, s.path)
		}
		s.upkeep.reserveShort, s.upkeep.reserveAt = false, time.Time{}
		return
	}
	if !s.upkeep.reserveShort {
		s.opts.Logger.Warn("cannot reserve space for the store file", logging.KeyPath, s.path, logging.KeyErr, err)
	}
	s.upkeep.reserveShort, s.upkeep.reserveAt = true, time.Now().Add(reserveAgain)
}

// reserve has the file own the blocks of Options.Reserve bytes beyond its last page, and those of holes before it
// (fallocate(2), FALLOC_FL_KEEP_SIZE): what a full disk can then still take. bbolt's file is longer than its pages, and
// sparse there, so the end of the file would be the wrong place to begin. Nil where the file system cannot do that, which
// Stats tells.
func (s *Store) reserve(g *generation) error {
	s.mu.Lock()
	used, from, useless := g.used, g.reserved, s.noReserve
	s.mu.Unlock()
	if s.opts.Reserve < 0 || useless || from >= s.capped(used+s.opts.Reserve) {
		return nil
	}
	end := s.capped((used + s.opts.Reserve + reserveStep - 1) / reserveStep * reserveStep)
	err := fallocate(g.file, from, end-from)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		g.reserved = end
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		s.noReserve = true
		return nil
	}
	return noSpace(err)
}

// capped keeps an offset within the permitted size of the file.
func (s *Store) capped(end int64) int64 {
	if s.opts.MaxSize > 0 {
		return min(end, s.opts.MaxSize)
	}
	return end
}

func fallocate(f *os.File, from, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fallocate", err)
		}
	}
}
