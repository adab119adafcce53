package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// unrecorded is a delivery whose outcome the queue could not take yet: its claim stands until it does.
type unrecorded struct {
	claim *queue.Claim
	err   error
}

// conclude records how a delivery ended and with that ends the claim. When that cannot be recorded, on a full disk, it is
// kept, and the dispatcher tries again before it gives out more work.
func (d *dispatcher) conclude(ctx context.Context, c *queue.Claim, err error) {
	if err == nil {
		return // the receipt's record has ended the claim
	}
	if d.tryRecord(ctx, unrecorded{c, err}) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending = append(d.pending, unrecorded{c, err})
}

func (d *dispatcher) tryRecord(ctx context.Context, u unrecorded) bool {
	rerr := d.record(ctx, u.claim, u.err)
	d.noteRecording(ctx, rerr)
	if rerr != nil {
		d.trouble.Fail(ctx, d.log, "outcome", "the outcome of a delivery cannot be recorded yet",
			slog.String(logging.KeyAttachment, string(u.claim.Manifest.ID)), slog.Any(logging.KeyErr, errors.Join(rerr, u.err)))
		return false
	}
	d.trouble.Recovered(ctx, d.log, "outcome")
	return true
}

// noteRecording remembers whether the queue could record what a delivery needs, so that what waits for that says so.
func (d *dispatcher) noteRecording(ctx context.Context, err error) {
	code := attachment.Code("")
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return
	case noRoom(err):
		code = attachment.HoldDeviceFull
	default:
		code = attachment.NotTakenQueue
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unable = code
}

// cannotRecord is why nothing can be recorded, and so nothing be sent; empty when it can.
func (d *dispatcher) cannotRecord() attachment.Code {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unable
}

// noRoom reports whether this device has no room: its volume, its quota, or the queue's permitted size.
func noRoom(err error) bool { return durable.IsNoSpace(err) || errors.Is(err, store.ErrNoSpace) }

// settlePending records the outcomes that could not be recorded before. It reports whether none is left.
func (d *dispatcher) settlePending(ctx context.Context) bool {
	d.mu.Lock()
	pending := d.pending
	d.pending = nil
	d.mu.Unlock()
	for i, u := range pending {
		if !d.tryRecord(ctx, u) {
			d.mu.Lock()
			d.pending = append(pending[i:], d.pending...)
			d.mu.Unlock()
			return false
		}
	}
	return true
}

// unsettled reports whether the outcome of an attachment's last delivery could not be recorded yet.
func (d *dispatcher) unsettled(id attachment.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.pending, func(u unrecorded) bool { return u.claim.Manifest.ID == id })
}

// record turns the error of a delivery into what happened to the attachment: its own failure, the channel's, or nobody's.
func (d *dispatcher) record(ctx context.Context, c *queue.Claim, err error) error {
	id := c.Manifest.ID
	if errors.Is(context.Cause(c.Context()), errStale) {
		return d.queue.Postponed(ctx, id, attachment.HoldBackoff, errStale.Error(), localPause)
	}
	if errors.Is(context.Cause(c.Context()), queue.ErrBinding) {
		// It steps aside until the sidecar is offered again; binding lets it go on at once.
		return d.queue.Postponed(ctx, id, attachment.HoldSidecar, queue.ErrBinding.Error(), bindPause)
	}
	if errors.Is(context.Cause(c.Context()), errYield) {
		return d.queue.Yielded(ctx, id, errYield.Error())
	}
	if code, detail, mine := stopped(c, err); mine {
		return d.queue.Interrupted(ctx, id, code, detail)
	}
	var e *remote.Error
	switch {
	case errors.As(err, &e):
		return d.judge(ctx, id, e)
	case errors.Is(err, uplink.ErrPayloadMissing):
		return d.park(ctx, id, attachment.NeedsPayloadMissing, err)
	case errors.Is(err, uplink.ErrPayloadChanged):
		return d.park(ctx, id, attachment.NeedsPayloadChanged, err)
	}
	// The queue or the spool failed, not the network: try again later, and charge nobody.
	d.trouble.Fail(ctx, d.log, "local", "a delivery failed on this device", slog.String(logging.KeyAttachment, string(id)), slog.Any(logging.KeyErr, err))
	code := attachment.HoldBackoff
	if noRoom(err) {
		code = attachment.HoldDeviceFull
	}
	return d.queue.Postponed(ctx, id, code, err.Error(), localPause)
}

// localPause is how long an attachment waits after a failure of this device itself.
const localPause = 30 * time.Second

// bindPause is how long an attachment that was being sent steps aside for its sidecar: more than retryChanged.
const bindPause = 10 * time.Second

// stopped sorts out deliveries that somebody stopped: a hold, a person, the daemon itself.
func stopped(c *queue.Claim, err error) (code attachment.Code, detail string, mine bool) {
	var held *uplink.Held
	if errors.As(err, &held) {
		return held.Code, held.Detail, true
	}
	if c.Context().Err() == nil {
		return "", "", false
	}
	switch cause := context.Cause(c.Context()); {
	case errors.Is(cause, queue.ErrPaused):
		return attachment.HoldPaused, "", true
	case errors.Is(cause, errHeld):
		return attachment.HoldChannelPaused, "", true
	default:
		return "", cause.Error(), true
	}
}

func (d *dispatcher) park(ctx context.Context, id attachment.ID, code attachment.Code, err error) error {
	return d.queue.RaiseAttention(ctx, id, queue.Failure{Code: code, Message: attachment.Printable(err.Error())})
}

// judge asks the channel whose failure it was.
func (d *dispatcher) judge(ctx context.Context, id attachment.ID, e *remote.Error) error {
	failure := queue.Failure{Code: e.Reason, Message: e.Error(), Status: e.Status}
	if e.Kind == remote.KindPending {
		return d.queue.Postponed(ctx, id, attachment.HoldWaitingParent, e.Detail, d.schedule.Delay(1, e.RetryAfter, d.rnd))
	}
	verdict := d.channel.Failure(ctx, id, e, d.client.Probe)
	switch {
	case verdict.HoldChannel:
		d.avoid(id)
		d.keepChannel(ctx)
		return d.queue.Interrupted(ctx, id, d.channel.State().Code, failure.Message)
	case e.Class == remote.ItemPermanent:
		return d.queue.RaiseAttention(ctx, id, failure)
	case verdict.ChargeItem:
		return d.queue.Failed(ctx, id, failure, func(failures int) time.Duration {
			return d.schedule.Delay(failures, e.RetryAfter, d.rnd)
		})
	}
	return d.queue.Postponed(ctx, id, e.Reason, failure.Message, d.schedule.Delay(1, e.RetryAfter, d.rnd))
}
