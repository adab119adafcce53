package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// maxNote bounds a receipt or an outbox file, in bytes.
const maxNote = 1 << 20

// WriteReceipt makes the server's receipt for an ID durable, before the queue calls the attachment delivered.
func (s *Spool) WriteReceipt(id attachment.ID, data []byte) error {
	if err := s.fs.WriteFile(filepath.Join(s.receiptsDir(), string(id)), data, filePerm); err != nil {
		return fmt.Errorf("write receipt %s: %w", id, err)
	}
	return nil
}

// ReadReceipt returns what WriteReceipt wrote; durable.IsNotExist tells that there is none.
func (s *Spool) ReadReceipt(id attachment.ID) ([]byte, error) {
	return s.fs.ReadFile(filepath.Join(s.receiptsDir(), string(id)), maxNote)
}

// WriteDecision makes a standing decision durable under a short fixed name, before the queue knows it.
func (s *Spool) WriteDecision(name string, data []byte) error {
	if err := s.fs.WriteFile(filepath.Join(s.outboxDir(), name), data, filePerm); err != nil {
		return fmt.Errorf("write decision %s: %w", name, err)
	}
	return nil
}

// RemoveDecision removes a decision that is lifted; that it is not there is fine.
func (s *Spool) RemoveDecision(name string) error {
	if err := s.removeIfThere(filepath.Join(s.outboxDir(), name)); err != nil {
		return err
	}
	return s.fs.SyncDir(s.outboxDir())
}

// Decisions visits every standing decision. Temporary files that a crash left there and among the receipts are removed.
func (s *Spool) Decisions(visit func(name string, data []byte) error) error {
	for _, dir := range []string{s.receiptsDir(), s.outboxDir()} {
		var names []string
		err := s.fs.List(dir, func(e fs.DirEntry) error {
			if durable.IsTemp(e.Name()) {
				return s.removeIfThere(filepath.Join(dir, e.Name()))
			}
			if dir == s.outboxDir() && e.Type().IsRegular() {
				names = append(names, e.Name())
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("list decisions: %w", err)
		}
		for _, name := range names {
			data, err := s.fs.ReadFile(filepath.Join(dir, name), maxNote)
			if err == nil {
				err = visit(name, data)
			}
			if err != nil {
				return errors.Join(fmt.Errorf("decision %s", attachment.Printable(name)), err)
			}
		}
	}
	return nil
}
