package spool

import (
	"fmt"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/sidecar"
)

// WriteSidecar makes what a sidecar said durable beside a payload, wherever that lies. Errors wrap ErrMissing when there is
// no payload.
func (s *Spool) WriteSidecar(id attachment.ID, data []byte) error {
	area, found, err := s.Locate(id)
	if err == nil && !found {
		err = ErrMissing
	}
	if err == nil {
		err = s.fs.WriteFile(s.sidecarPath(area, id), data, filePerm)
	}
	if err != nil {
		return fmt.Errorf("write sidecar %s: %w", id, err)
	}
	return nil
}

// ReadSidecar returns what WriteSidecar wrote; durable.IsNotExist tells that there is none.
func (s *Spool) ReadSidecar(id attachment.ID) ([]byte, error) {
	data, err := s.fs.ReadFile(s.sidecarPath(Payloads, id), sidecar.MaxFile)
	if durable.IsNotExist(err) {
		data, err = s.fs.ReadFile(s.sidecarPath(Delivered, id), sidecar.MaxFile)
	}
	return data, err
}

// DropSidecar removes a sidecar that bound nothing; that it is not there is fine.
func (s *Spool) DropSidecar(id attachment.ID) error {
	for _, a := range []Area{Payloads, Delivered} {
		ok, err := s.fs.Exists(s.sidecarPath(a, id))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := s.removeIfThere(s.sidecarPath(a, id)); err != nil {
			return err
		}
		if err := s.fs.SyncDir(s.shardDir(a, id)); err != nil {
			return err
		}
	}
	return nil
}
