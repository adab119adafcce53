package queue

import (
	"fmt"
	"log/slog"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Change is what happened to an attachment and how its manifest follows.
type Change struct {
	Event  attachment.Event
	Reason attachment.Code
	Detail string
	By     string
	// Edit changes the manifest's facts before the state is computed from them. It must not touch ID, State or Seq, and
	// may run more than once.
	Edit func(*attachment.Manifest)
}

// apply is the one mutator. In the given transaction it loads the manifest, edits it, computes the next state, writes
// manifest, journal row, indexes and counters, and arranges that the transition is published and logged after commit.
func (q *Queue) apply(tx *store.Tx, id attachment.ID, c Change) (*attachment.Manifest, error) {
	old, err := load(tx, id)
	if err != nil {
		return nil, err
	}
	return q.write(tx, old, old.Clone(), c)
}

// create is apply for an attachment that does not exist yet.
func (q *Queue) create(tx *store.Tx, m *attachment.Manifest, c Change) (*attachment.Manifest, error) {
	if tx.Bucket(bManifests).Has(idKey(m.ID)) {
		return nil, fmt.Errorf("adopt %s: %w", m.ID, ErrExists)
	}
	fresh := m.Clone()
	fresh.State, fresh.Seq = attachment.Absent, 0
	return q.write(tx, nil, fresh, c)
}

func (q *Queue) write(tx *store.Tx, old, m *attachment.Manifest, c Change) (*attachment.Manifest, error) {
	if c.Edit != nil {
		c.Edit(m)
	}
	to, err := attachment.Next(m.State, c.Event, m.Facts())
	if err != nil {
		return nil, fmt.Errorf("change %s: %w", m.ID, err)
	}
	row := Row{
		At: q.clock(), ID: m.ID, Event: c.Event, From: m.State, To: to, Reason: c.Reason, Detail: c.Detail, By: c.By,
	}
	m.State = to
	if to != attachment.Attention && to != attachment.Review {
		m.Problem = nil
	} else if m.Problem == nil {
		m.Problem = &attachment.Problem{Code: c.Reason, Since: row.At, Detail: c.Detail}
	}
	if err := appendRow(tx, &row); err != nil {
		return nil, err
	}
	if m.Seq == 0 {
		m.Seq = row.Seq
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("change %s: %w", m.ID, err)
	}
	if err := store.PutJSON(tx.Bucket(bManifests), idKey(m.ID), m); err != nil {
		return nil, err
	}
	if err := reindex(tx, old, m); err != nil {
		return nil, err
	}
	t := Transition{Row: row, Condition: m.Condition()}
	tx.OnCommit(func() {
		q.logTransition(t)
		q.publish(t)
	})
	return m, nil
}

func load(tx *store.Tx, id attachment.ID) (*attachment.Manifest, error) {
	m, found, err := store.GetJSON[attachment.Manifest](tx.Bucket(bManifests), idKey(id))
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", id, err)
	}
	if !found {
		return nil, fmt.Errorf("attachment %.64s: %w", attachment.Printable(string(id)), ErrNotFound)
	}
	return &m, nil
}

func (q *Queue) logTransition(t Transition) {
	attrs := []any{
		slog.String(logging.KeyAttachment, string(t.ID)), slog.String(logging.KeyEvent, string(t.Event)),
		slog.String(logging.KeyFrom, string(t.From)), slog.String(logging.KeyState, string(t.To)),
		slog.Uint64(logging.KeySeq, t.Seq),
	}
	if t.Reason != "" {
		attrs = append(attrs, slog.String(logging.KeyReason, string(t.Reason)))
	}
	if t.By != "" {
		attrs = append(attrs, slog.String(logging.KeyBy, t.By))
	}
	q.log.Info("attachment changed", attrs...)
}
