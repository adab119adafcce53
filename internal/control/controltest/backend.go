// Package controltest is a daemon for tests: a control backend that really keeps attachments in memory and moves them with
// the domain's own transition function.
//
// It owns no behaviour of its own beyond that: what it answers derives from the manifests put into it. Tests serve it on a
// real unix socket. Read Backend first.
package controltest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/server"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

// Entry is one attachment and what is known beside its manifest.
type Entry struct {
	Manifest  attachment.Manifest
	Confirmed *int64
	Waiting   *control.Waiting
	LastError *control.LastError
	Receipt   *receipt.Receipt
	Journal   []control.JournalRow
	Copy      string
	Path      string
}

// Backend implements server.Backend in memory.
type Backend struct {
	now func() time.Time

	mu          sync.Mutex
	seq         uint64
	entries     []*Entry
	notTaken    []control.NotTaken
	base        control.Status
	fail        error
	callers     []server.Caller
	submissions map[string]control.SubmissionResult
	broken      []control.Finding
	subscribers map[*subscriber]bool
	// subscriptions counts all that were ever made.
	subscriptions int
}

// New makes a backend that knows a configured device and no attachments.
func New(now func() time.Time) *Backend {
	return &Backend{
		now: now,
		base: control.Status{
			Device: "tablet-117", Account: "acme", Version: "0.4.0", StartedAt: now().Add(-76 * time.Hour), Configured: true,
			Sending: control.Sending{Endpoint: "https://evidence.example.org"},
			Storage: control.Storage{FreeBytes: 9_300_000_000, TotalBytes: 24_000_000_000, ReserveBytes: 32 << 20, WarnBytes: 64 << 20, State: control.StorageOK},
			Watches: []control.WatchStatus{{Name: "camera", Path: attachment.NameOf("/var/lib/fieldgw/capture"), Available: true}},
		},
		submissions: map[string]control.SubmissionResult{},
		subscribers: map[*subscriber]bool{},
	}
}

// Set changes what status says of the device; counts are computed.
func (b *Backend) Set(change func(*control.Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.base)
}

// Fail makes every method but Status return err; nil ends that.
func (b *Backend) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// Add puts an attachment in and gives it the next place in the order.
func (b *Backend) Add(e Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(&e)
}

func (b *Backend) add(e *Entry) {
	b.seq++
	e.Manifest.Seq = b.seq
	b.entries = append(b.entries, e)
}

// AddNotTaken puts a path in that was not taken.
func (b *Backend) AddNotTaken(n control.NotTaken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notTaken = append(b.notTaken, n)
}

// Callers returns who acted, in order.
func (b *Backend) Callers() []server.Caller {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.callers)
}

// Happen lets events happen to an attachment, one after the other, and tells the subscribers.
func (b *Backend) Happen(id attachment.ID, events ...attachment.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.find(id)
	if e == nil {
		return fmt.Errorf("no attachment %s", id)
	}
	for _, event := range events {
		if err := b.happen(e, event, "", ""); err != nil {
			return err
		}
	}
	return nil
}

// happen keeps the facts in the manifest that the domain asks for in the new state.
func (b *Backend) happen(e *Entry, event attachment.Event, by, reason string) error {
	m := &e.Manifest
	from := m.State
	to, err := attachment.Next(from, event, m.Facts())
	if err != nil {
		return err
	}
	m.State = to
	switch event {
	case attachment.EventPrepared:
		m.Prepared = true
	case attachment.EventVerified:
		m.Delivery.Verified = true
	case attachment.EventRegistered:
		m.Delivery.Grade, m.Delivery.RegisteredAt = string(receipt.RegisteredDurable), b.now().UTC()
		e.Waiting, e.Copy = nil, control.CopyDelivered
	case attachment.EventPaused:
		m.Paused = true
	case attachment.EventResumed:
		m.Paused = false
	case attachment.EventRetried:
		m.Problem, e.Waiting = nil, nil
	case attachment.EventAttention:
		m.Problem = &attachment.Problem{Code: attachment.NeedsMediaType, Since: b.now().UTC()}
		e.Waiting = control.Why(m.Problem.Code, m.ID, b.now().UTC())
	}
	b.seq++
	e.Journal = append(e.Journal, control.JournalRow{Seq: b.seq, At: b.now().UTC(), Event: event, From: from, To: to, By: by, Reason: reason})
	b.tell(control.Transition{
		Seq: b.seq, At: b.now().UTC(), ID: m.ID, Event: event, From: from, To: to, Reason: reason, Condition: m.Condition(),
	})
	return nil
}

type subscriber struct {
	c    chan control.Transition
	done <-chan struct{}
}

// tell waits for every subscriber, as the contract of Subscribe allows.
func (b *Backend) tell(t control.Transition) {
	for s := range b.subscribers {
		select {
		case s.c <- t:
		case <-s.done:
		}
	}
}

func (b *Backend) find(id attachment.ID) *Entry {
	for _, e := range b.entries {
		if e.Manifest.ID == id {
			return e
		}
	}
	return nil
}

func (e *Entry) item() control.Item {
	m := &e.Manifest
	item := control.Item{
		ID: m.ID, Filename: m.Filename, Parent: m.Parent, Length: m.Length, SHA256: m.SHA256, MediaType: m.MediaType,
		Condition: m.Condition(), State: m.State, ConfirmedBytes: e.Confirmed, Waiting: e.Waiting, CapturedAt: m.CapturedAt,
		AdoptedAt: m.AdoptedAt, Grade: receipt.Grade(m.Delivery.Grade), LocalCopy: e.Copy, Repeats: m.Repeats, Paused: m.Paused,
		Priority: m.Priority, Attempts: m.Delivery.Attempts, Seq: m.Seq,
	}
	if !m.Delivery.RegisteredAt.IsZero() {
		item.DeliveredAt = &m.Delivery.RegisteredAt
	}
	return item
}

func (e *Entry) detail() control.ItemDetail {
	m := &e.Manifest
	d := control.ItemDetail{
		Item: e.item(), CapturedAtSource: m.CapturedAtSource, Role: m.Role, Of: m.Of, Supersedes: m.Supersedes, Description: m.Description, Binding: bindingOf(m), Structure: m.Structure, Custody: m.Custody,
		Source: control.Source{
			Watch: m.Source.Watch, Path: m.Source.Path, Evidence: m.Source.Evidence,
			ReleasePending: m.Source.ReleasePending, Kept: m.Source.Kept, Released: m.Source.Released,
		},
		Submission: m.Submission, Driver: m.Delivery.Driver, MediaID: m.Delivery.MediaID, Failures: m.Delivery.Failures,
		LastError: e.LastError, Problem: m.Problem, Discard: m.Discard, Receipt: e.Receipt,
		Journal: slices.Clone(e.Journal), PayloadPath: e.Path,
	}
	if m.Delivery.Session.ID != "" {
		d.Session = &control.Session{ID: m.Delivery.Session.ID, Generation: m.Delivery.Session.Generation}
	}
	return d
}

func bindingOf(m *attachment.Manifest) control.Binding {
	b := control.Binding{Rule: m.Binding.Rule}
	if s := m.Binding.Sidecar; s != nil {
		b.Sidecar, b.ReleasePending, b.Kept = s.Path, s.ReleasePending, s.Kept
	}
	return b
}
