package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// work delivers one claimed attachment as far as it goes now and records the outcome.
func (d *dispatcher) work(ctx context.Context, c *queue.Claim, name string) {
	b := &beat{id: c.Manifest.ID, limit: queue.StaleAfter(c.Manifest.Length, d.measured())}
	b.now()
	d.mu.Lock()
	d.beats[name] = b
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.beats, name)
		d.mu.Unlock()
	}()
	err := d.deliver(c, b)
	// What happened is recorded even when the daemon is stopping: that is what the drain is for.
	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	d.conclude(record, c, err)
}

func (d *dispatcher) deliver(c *queue.Claim, b *beat) error {
	m := c.Manifest
	want := attachment.Fingerprint{Length: m.Length, SHA256: m.SHA256, Segments: c.Segments}
	if len(want.Segments) == 0 && m.Length > 0 {
		want.Segments = d.travellingSegments(m.ID)
	}
	var source uplink.Payload
	p, err := d.spool.OpenPayload(m.ID, want)
	switch {
	case err == nil:
		source = payload{p}
	case m.Delivery.Verified:
		// The server holds and checked every byte: what is left to do needs none of ours.
		source = noPayload{payloadError(err)}
	default:
		return payloadError(err)
	}
	r := &recorder{d: d, m: m, beat: b}
	started := time.Now()
	err = d.uplink.Deliver(c.Context(), m, c.Confirmed, source, gate{d, c}, r)
	d.measure(r.moved, time.Since(started))
	if p != nil {
		err = errors.Join(err, p.Close())
	}
	return err
}

// travellingSegments reads the segment digests from the manifest beside the payload, for when the queue's own are
// damaged. Without them the payload is refused when it is opened.
func (d *dispatcher) travellingSegments(id attachment.ID) []attachment.Digest {
	t, err := d.spool.ReadManifest(spool.Payloads, id)
	if err != nil {
		d.log.Warn("segment digests cannot be read", slog.String(logging.KeyAttachment, string(id)), slog.Any(logging.KeyErr, err))
		return nil
	}
	return t.Segments
}

// measuredBytes is how many bytes a transfer must have moved to say something about the link.
const measuredBytes = 256 << 10

func (d *dispatcher) measure(bytes int64, took time.Duration) {
	if bytes < measuredBytes || took <= 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rate = float64(bytes) / took.Seconds()
}

func (d *dispatcher) measured() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rate
}

// payload adapts the spool's errors to those that the uplink knows.
type payload struct{ *spool.Payload }

// Check holds the bytes that are about to be sent against their recorded digests.
func (p payload) Check(ctx context.Context, off, n int64) error {
	return payloadError(p.Payload.Check(ctx, off, n))
}

// noPayload stands for a payload that cannot be opened.
type noPayload struct{ err error }

// Check returns why there are no bytes.
func (p noPayload) Check(context.Context, int64, int64) error { return p.err }

// ReadAt returns why there are no bytes.
func (p noPayload) ReadAt([]byte, int64) (int, error) { return 0, p.err }

func payloadError(err error) error {
	switch {
	case errors.Is(err, spool.ErrChanged):
		return fmt.Errorf("%w: %w", uplink.ErrPayloadChanged, err)
	case errors.Is(err, spool.ErrMissing):
		return fmt.Errorf("%w: %w", uplink.ErrPayloadMissing, err)
	}
	return err
}

// gate is asked before every chunk and at least once a second.
type gate struct {
	d *dispatcher
	c *queue.Claim
}

// MaySend returns a *uplink.Held when a person paused the attachment or all sending, or no window is open.
func (g gate) MaySend(context.Context) error {
	if h := g.d.barred(time.Now(), g.c.Manifest.Priority >= attachment.PriorityFront); h != nil {
		return &uplink.Held{Code: h.Code, Detail: h.Detail}
	}
	if errors.Is(context.Cause(g.c.Context()), queue.ErrPaused) {
		return &uplink.Held{Code: attachment.HoldPaused}
	}
	return nil
}

// recorder makes the steps of one delivery durable in the queue.
type recorder struct {
	d     *dispatcher
	m     *attachment.Manifest
	beat  *beat
	moved int64
}

// SessionOpened makes the session durable before its first byte is sent.
func (r *recorder) SessionOpened(ctx context.Context, s attachment.Session, mediaID string, offset int64) error {
	r.beat.now()
	// That the server answers a small request says nothing about bytes: only progress counts as success.
	return r.d.queue.SessionOpened(ctx, r.m.ID, s, r.d.uplink.DriverName(), mediaID, offset)
}

// Committed makes a confirmed offset durable before more is sent.
func (r *recorder) Committed(ctx context.Context, s attachment.Session, offset int64) error {
	r.beat.now()
	if err := r.d.queue.CommitOffset(ctx, r.m.ID, s.ID, offset); err != nil {
		return err
	}
	r.d.success(ctx)
	if offset < r.m.Length && r.d.traffic.yields(r.m.ID) {
		r.d.queue.Interrupt(r.m.ID, errYield)
	}
	return nil
}

// Lost records that nothing counts any more of what was confirmed: mostly the server no longer has it.
func (r *recorder) Lost(ctx context.Context, reason attachment.Code, detail string) error {
	r.beat.now()
	r.d.log.Error("what was confirmed is void; sending begins anew", slog.String(logging.KeyAttachment, string(r.m.ID)),
		slog.String(logging.KeyReason, string(reason)), slog.String("detail", detail))
	return r.d.queue.Lost(ctx, r.m.ID, reason, detail)
}

// Verified records that the server holds and checked every byte.
func (r *recorder) Verified(ctx context.Context, mediaID string) error {
	r.beat.now()
	if err := r.d.queue.Verified(ctx, r.m.ID, mediaID); err != nil {
		return err
	}
	r.d.success(ctx)
	return nil
}

// Registered keeps the receipt.
func (r *recorder) Registered(ctx context.Context, rec receipt.Receipt) error {
	r.beat.now()
	if err := r.d.keepReceipt(ctx, rec); err != nil {
		return err
	}
	r.d.success(ctx)
	return nil
}

// Moved is a sign of life.
func (r *recorder) Moved(n int64) {
	r.moved += n
	r.beat.now()
}
