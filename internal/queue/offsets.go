package queue

import (
	"context"
	"fmt"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// offsetRow is the confirmed offset of one session. It is not a transition: it writes neither manifest nor journal.
type offsetRow struct {
	Session string `json:"session"`
	Offset  int64  `json:"offset"`
}

// confirmed returns the recorded offset of the manifest's session; 0 when there is none, or only one of another session.
func confirmed(tx *store.Tx, m *attachment.Manifest) (int64, error) {
	row, found, err := store.GetJSON[offsetRow](tx.Bucket(bOffsets), idKey(m.ID))
	if isBadValue(err) {
		return 0, nil // the server knows better anyway: the next reserve says how far it is
	}
	if err != nil || !found || row.Session != m.Delivery.Session.ID {
		return 0, err
	}
	return row.Offset, nil
}

// CommitOffset records how many bytes the server holds durably, from an answer that belongs to the given session.
// Errors: ErrStaleSession for another session than the recorded one, ErrOffset for a figure below the recorded one or
// above the payload's length.
func (q *Queue) CommitOffset(ctx context.Context, id attachment.ID, session string, offset int64) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		m, err := load(tx, id)
		if err != nil {
			return err
		}
		if m.Delivery.Session.ID != session || session == "" {
			return fmt.Errorf("commit offset of %s: %w", id, ErrStaleSession)
		}
		old, err := confirmed(tx, m)
		if err != nil {
			return err
		}
		if offset < old || offset > m.Length {
			return fmt.Errorf("commit offset %d of %s, recorded %d of %d: %w", offset, id, old, m.Length, ErrOffset)
		}
		return putOffset(tx, id, session, offset)
	})
}

func putOffset(tx *store.Tx, id attachment.ID, session string, offset int64) error {
	return store.PutJSON(tx.Bucket(bOffsets), idKey(id), offsetRow{Session: session, Offset: offset})
}

func putSegments(tx *store.Tx, id attachment.ID, segments []attachment.Digest) error {
	value := make([]byte, 0, len(segments)*len(attachment.Digest{}))
	for _, d := range segments {
		value = append(value, d[:]...)
	}
	return tx.Bucket(bSegments).Put(idKey(id), value)
}

// segmentsOf returns the recorded segment digests. Damage or a missing value gives none: the payload's own travelling
// manifest has them too, and a payload without digests is refused when it is opened.
func segmentsOf(tx *store.Tx, id attachment.ID) ([]attachment.Digest, error) {
	value, err := tx.Bucket(bSegments).Get(idKey(id))
	if isBadValue(err) {
		return nil, nil
	}
	const size = len(attachment.Digest{})
	segments := make([]attachment.Digest, 0, len(value)/size)
	for ; len(value) >= size; value = value[size:] {
		segments = append(segments, attachment.Digest(value[:size]))
	}
	return segments, err
}

// Segments returns the digests of an attachment's segments, for reading its payload.
func (q *Queue) Segments(id attachment.ID) (segments []attachment.Digest, err error) {
	err = q.store.View(func(tx *store.Tx) (err error) {
		segments, err = segmentsOf(tx, id)
		return err
	})
	return segments, err
}
