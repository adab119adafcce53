package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// errUnchanged ends a transaction that found nothing to do.
var errUnchanged = errors.New("unchanged")

// decide applies a person's decision unless the manifest already says so.
func (q *Queue) decide(ctx context.Context, id attachment.ID, c Change, needed func(*attachment.Manifest) bool) (changed bool, err error) {
	err = q.store.Update(ctx, func(tx *store.Tx) error {
		m, err := load(tx, id)
		if err != nil {
			return err
		}
		if !needed(m) {
			if _, terr := attachment.Next(m.State, c.Event, m.Facts()); terr != nil {
				return fmt.Errorf("change %s: %w", id, terr)
			}
			return errUnchanged
		}
		_, err = q.apply(tx, id, c)
		return err
	})
	if errors.Is(err, errUnchanged) {
		return false, nil
	}
	return err == nil, err
}

// Retry lets an attachment be tried at its turn in the order of capture: backoff and failures are forgotten, attention
// ends, and what was sent without being delivered is verified anew. Errors wrap attachment.ErrTransition when it is not possible
// in its state.
func (q *Queue) Retry(ctx context.Context, id attachment.ID, by, reason string) error {
	if e, err := q.Get(id); err == nil && e.Manifest != nil && !e.Manifest.Retryable() {
		return fmt.Errorf("retry %s: it was damaged before custody was complete: %w", id, attachment.ErrTransition)
	}
	_, err := q.decide(ctx, id, Change{
		Event: attachment.EventRetried, By: by, Detail: reason,
		Edit: func(m *attachment.Manifest) {
			if m.Problem != nil && m.Problem.Code == attachment.NeedsSidecarInvalid {
				m.Prepared, m.Binding.Wait = true, 0 // a person wants it sent without
			}
			forgive(m)
			m.Delivery.Grade, m.Delivery.RegisteredAt = "", time.Time{}
		},
	}, func(*attachment.Manifest) bool { return true })
	if err != nil {
		return err
	}
	return q.EndWait(ctx, id, by, "a person does not wait for its sidecar")
}

// forgive ends a backoff.
func forgive(m *attachment.Manifest) {
	m.Delivery.NotBefore, m.Delivery.Wait, m.Delivery.Failures = time.Time{}, 0, 0
	m.Delivery.ErrorCode = ""
}

// Prioritize puts an attachment before all that no person put there, and ends its backoff. Errors wrap
// attachment.ErrTransition when it is not possible in its state.
func (q *Queue) Prioritize(ctx context.Context, id attachment.ID, by, reason string) (changed bool, err error) {
	return q.decide(ctx, id, Change{
		Event: attachment.EventPrioritized, By: by, Detail: reason,
		Edit: func(m *attachment.Manifest) {
			m.Priority = attachment.PriorityFront
			forgive(m)
		},
	}, func(m *attachment.Manifest) bool {
		return m.Priority < attachment.PriorityFront || !m.Delivery.NotBefore.IsZero()
	})
}

// Pause holds one attachment until Resume; a delivery under way is stopped and nothing is lost or charged.
func (q *Queue) Pause(ctx context.Context, id attachment.ID, by, reason string) (changed bool, err error) {
	changed, err = q.decide(ctx, id, Change{
		Event: attachment.EventPaused, Reason: attachment.HoldPaused, By: by, Detail: reason,
		Edit: func(m *attachment.Manifest) { m.Paused = true },
	}, func(m *attachment.Manifest) bool { return !m.Paused })
	if changed {
		q.Interrupt(id, ErrPaused)
	}
	return changed, err
}

// ErrPaused is the cause with which a worker's context ends when its attachment is paused.
var ErrPaused = errors.New("paused by a person")

// Resume lifts Pause.
func (q *Queue) Resume(ctx context.Context, id attachment.ID, by, reason string) (changed bool, err error) {
	now := q.clock()
	return q.decide(ctx, id, Change{
		Event: attachment.EventResumed, By: by, Detail: reason,
		Edit: func(m *attachment.Manifest) {
			m.Paused = false
			clampWait(m, now)
		},
	}, func(m *attachment.Manifest) bool { return m.Paused })
}
