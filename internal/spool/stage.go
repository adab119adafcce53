package spool

import (
	"fmt"
	"path/filepath"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// CreateStaged opens a new staging file for writing. Its name is not durable before SyncStaging.
func (s *Spool) CreateStaged(id attachment.ID) (*durable.File, error) {
	f, err := s.fs.Create(s.Path(Staging, id), filePerm)
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", id, err)
	}
	return f, nil
}

// OpenStaged opens a staging file for reading.
func (s *Spool) OpenStaged(id attachment.ID) (*durable.File, error) {
	return s.fs.OpenRead(s.Path(Staging, id))
}

// SyncStaging makes the names in staging durable.
func (s *Spool) SyncStaging() error { return s.fs.SyncDir(s.areaDir(Staging)) }

// MoveIn renames a file from outside into staging and makes both directories durable. durable.IsCrossDevice tells that
// the file lies on another mount. When it fails after the rename, the file is in staging or back where it was.
func (s *Spool) MoveIn(from string, id attachment.ID) error {
	staged := s.Path(Staging, id)
	if err := s.fs.RenameNew(from, staged); err != nil {
		return fmt.Errorf("move %s into staging: %w", id, err)
	}
	return s.fs.SyncDirs(s.areaDir(Staging), filepath.Dir(from))
}

// MoveOut renames a staged or secured payload back to a path outside, never over an existing file, and makes both
// directories durable. A manifest that was written for it is removed.
func (s *Spool) MoveOut(id attachment.ID, to string) error {
	from := s.Path(Staging, id)
	if ok, err := s.fs.Exists(from); err != nil || !ok {
		from = s.Path(Payloads, id)
	}
	if err := s.fs.RenameNew(from, to); err != nil {
		return fmt.Errorf("move %s back: %w", id, err)
	}
	if err := s.fs.SyncDirs(filepath.Dir(to), filepath.Dir(from)); err != nil {
		return err
	}
	return s.removeIfThere(s.manifestPath(Payloads, id))
}

// DropStaged removes a staging file that is not needed: a copy whose source still exists, or an abandoned one.
func (s *Spool) DropStaged(id attachment.ID) error {
	if err := s.removeIfThere(s.Path(Staging, id)); err != nil {
		return err
	}
	return s.SyncStaging()
}

// DropUncommitted removes a secured copy that never became an attachment: payload first, so that a crash leaves a
// manifest without payload, which start-up recognizes, and never the reverse.
func (s *Spool) DropUncommitted(id attachment.ID) error {
	if err := s.removeIfThere(s.Path(Payloads, id)); err != nil {
		return err
	}
	if err := s.removeIfThere(s.manifestPath(Payloads, id)); err != nil {
		return err
	}
	dir := s.shardDir(Payloads, id)
	if ok, err := s.fs.Exists(dir); err != nil || !ok {
		return err
	}
	return s.fs.SyncDir(dir)
}

func (s *Spool) removeIfThere(path string) error {
	if err := s.fs.Remove(path); err != nil && !durable.IsNotExist(err) {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
