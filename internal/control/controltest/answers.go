package controltest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/server"
)

var _ server.Backend = (*Backend)(nil)

// Status implements server.Backend.
func (b *Backend) Status(context.Context) (control.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.base
	st.NotTaken = len(b.notTaken)
	if st.Degraded != nil {
		return st, nil
	}
	for _, c := range attachment.Conditions() {
		n := control.Count{Condition: c}
		for _, e := range b.entries {
			if e.Manifest.Condition() != c {
				continue
			}
			if n.Items++; n.Items == 1 && c.Owed() {
				n.Oldest, n.Waiting = &e.Manifest.AdoptedAt, e.Waiting
			}
			n.Bytes += e.Manifest.Length
		}
		if n.Items > 0 {
			st.Counts = append(st.Counts, n)
		}
	}
	return st, nil
}

// List implements server.Backend.
func (b *Backend) List(_ context.Context, q control.ListQuery) (control.Page[control.Item], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return control.Page[control.Item]{}, b.fail
	}
	var items []control.Item
	for _, e := range b.entries {
		m := &e.Manifest
		if (len(q.Conditions) == 0 || slices.Contains(q.Conditions, m.Condition())) &&
			(q.Parent.Empty() || m.Parent.LocalID.Exact() == q.Parent.Exact()) &&
			(q.AdoptedBefore.IsZero() || m.AdoptedAt.Before(q.AdoptedBefore)) {
			items = append(items, e.item())
		}
	}
	return cut(items, q.Cursor, q.Limit)
}

// cut makes a page; its cursor is the number of rows before the next page.
func cut[T any](rows []T, cursor string, limit int) (p control.Page[T], err error) {
	from := 0
	if cursor != "" {
		if from, err = strconv.Atoi(cursor); err != nil || from > len(rows) {
			return p, control.Refuse(control.CodeInvalid, "cursor")
		}
	}
	p.Items = rows[from:min(from+limit, len(rows))]
	if from+limit < len(rows) {
		p.NextCursor = strconv.Itoa(from + limit)
	}
	return p, nil
}

// Get implements server.Backend.
func (b *Backend) Get(_ context.Context, id attachment.ID) (control.ItemDetail, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return control.ItemDetail{}, b.fail
	}
	e := b.find(id)
	if e == nil {
		return control.ItemDetail{}, control.Refuse(control.CodeNoSuchItem, string(id))
	}
	return e.detail(), nil
}

// Resolve implements server.Backend.
func (b *Backend) Resolve(_ context.Context, ref string) ([]attachment.ID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return nil, b.fail
	}
	var found []attachment.ID
	for _, e := range b.entries {
		if control.Refers(ref, e.Manifest.ID) && len(found) < control.MaxCandidates {
			found = append(found, e.Manifest.ID)
		}
	}
	return found, nil
}

// NotTaken implements server.Backend.
func (b *Backend) NotTaken(_ context.Context, cursor string, limit int) (control.Page[control.NotTaken], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cut(slices.Clone(b.notTaken), cursor, limit)
}

// Records implements server.Backend.
func (b *Backend) Records(_ context.Context, q control.RecordQuery) (control.Page[control.Record], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return control.Page[control.Record]{}, b.fail
	}
	var rows []control.Record
	at := map[string]int{}
	for _, e := range b.entries {
		m := &e.Manifest
		local := m.Parent.LocalID.Exact()
		if !q.Parent.Empty() && local != q.Parent.Exact() {
			continue
		}
		i, ok := at[local]
		if !ok {
			i = len(rows)
			at[local] = i
			rows = append(rows, control.Record{Parent: m.Parent})
		}
		c, r := m.Condition(), &rows[i]
		switch {
		case c == attachment.ShownDelivered:
			r.Delivered = control.Tally{Items: r.Delivered.Items + 1, Bytes: r.Delivered.Bytes + m.Length}
		case c.Owed():
			r.Unreconciled = control.Tally{Items: r.Unreconciled.Items + 1, Bytes: r.Unreconciled.Bytes + m.Length}
		}
		if c == attachment.ShownAttention || c == attachment.ShownReview {
			r.NeedsAttention++
		}
	}
	return cut(rows, q.Cursor, q.Limit)
}

// Retry implements server.Backend.
func (b *Backend) Retry(_ context.Context, by server.Caller, a control.Action) (control.Outcome, error) {
	return b.act(by, a, attachment.EventRetried)
}

// Prioritize implements server.Backend.
func (b *Backend) Prioritize(_ context.Context, by server.Caller, a control.Action) (control.Outcome, error) {
	return b.act(by, a, attachment.EventPrioritized)
}

// Pause implements server.Backend.
func (b *Backend) Pause(_ context.Context, by server.Caller, a control.Action) (control.Outcome, error) {
	return b.act(by, a, attachment.EventPaused)
}

// Resume implements server.Backend.
func (b *Backend) Resume(_ context.Context, by server.Caller, a control.Action) (control.Outcome, error) {
	return b.act(by, a, attachment.EventResumed)
}

func (b *Backend) act(by server.Caller, a control.Action, event attachment.Event) (out control.Outcome, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return out, b.fail
	}
	b.callers = append(b.callers, by)
	for _, id := range a.IDs {
		e := b.find(id)
		if e == nil {
			out.Add(control.ActionResult{ID: id, Code: control.CodeNoSuchItem, Message: "No such attachment"})
			continue
		}
		out.Add(b.actOn(e, by, a, event))
	}
	for _, e := range b.entries {
		inRecord := !a.Record.Empty() && e.Manifest.Parent.LocalID.Exact() == a.Record.Exact()
		_, refused := attachment.Next(e.Manifest.State, event, e.Manifest.Facts())
		if (a.All || inRecord) && refused == nil {
			out.Add(b.actOn(e, by, a, event))
		}
	}
	return out, nil
}

func (b *Backend) actOn(e *Entry, by server.Caller, a control.Action, event attachment.Event) control.ActionResult {
	result := control.ActionResult{ID: e.Manifest.ID, Filename: e.Manifest.Filename, Done: true}
	_, err := attachment.Next(e.Manifest.State, event, e.Manifest.Facts())
	if err == nil && !a.DryRun {
		err = b.happen(e, event, by.String(), a.Reason)
	}
	if err != nil {
		result.Done, result.Code, result.Message = false, control.CodeNotPossible, err.Error()
	}
	return result
}

// PauseChannel implements server.Backend.
func (b *Backend) PauseChannel(_ context.Context, by server.Caller, a control.ChannelAction) (control.ActionResult, error) {
	return b.actOnChannel(by, a, control.Why(attachment.HoldChannelPaused, "", b.now().UTC()))
}

// ResumeChannel implements server.Backend.
func (b *Backend) ResumeChannel(_ context.Context, by server.Caller, a control.ChannelAction) (control.ActionResult, error) {
	return b.actOnChannel(by, a, nil)
}

func (b *Backend) actOnChannel(by server.Caller, a control.ChannelAction, why *control.Waiting) (control.ActionResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return control.ActionResult{}, b.fail
	}
	b.callers = append(b.callers, by)
	if !a.DryRun {
		b.base.Sending.Paused, b.base.Sending.Channel = why != nil, why
	}
	return control.ActionResult{Done: true}, nil
}

// Submit implements server.Backend: it reads every file and keeps its digest.
func (b *Backend) Submit(ctx context.Context, by server.Caller, sub control.Submission, next func() (io.Reader, error)) (control.SubmissionResult, error) {
	b.mu.Lock()
	result, known := b.submissions[sub.SubmissionID]
	fail := b.fail
	b.mu.Unlock()
	if known || fail != nil {
		return result, fail
	}
	var made []*Entry
	for _, f := range sub.Files {
		from, err := next()
		if err != nil {
			return control.SubmissionResult{}, err
		}
		hash := sha256.New()
		if _, err := io.Copy(hash, from); err != nil {
			return control.SubmissionResult{}, fmt.Errorf("secure %s: %w", f.Name.Printable(), err)
		}
		id, err := attachment.NewID()
		if err != nil {
			return control.SubmissionResult{}, err
		}
		made = append(made, &Entry{Copy: control.CopySpool, Manifest: attachment.Manifest{
			ID: id, State: attachment.Captured, Filename: f.Name, Length: f.Length, SHA256: attachment.Digest(hash.Sum(nil)),
			Parent: attachment.Parent{LocalID: sub.Record}, CapturedAt: f.ModifiedAt, AdoptedAt: b.now().UTC(),
			Custody: attachment.CustodySubmit, Submission: sub.SubmissionID,
			Source: attachment.Source{Path: f.SourcePath, Evidence: attachment.EvidenceSubmitted},
		}})
	}
	if err := ctx.Err(); err != nil {
		return control.SubmissionResult{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.callers = append(b.callers, by)
	for _, e := range made {
		b.add(e)
		result.Items = append(result.Items, e.item())
	}
	b.submissions[sub.SubmissionID] = result
	return result, nil
}

// Subscribe implements server.Backend.
func (b *Backend) Subscribe(ctx context.Context) <-chan control.Transition {
	s := &subscriber{c: make(chan control.Transition), done: ctx.Done()}
	b.mu.Lock()
	b.subscribers[s] = true
	b.subscriptions++
	b.mu.Unlock()
	context.AfterFunc(ctx, func() { b.end(s) })
	return s.c
}

func (b *Backend) end(s *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers[s] {
		delete(b.subscribers, s)
		close(s.c)
	}
}

// Subscriptions is the number of subscriptions that were ever made.
func (b *Backend) Subscriptions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.subscriptions
}

// EndSubscriptions closes every subscription early, as a daemon does that cannot keep up.
func (b *Backend) EndSubscriptions() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subscribers {
		delete(b.subscribers, s)
		close(s.c)
	}
}
