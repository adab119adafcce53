package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Failure is the last failure of an attachment in words. It lives apart from the manifest, so that a passing network
// message cannot replace durable state.
type Failure struct {
	Code    attachment.Code `json:"code"`
	Message string          `json:"message"`
	Status  int             `json:"status,omitempty"`
	At      time.Time       `json:"at"`
	// Offset is the confirmed offset at that time: whether anything moved since tells if failures come in a row.
	Offset int64 `json:"offset,omitempty"`
}

func (q *Queue) update(ctx context.Context, id attachment.ID, c Change, also func(*store.Tx, *attachment.Manifest) error) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		m, err := q.apply(tx, id, c)
		if err != nil || also == nil {
			return err
		}
		return also(tx, m)
	})
}

// SessionOpened records the server's session and how far it is, before the first byte is sent. A delivery that begins
// counts as an attempt.
func (q *Queue) SessionOpened(ctx context.Context, id attachment.ID, s attachment.Session, driver, mediaID string, offset int64) error {
	return q.update(ctx, id, Change{
		Event: attachment.EventSessionOpened,
		Edit: func(m *attachment.Manifest) {
			countAttempt(m)
			m.Delivery.Driver, m.Delivery.MediaID, m.Delivery.Session = driver, mediaID, s
		},
	}, func(tx *store.Tx, _ *attachment.Manifest) error { return putOffset(tx, id, s.ID, offset) })
}

// countAttempt counts a delivery once: when its session opens, or when it ends before that.
func countAttempt(m *attachment.Manifest) {
	if m.State == attachment.Ready {
		m.Delivery.Attempts++
	}
}

// Lost records that the server no longer has what it confirmed: session, offset and verification are void.
func (q *Queue) Lost(ctx context.Context, id attachment.ID, code attachment.Code, detail string) error {
	return q.update(ctx, id, Change{
		Event: attachment.EventLost, Reason: code, Detail: detail,
		Edit: func(m *attachment.Manifest) {
			m.Delivery.Session.ID, m.Delivery.Session.URL, m.Delivery.Verified = "", "", false
		},
	}, func(tx *store.Tx, _ *attachment.Manifest) error { return tx.Bucket(bOffsets).Delete(idKey(id)) })
}

// Verified records that the server's own length and digest equal ours.
func (q *Queue) Verified(ctx context.Context, id attachment.ID, mediaID string) error {
	return q.update(ctx, id, Change{
		Event: attachment.EventVerified,
		Edit: func(m *attachment.Manifest) {
			m.Delivery.Verified, m.Delivery.MediaID, m.Delivery.Failures = true, mediaID, 0
			m.Delivery.ParentFixed = true
		},
	}, nil)
}

// Registered records a receipt that was checked and is durable as a file already, and ends the claim. From here on the
// attachment is delivered. Errors wrap receipt.ErrMismatch for a receipt of a grade that is not delivery.
func (q *Queue) Registered(ctx context.Context, r receipt.Receipt) error {
	if !r.Grade.Delivered() {
		return fmt.Errorf("register %s: grade %s is not delivery: %w", r.AttachmentID, r.Grade, receipt.ErrMismatch)
	}
	return q.keepReceipt(ctx, r, Change{Event: attachment.EventRegistered})
}

// Sent is Registered for a receipt of a grade that is not delivery: the attachment keeps its bytes and is not tried again
// until a person says so. Errors wrap receipt.ErrMismatch for a receipt that is delivery.
func (q *Queue) Sent(ctx context.Context, r receipt.Receipt) error {
	if r.Grade.Delivered() {
		return fmt.Errorf("record %s as sent: grade %s is delivery: %w", r.AttachmentID, r.Grade, receipt.ErrMismatch)
	}
	return q.keepReceipt(ctx, r, Change{Event: attachment.EventSent, Reason: attachment.HoldGrade, Detail: string(r.Grade)})
}

// Accepted is Registered for a receipt of a grade that is delivery only because a person has set so; by names where. Errors
// wrap receipt.ErrMismatch for a grade that nobody may accept.
func (q *Queue) Accepted(ctx context.Context, r receipt.Receipt, by string) error {
	if !r.Grade.Acceptable() {
		return fmt.Errorf("accept %s: grade %s cannot be: %w", r.AttachmentID, r.Grade, receipt.ErrMismatch)
	}
	return q.keepReceipt(ctx, r, Change{Event: attachment.EventAccepted, By: by, Detail: string(r.Grade)})
}

func (q *Queue) keepReceipt(ctx context.Context, r receipt.Receipt, c Change) error {
	id := attachment.ID(r.AttachmentID)
	return q.update(ctx, id, Change{
		Event: c.Event, Reason: c.Reason, Detail: c.Detail, By: c.By,
		Edit: func(m *attachment.Manifest) {
			m.Delivery.Grade, m.Delivery.RegisteredAt, m.Delivery.MediaID = string(r.Grade), r.RegisteredAt.UTC(), r.MediaID
			m.Delivery.NotBefore, m.Delivery.Wait, m.Delivery.Failures = time.Time{}, 0, 0
			m.Delivery.ErrorCode = ""
			if r.Parent.ServerID != "" {
				m.Parent.ServerID = r.Parent.ServerID
			}
		},
	}, func(tx *store.Tx, _ *attachment.Manifest) error {
		if err := store.PutJSON(tx.Bucket(bReceipts), idKey(id), r); err != nil {
			return err
		}
		if err := tx.Bucket(bErrors).Delete(idKey(id)); err != nil {
			return err
		}
		if c.Event != attachment.EventSent {
			if err := store.PutJSON(tx.Bucket(bChannel), []byte(keyLastDelivery), q.clock()); err != nil {
				return err
			}
		}
		return q.endClaim(tx, id)
	})
}

// Interrupted ends a claim that stopped through no fault of the attachment; nothing is charged to it.
func (q *Queue) Interrupted(ctx context.Context, id attachment.ID, code attachment.Code, detail string) error {
	return q.update(ctx, id, Change{Event: attachment.EventInterrupted, Reason: code, Detail: detail},
		func(tx *store.Tx, _ *attachment.Manifest) error { return q.endClaim(tx, id) })
}

// Yielded ends a claim whose worker stepped aside for a more urgent attachment, after some of this one was confirmed. It goes on
// when it is its turn, and that is the same attempt.
func (q *Queue) Yielded(ctx context.Context, id attachment.ID, detail string) error {
	return q.update(ctx, id, Change{
		Event: attachment.EventInterrupted, Reason: attachment.HoldQueued, Detail: detail,
		Edit: func(m *attachment.Manifest) { m.Delivery.Attempts = max(0, m.Delivery.Attempts-1) },
	}, func(tx *store.Tx, _ *attachment.Manifest) error { return q.endClaim(tx, id) })
}

// Postponed is Interrupted with a time before which the attachment is not tried again: it waits for something, and
// still nothing is charged.
func (q *Queue) Postponed(ctx context.Context, id attachment.ID, code attachment.Code, detail string, wait time.Duration) error {
	until := q.clock().Add(wait)
	return q.update(ctx, id, Change{
		Event: attachment.EventInterrupted, Reason: code, Detail: detail,
		Edit: func(m *attachment.Manifest) {
			m.Delivery.NotBefore, m.Delivery.Wait, m.Delivery.ErrorCode = until, wait, code
		},
	}, func(tx *store.Tx, _ *attachment.Manifest) error { return q.endClaim(tx, id) })
}

// Failed charges a failure to the attachment and ends the claim. delay computes the wait before the next attempt from
// the number of failures in a row; it is called once. Bytes that the server confirmed since the last failure start the
// count anew: a long upload over many short connections is no failing one.
func (q *Queue) Failed(ctx context.Context, id attachment.ID, f Failure, delay func(failures int) time.Duration) error {
	f.At = q.clock()
	var wait time.Duration
	return q.store.Update(ctx, func(tx *store.Tx) error {
		moved, err := movedSince(tx, id, &f)
		if err != nil {
			return err
		}
		_, err = q.apply(tx, id, Change{
			Event: attachment.EventFailed, Reason: f.Code, Detail: f.Message,
			Edit: func(m *attachment.Manifest) {
				countAttempt(m)
				if moved {
					m.Delivery.Failures = 0
				}
				m.Delivery.Failures++
				if wait == 0 {
					wait = max(delay(m.Delivery.Failures), time.Millisecond)
				}
				m.Delivery.NotBefore, m.Delivery.Wait, m.Delivery.ErrorCode = f.At.Add(wait), wait, f.Code
			},
		})
		if err != nil {
			return err
		}
		if err := store.PutJSON(tx.Bucket(bErrors), idKey(id), f); err != nil {
			return err
		}
		return q.endClaim(tx, id)
	})
}

// movedSince notes the confirmed offset in f and reports whether it grew since the failure before.
func movedSince(tx *store.Tx, id attachment.ID, f *Failure) (bool, error) {
	m, err := load(tx, id)
	if err != nil {
		return false, err
	}
	if f.Offset, err = confirmed(tx, m); err != nil {
		return false, err
	}
	last, found, err := store.GetJSON[Failure](tx.Bucket(bErrors), idKey(id))
	if isBadValue(err) {
		return false, nil
	}
	return found && f.Offset > last.Offset, err
}

// RaiseAttention parks an attachment until a person has decided; its bytes stay. It ends the claim.
func (q *Queue) RaiseAttention(ctx context.Context, id attachment.ID, f Failure) error {
	f.At = q.clock()
	return q.update(ctx, id, Change{
		Event: attachment.EventAttention, Reason: f.Code, Detail: f.Message,
		Edit: func(m *attachment.Manifest) {
			countAttempt(m)
			m.Delivery.ErrorCode = f.Code
		},
	}, func(tx *store.Tx, _ *attachment.Manifest) error {
		if err := store.PutJSON(tx.Bucket(bErrors), idKey(id), f); err != nil {
			return err
		}
		return q.endClaim(tx, id)
	})
}

// SourceReleased records that this device removed the source after custody. What stands there later is a new capture.
func (q *Queue) SourceReleased(ctx context.Context, id attachment.ID) error {
	return q.sourceGone(ctx, id, "", true)
}

// SourceVanished records that the source is gone and that somebody else removed it. It stays in the ledger, so that the
// same file is recognized should it come back, as one on a card does.
func (q *Queue) SourceVanished(ctx context.Context, id attachment.ID) error {
	return q.sourceGone(ctx, id, "somebody else removed it", false)
}

func (q *Queue) sourceGone(ctx context.Context, id attachment.ID, detail string, released bool) error {
	return q.update(ctx, id, Change{
		Event: attachment.EventSourceGone, Detail: detail,
		Edit: func(m *attachment.Manifest) {
			m.Source.ReleasePending, m.Source.Kept, m.Source.Released = false, "", released
		},
	}, func(tx *store.Tx, m *attachment.Manifest) error {
		if !released {
			return nil
		}
		return dropLedger(tx, m.Source.Watch, m.Source.RelPath.Exact(), m.ID)
	})
}

// SourceKept records that the source stays where it is, and why.
func (q *Queue) SourceKept(ctx context.Context, id attachment.ID, why string) error {
	return q.update(ctx, id, Change{
		Event: attachment.EventSourceKept, Detail: why,
		Edit: func(m *attachment.Manifest) { m.Source.ReleasePending, m.Source.Kept = false, why },
	}, nil)
}
