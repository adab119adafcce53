package queue

import (
	"context"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Limits of the stale-checkpoint interval: a live worker that shows no progress for that long loses its claim.
const (
	staleMin = 2 * time.Minute
	staleMax = 10 * time.Minute
)

// StaleAfter computes the stale-checkpoint interval for a payload of length bytes at a measured rate in bytes per
// second: the time that the whole payload should take, within 2 to 10 minutes. An unknown rate (0) gives the longest.
func StaleAfter(length int64, bytesPerSecond float64) time.Duration {
	seconds := float64(length) / bytesPerSecond
	if bytesPerSecond <= 0 || seconds > staleMax.Seconds() {
		return staleMax
	}
	return max(time.Duration(seconds*float64(time.Second)), staleMin)
}

// Claim is a worker's ownership of one attachment. It ends with the first of Interrupted, Failed, Registered,
// Sent, Accepted, RaiseAttention or Abandon.
type Claim struct {
	Manifest *attachment.Manifest
	// Confirmed is the recorded confirmed offset of the manifest's session, in bytes.
	Confirmed int64
	// Segments are the digests of the payload's segments.
	Segments []attachment.Digest

	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Context ends when the claim is taken away, or when the context that it was claimed under ends.
func (c *Claim) Context() context.Context { return c.ctx }

// claimRow is what the queue stores about a claim.
type claimRow struct {
	Worker string    `json:"worker"`
	Since  time.Time `json:"since"`
}

// ClaimDue gives a worker the next attachment that may be tried now. Without one the claim is nil, and next tells when
// the earliest wait ends (zero when nothing waits). The claim is durable.
func (q *Queue) ClaimDue(ctx context.Context, worker string) (claim *Claim, next time.Time, err error) {
	return q.ClaimWanted(ctx, worker, Want{})
}

// ClaimWanted is ClaimDue for a worker that prefers some attachments to others.
func (q *Queue) ClaimWanted(ctx context.Context, worker string, want Want) (claim *Claim, next time.Time, err error) {
	err = q.store.Update(ctx, func(tx *store.Tx) error {
		claim = nil
		var m *attachment.Manifest
		var err error
		m, next, err = firstDue(tx, q.clock(), want)
		if err != nil || m == nil {
			return err
		}
		claim = &Claim{Manifest: m}
		if claim.Confirmed, err = confirmed(tx, m); err != nil {
			return err
		}
		if claim.Segments, err = segmentsOf(tx, m.ID); err != nil {
			return err
		}
		tx.OnCommit(func() { q.enliven(ctx, claim) })
		return store.PutJSON(tx.Bucket(bClaims), idKey(m.ID), claimRow{Worker: worker, Since: q.clock()})
	})
	if err != nil || claim == nil {
		return nil, next, err
	}
	return claim, time.Time{}, nil
}

// enliven makes a claim one that Interrupt finds. It runs with the commit of the claim, so that no decision about the
// attachment which is made later can miss it.
func (q *Queue) enliven(ctx context.Context, c *Claim) {
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.live[c.Manifest.ID] = c
}

// Interrupt makes the worker that has a claim on the attachment stop, with cause as its context's cause. Without such a
// worker it does nothing. The worker ends its claim as always.
func (q *Queue) Interrupt(id attachment.ID, cause error) {
	q.mu.Lock()
	claim := q.live[id]
	q.mu.Unlock()
	if claim != nil {
		claim.cancel(cause)
	}
}

// InterruptAll makes every worker stop.
func (q *Queue) InterruptAll(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, claim := range q.live {
		claim.cancel(cause)
	}
}

// Abandon ends a claim without saying anything about the attachment.
func (q *Queue) Abandon(ctx context.Context, c *Claim) error {
	defer q.forget(c.Manifest.ID)
	return q.store.Update(ctx, func(tx *store.Tx) error { return tx.Bucket(bClaims).Delete(idKey(c.Manifest.ID)) })
}

func (q *Queue) forget(id attachment.ID) {
	q.mu.Lock()
	claim := q.live[id]
	delete(q.live, id)
	q.mu.Unlock()
	if claim != nil {
		claim.cancel(context.Canceled)
	}
}

// endClaim deletes the stored claim in a transaction that decides about the attachment.
func (q *Queue) endClaim(tx *store.Tx, id attachment.ID) error {
	tx.OnCommit(func() { q.forget(id) })
	return tx.Bucket(bClaims).Delete(idKey(id))
}

// dropClaims voids the claims of a former process: the store admits one process, so all of them are stale.
func (q *Queue) dropClaims(ctx context.Context) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		claims := tx.Bucket(bClaims)
		var keys [][]byte
		err := claims.Scan(nil, nil, func(key, _ []byte, _ error) error {
			keys = append(keys, append([]byte(nil), key...))
			return nil
		})
		for _, key := range keys {
			if derr := claims.Delete(key); derr != nil {
				return derr
			}
		}
		return err
	})
}
