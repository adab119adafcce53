package spool

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// WriteManifest makes the travelling manifest of an undelivered payload durable beside the place where the payload lies
// or will lie.
func (s *Spool) WriteManifest(t *attachment.Travelling) error {
	return s.writeManifest(Payloads, t)
}

func (s *Spool) writeManifest(a Area, t *attachment.Travelling) error {
	id := t.Manifest.ID
	data, err := t.Encode()
	if err != nil {
		return err
	}
	if err := s.fs.MkdirAll(s.shardDir(a, id), dirPerm); err != nil {
		return fmt.Errorf("write manifest %s: %w", id, err)
	}
	if err := s.fs.WriteFile(s.manifestPath(a, id), data, filePerm); err != nil {
		return fmt.Errorf("write manifest %s: %w", id, err)
	}
	return nil
}

// RewriteManifest replaces the travelling manifest where it lies now: in the spool, or among the delivered copies.
func (s *Spool) RewriteManifest(t *attachment.Travelling) error {
	area, found, err := s.Locate(t.Manifest.ID)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("rewrite manifest %s: %w", t.Manifest.ID, ErrMissing)
	}
	return s.writeManifest(area, t)
}

// ReadManifest reads the travelling manifest of an ID from an area. Errors wrap attachment.ErrBadManifest when it is
// damaged, and satisfy durable.IsNotExist when it is not there.
func (s *Spool) ReadManifest(a Area, id attachment.ID) (*attachment.Travelling, error) {
	data, err := s.fs.ReadFile(s.manifestPath(a, id), attachment.MaxTravelling)
	if err != nil {
		return nil, err
	}
	t, err := attachment.DecodeTravelling(data)
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", id, err)
	}
	if t.Manifest.ID != id {
		return nil, fmt.Errorf("read manifest %s: it names %s: %w", id, t.Manifest.ID, attachment.ErrBadManifest)
	}
	return t, nil
}

// Secure renames a staged payload to its place beside its manifest and makes it durable there. Settle does the second
// half alone.
func (s *Spool) Secure(id attachment.ID) error {
	if err := s.fs.RenameNew(s.Path(Staging, id), s.Path(Payloads, id)); err != nil {
		return fmt.Errorf("secure %s: %w", id, err)
	}
	return s.Settle(id)
}

// Settle makes a payload that was just renamed into its place durable: the file itself once more (vfat forgets a renamed
// file's length otherwise), then both directories.
func (s *Spool) Settle(id attachment.ID) error {
	if err := s.syncFile(s.Path(Payloads, id)); err != nil {
		return fmt.Errorf("secure %s: %w", id, err)
	}
	return s.fs.SyncDirs(s.shardDir(Payloads, id), s.areaDir(Staging))
}

func (s *Spool) syncFile(path string) error {
	f, err := s.fs.OpenRead(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Deliver moves a payload and what lies beside it from the spool to the delivered copies. It may be repeated after a crash between
// any two of its steps.
func (s *Spool) Deliver(id attachment.ID) error { return s.transfer(id, Payloads, Delivered) }

// Undeliver moves a payload and what lies beside it back to the spool: for a copy found among the delivered ones whose delivery is
// not recorded.
func (s *Spool) Undeliver(id attachment.ID) error { return s.transfer(id, Delivered, Payloads) }

func (s *Spool) transfer(id attachment.ID, from, to Area) error {
	if err := s.fs.MkdirAll(s.shardDir(to, id), dirPerm); err != nil {
		return fmt.Errorf("move %s to %s: %w", id, to, err)
	}
	moves := [][2]string{
		{s.Path(from, id), s.Path(to, id)},
		{s.manifestPath(from, id), s.manifestPath(to, id)},
	}
	if ok, err := s.fs.Exists(s.sidecarPath(from, id)); err != nil {
		return fmt.Errorf("move %s to %s: %w", id, to, err)
	} else if ok {
		moves = append([][2]string{{s.sidecarPath(from, id), s.sidecarPath(to, id)}}, moves...)
	}
	for _, m := range moves {
		if err := s.moveOnce(m[0], m[1]); err != nil {
			return fmt.Errorf("move %s to %s: %w", id, to, err)
		}
	}
	if err := s.syncFile(s.Path(to, id)); err != nil {
		return fmt.Errorf("move %s to %s: %w", id, to, err)
	}
	dirs := []string{s.shardDir(to, id)}
	if ok, err := s.fs.Exists(s.shardDir(from, id)); err != nil {
		return err
	} else if ok {
		dirs = append(dirs, s.shardDir(from, id))
	}
	return s.fs.SyncDirs(dirs...)
}

// moveOnce renames and accepts that an earlier, interrupted call has done so already. The target is never replaced.
func (s *Spool) moveOnce(from, to string) error {
	err := s.fs.RenameNew(from, to)
	if err == nil || !durable.IsNotExist(err) {
		return err
	}
	if ok, xerr := s.fs.Exists(to); xerr != nil || ok {
		return xerr
	}
	return fmt.Errorf("%s: %w", filepath.Base(from), ErrMissing)
}
