package queue

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Options are what a Queue needs besides its store.
type Options struct {
	// Now gives recorded times; nil means time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// Queue is the attachments of one account. All methods may be called concurrently; a method that changes something is
// durable when it returns nil.
type Queue struct {
	store *store.Store
	now   func() time.Time
	log   *slog.Logger

	// mu guards live and listeners. Nothing that blocks is called while it is held.
	mu        sync.Mutex
	live      map[attachment.ID]*Claim
	listeners map[int]func(Transition)
	nextID    int
}

// New returns the queue in an opened store of Schema. Call Recover before anything is claimed.
func New(st *store.Store, opts Options) *Queue {
	q := &Queue{store: st, now: opts.Now, log: opts.Logger, live: map[attachment.ID]*Claim{}, listeners: map[int]func(Transition){}}
	if q.now == nil {
		q.now = time.Now
	}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	return q
}

// clock returns the time to record: UTC, without a monotonic part.
func (q *Queue) clock() time.Time { return q.now().UTC().Round(0) }

// Transition is one journal row as it is published after its commit.
type Transition struct {
	Row
	Condition attachment.Condition
}

// Subscribe calls fn for every committed transition, in order, until the returned function is called. fn must not block
// and must not call the queue.
func (q *Queue) Subscribe(fn func(Transition)) (cancel func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.nextID++
	key := q.nextID
	q.listeners[key] = fn
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.listeners, key)
	}
}

func (q *Queue) publish(t Transition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, fn := range q.listeners {
		fn(t)
	}
}

// recoverPage bounds how many attachments one recovery transaction touches.
const recoverPage = 256

// Recover undoes what only a living process can have: every claim is void, and what was uploading is ready again with
// its session and offset. It also ends waits that a clock set back would stretch. Call it once, after opening.
func (q *Queue) Recover(ctx context.Context) error {
	interrupted := Change{Event: attachment.EventInterrupted, Detail: "the daemon was stopped"}
	uploading := func(m *attachment.Manifest) bool { return m.State == attachment.Uploading }
	// What was paused while it was uploading shows as paused, and is uploading still.
	for _, shown := range []attachment.Condition{attachment.ShownUploading, attachment.ShownPaused} {
		if err := q.applyToAll(ctx, shown, uploading, interrupted); err != nil {
			return err
		}
	}
	if err := q.prepareCaptured(ctx); err != nil {
		return err
	}
	if err := q.dropClaims(ctx); err != nil {
		return err
	}
	return q.ClampWaits(ctx)
}

// prepareCaptured makes ready what waits for nothing. What awaits a sidecar is left to EndWait.
func (q *Queue) prepareCaptured(ctx context.Context) error {
	prepare := Change{Event: attachment.EventPrepared, Edit: func(m *attachment.Manifest) { m.Prepared = true }}
	waitsForNothing := func(m *attachment.Manifest) bool { return m.State == attachment.Captured && !m.Awaiting() }
	for _, shown := range []attachment.Condition{attachment.ShownCaptured, attachment.ShownPaused} {
		if err := q.applyToAll(ctx, shown, waitsForNothing, prepare); err != nil {
			return err
		}
	}
	return nil
}

// applyToAll makes a change to what shows as one thing and is wanted. Attachments with damaged values stay as they are.
func (q *Queue) applyToAll(ctx context.Context, shown attachment.Condition, wanted func(*attachment.Manifest) bool, c Change) error {
	for cursor := ""; ; {
		ids, next, err := q.IDs(shown, cursor, recoverPage)
		if err != nil || len(ids) == 0 {
			return err
		}
		err = q.store.Update(ctx, func(tx *store.Tx) error {
			for _, id := range ids {
				m, err := load(tx, id)
				if err == nil && wanted(m) {
					_, err = q.write(tx, m, m.Clone(), c)
				}
				if err != nil && !isBadValue(err) {
					return err
				}
			}
			return nil
		})
		if cursor = next; err != nil || next == "" {
			return err
		}
	}
}
