package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// Get returns everything about one attachment.
func (s *session) Get(_ context.Context, id attachment.ID) (control.ItemDetail, error) {
	e, err := s.queue.Get(id)
	if err != nil {
		return control.ItemDetail{}, refusal(err)
	}
	d := control.ItemDetail{Item: s.item(e)}
	rows, err := s.queue.History(id, control.MaxJournal+1)
	if err != nil {
		return d, err
	}
	if d.JournalCut = len(rows) > control.MaxJournal; d.JournalCut {
		rows = rows[1:]
	}
	for _, r := range rows {
		d.Journal = append(d.Journal, control.JournalRow{
			Seq: r.Seq, At: r.At.UTC(), Event: r.Event, From: r.From, To: r.To, Reason: string(r.Reason), By: r.By, Detail: r.Detail,
		})
	}
	if e.Manifest == nil {
		return d, nil
	}
	s.describe(&d, e)
	if d.Receipt, err = s.queue.Receipt(id); err != nil {
		return d, err
	}
	area, found, err := s.spool.Locate(id)
	if found {
		d.PayloadPath = s.spool.Path(area, id)
	}
	return d, err
}

func (s *session) describe(d *control.ItemDetail, e queue.Entry) {
	m := e.Manifest
	d.CapturedAtSource, d.Role, d.Of, d.Structure, d.Custody = m.CapturedAtSource, m.Role, m.Of, m.Structure, m.Custody
	d.Source = control.Source{
		Watch: m.Source.Watch, Path: m.Source.Path, Evidence: m.Source.Evidence, ReleasePending: m.Source.ReleasePending, Kept: m.Source.Kept,
		Released: m.Source.Released,
	}
	d.Supersedes, d.Description = m.Supersedes, m.Description
	d.Binding = control.Binding{Rule: m.Binding.Rule}
	if bound := m.Binding.Sidecar; bound != nil {
		d.Binding.Sidecar, d.Binding.ReleasePending, d.Binding.Kept = bound.Path, bound.ReleasePending, bound.Kept
	}
	d.Submission, d.Driver, d.MediaID, d.Failures = m.Submission, m.Delivery.Driver, m.Delivery.MediaID, m.Delivery.Failures
	d.Problem, d.Discard = m.Problem, m.Discard
	if m.Delivery.Session.ID != "" {
		d.Session = &control.Session{ID: m.Delivery.Session.ID, Generation: m.Delivery.Session.Generation}
	}
	if f := e.Failure; f != nil {
		d.LastError = &control.LastError{Code: f.Code, Message: f.Message, At: f.At.UTC(), Status: f.Status}
	}
}

// item is one attachment as lists show it. One whose record is damaged is shown as far as it is known: it exists, and it
// needs a person.
func (s *session) item(e queue.Entry) control.Item {
	if e.Manifest == nil {
		return control.Item{
			ID: e.ID, Seq: e.Seq, Filename: attachment.NameOf("?"), Condition: attachment.ShownAttention,
			State: attachment.Attention, LocalCopy: s.localCopy(e.ID, attachment.Attention),
			Waiting: control.Why(attachment.NeedsManifestDamaged, e.ID, time.Time{}),
		}
	}
	m := e.Manifest
	i := control.Item{
		ID: m.ID, Filename: m.Filename, Parent: m.Parent, Length: m.Length, SHA256: m.SHA256, MediaType: m.MediaType,
		Condition: overlay(m.Condition(), s.credentialRefused()), State: m.State, CapturedAt: m.CapturedAt.UTC(),
		AdoptedAt: m.AdoptedAt.UTC(), Grade: receipt.Grade(m.Delivery.Grade), LocalCopy: s.localCopy(m.ID, m.State),
		Repeats: m.Repeats, Paused: m.Paused, Priority: m.Priority, Attempts: m.Delivery.Attempts, Seq: m.Seq, Waiting: s.why(e),
	}
	if m.Delivery.Session.ID != "" {
		confirmed := e.Confirmed
		i.ConfirmedBytes = &confirmed
	}
	if m.State.Sendable() && m.State != attachment.Uploaded && s.dispatcher.restarts() {
		i.Restarts, i.ConfirmedBytes = true, nil
	}
	if m.State == attachment.Reconciled {
		at := m.Delivery.RegisteredAt.UTC()
		i.DeliveredAt = &at
		i.ConfirmedBytes = nil
	}
	return i
}

func (s *session) localCopy(id attachment.ID, state attachment.State) string {
	area, found, err := s.spool.Locate(id)
	switch {
	case err != nil || !found && state != attachment.Released:
		return control.CopyMissing
	case !found:
		return control.CopyReleased
	case area == spool.Delivered:
		return control.CopyDelivered
	}
	return control.CopySpool
}

// why says what an undelivered attachment waits for: the nearest reason first.
func (s *session) why(e queue.Entry) *control.Waiting {
	m := e.Manifest
	if m == nil || !m.State.Undelivered() {
		return nil
	}
	delivery := m.Delivery
	switch {
	case m.Problem != nil:
		w := control.Why(m.Problem.Code, m.ID, m.Problem.Since.UTC())
		return w
	case m.Paused:
		return control.Why(attachment.HoldPaused, m.ID, time.Time{})
	case e.Claimed && s.dispatcher.unsettled(m.ID):
		return control.Why(attachment.NotTakenQueue, m.ID, time.Time{})
	case e.Claimed:
		return nil
	case m.Awaiting():
		return s.awaiting(m)
	case m.Sent():
		return control.Why(attachment.HoldGrade, m.ID, m.Delivery.RegisteredAt.UTC())
	}
	if w := s.channelWaiting(m.Priority >= attachment.PriorityFront); w != nil {
		return w
	}
	if delivery.NotBefore.After(time.Now()) {
		code := delivery.ErrorCode
		if code == "" {
			code = attachment.HoldBackoff
		}
		w := control.Why(code, m.ID, time.Time{})
		if e.Failure != nil {
			w.Since, w.Detail = e.Failure.At.UTC(), clause(e.Failure.Message)
		}
		next := delivery.NotBefore.UTC()
		w.NextAttempt = &next
		return w
	}
	return control.Why(attachment.HoldQueued, m.ID, m.AdoptedAt.UTC())
}

// refusal translates what the queue says about a lookup.
func refusal(err error) error {
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return control.Refuse(control.CodeNoSuchItem, "")
	case errors.Is(err, queue.ErrBadCursor):
		return control.Refuse(control.CodeInvalid, "the cursor is not one of this list")
	case errors.Is(err, attachment.ErrTransition):
		return control.Refuse(control.CodeNotPossible, "")
	}
	return err
}

// Resolve finds attachments by the beginning or the end of their ID.
func (s *session) Resolve(_ context.Context, ref string) ([]attachment.ID, error) {
	return s.queue.Resolve(ref, control.MaxCandidates)
}

// NotTaken lists what the last scans did not take.
func (s *session) NotTaken(_ context.Context, cursor string, limit int) (control.Page[control.NotTaken], error) {
	list, next := s.watch.NotTaken(limit, cursor)
	page := control.Page[control.NotTaken]{Items: make([]control.NotTaken, 0, len(list)), NextCursor: next}
	for _, n := range list {
		w := control.Why(n.Code, "", n.Since.UTC())
		if n.Detail != "" {
			w.Message = fmt.Sprintf("%s (%s)", w.Message, n.Detail)
		}
		page.Items = append(page.Items, control.NotTaken{Watch: n.Watch, Path: n.Path, Size: n.Size, Waiting: *w})
	}
	return page, nil
}

// Records lists parents with the counts of their attachments.
func (s *session) Records(_ context.Context, q control.RecordQuery) (control.Page[control.Record], error) {
	page := control.Page[control.Record]{Items: []control.Record{}}
	if !q.Parent.Empty() {
		p, found, err := s.queue.ParentOf(q.Parent.Exact())
		if found {
			page.Items = append(page.Items, record(p))
		}
		return page, err
	}
	parents, next, err := s.queue.Parents(q.Cursor, q.Limit)
	for _, p := range parents {
		page.Items = append(page.Items, record(p))
	}
	page.NextCursor = next
	return page, refusal(err)
}

func record(p queue.ParentCounts) control.Record {
	r := control.Record{Parent: p.Parent}
	for c, n := range p.Conditions {
		t := &r.Unreconciled
		if !c.Owed() {
			t = &r.Delivered
		}
		t.Items += n.Items
		t.Bytes += n.Bytes
		if slices.Contains([]attachment.Condition{attachment.ShownAttention, attachment.ShownReview}, c) {
			r.NeedsAttention += n.Items
		}
	}
	return r
}
