package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// maxOwed bounds how far Owed counts.
const maxOwed = 100_000

// Owed counts the undelivered payloads below another spool's directory, which need not exist.
func Owed(fsys *durable.FS, dir string) (n int, err error) {
	s := &Spool{fs: fsys, dir: dir}
	err = s.files(s.areaDir(Payloads), func(path string) error {
		if _, kind, ok := parseName(Payloads, filepath.Base(path)); ok && kind == "" {
			n++
		}
		if n == maxOwed {
			return errFound
		}
		return nil
	})
	if durable.IsNotExist(err) || errors.Is(err, errFound) {
		err = nil
	}
	return n, err
}

// Merge moves every undelivered payload, what lies beside it first, from one spool to another on the same volume. It may be
// repeated after a crash. staged reports that adoptions are under way there: then nothing is moved.
func Merge(fsys *durable.FS, from, to string) (staged bool, err error) {
	src, err := Open(fsys, from)
	if err != nil {
		return false, err
	}
	dst, err := Open(fsys, to)
	if err != nil {
		return false, err
	}
	err = src.ScanStaging(func(Found) error {
		staged = true
		return nil
	})
	if err != nil || staged {
		return staged, err
	}
	for _, wanted := range []string{sidecarSuffix, manifestSuffix, ""} {
		err := src.files(src.areaDir(Payloads), func(path string) error {
			if _, kind, _ := parseName(Payloads, filepath.Base(path)); kind != wanted {
				return nil
			}
			return dst.take(path)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

// take renames one file of another spool's payloads into this one's.
func (s *Spool) take(path string) error {
	id, _, ok := parseName(Payloads, filepath.Base(path))
	if !ok {
		return nil
	}
	shard := s.shardDir(Payloads, id)
	if err := s.fs.MkdirAll(shard, dirPerm); err != nil {
		return err
	}
	if err := s.fs.RenameNew(path, filepath.Join(shard, filepath.Base(path))); err != nil {
		return fmt.Errorf("merge %s: %w", id, err)
	}
	return s.fs.SyncDirs(shard, filepath.Dir(path))
}
