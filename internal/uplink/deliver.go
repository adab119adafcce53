package uplink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Bounds of one delivery.
const (
	maxLosses = 2  // sessions given up
	maxDoubts = 2  // reservations in doubt of a session, without progress in between
	maxRounds = 16 // reservations in all
	// Where a session of which more is confirmed than largeOffset bytes seems gone, by an answer that does not name the
	// attachment, it is given up only after proofs of largeProofs deliveries, with their waits between them.
	largeOffset = 8 << 20
	largeProofs = 2
)

// delivery is one run of Deliver. Its fields follow what is durable: they change after the Recorder's answer.
type delivery struct {
	u       *Uplink
	m       *attachment.Manifest
	payload Payload
	gate    Gate
	record  Recorder

	session   attachment.Session
	confirmed int64
	mediaID   string
	verified  bool
	verdict   Verdict // of this run
	limits    limits  // of the session's appends

	losses int
	stuck  int // repetitions since the last progress
	doubts int // sessions that seemed gone since the last progress
}

// again asks for a new reservation: the session may be gone, or only have looked so.
type again struct{ cause *remote.Error }

func (a *again) Error() string { return a.cause.Error() }
func (a *again) Unwrap() error { return a.cause }

// lost says that the session's bytes cannot become this attachment.
type lost struct{ cause *remote.Error }

func (l *lost) Error() string { return l.cause.Error() }
func (l *lost) Unwrap() error { return l.cause }

// run repeats rounds until one settles the delivery or the bounds are reached.
func (d *delivery) run(ctx context.Context) error {
	if err := d.disown(ctx); err != nil {
		return err
	}
	for round := 1; ; round++ {
		err := d.round(ctx)
		if a, ok := errors.AsType[*again](err); ok {
			if d.doubts++; d.doubts > maxDoubts || round >= maxRounds {
				return a.cause
			}
			continue
		}
		l, ok := errors.AsType[*lost](err)
		if !ok {
			return err
		}
		if err := d.lose(ctx, l.cause); err != nil {
			return err
		}
		if d.losses > maxLosses || round >= maxRounds {
			return l.cause
		}
		if err := d.cancel(ctx); err != nil {
			return err
		}
	}
}

// disown gives up what another driver did before the configuration was changed. Its session may well answer, and mean something
// else: an upload that a device reserved is registered by nobody when tus goes on with it. Nor is what it verified this server's.
func (d *delivery) disown(ctx context.Context) error {
	before, now := d.m.Delivery.Driver, d.u.driver.Name()
	if before == "" || before == now || d.session.ID == "" && d.confirmed == 0 && !d.verified {
		return nil
	}
	detail := fmt.Sprintf("it was begun with the driver %s, and %s is configured now", before, now)
	if err := d.note("change of driver", d.record.Lost(context.WithoutCancel(ctx), attachment.HoldQueued, detail)); err != nil {
		return err
	}
	d.session, d.confirmed, d.mediaID, d.verified = attachment.Session{}, 0, "", false
	return nil
}

// round goes from reserve to register, and leaves out what is done.
func (d *delivery) round(ctx context.Context) error {
	if d.verified && d.doubts == 0 {
		return d.finish(ctx)
	}
	var res Reservation
	err := d.ask(ctx, func(ctx context.Context) (err error) {
		res, err = d.u.driver.Reserve(ctx, d.m, d.session)
		return err
	})
	switch {
	case err != nil:
		return d.reserveFailed(err)
	case res.Receipt != nil:
		return d.registeredBefore(ctx, res)
	case res.Verified != nil:
		d.mediaID = res.MediaID
		if err := d.compare(ctx, remote.StepReserve, *res.Verified); err != nil {
			return err
		}
		return d.register(ctx)
	}
	if err := d.open(ctx, res); err != nil {
		return err
	}
	if err := d.transfer(ctx); err != nil {
		return err
	}
	if err := d.verify(ctx); err != nil {
		return err
	}
	return d.register(ctx)
}

// finish registers what was verified, maybe by an earlier delivery. A receipt that the driver writes rests on what it found
// itself, so it looks again.
func (d *delivery) finish(ctx context.Context) error {
	if !d.u.driver.Capabilities().Registers && d.verdict == (Verdict{}) {
		if err := d.verify(ctx); err != nil {
			return err
		}
	}
	return d.register(ctx)
}

// reserveFailed judges a reservation that found no session. Where that is all that was asked, the session is given up once
// that is proven.
func (d *delivery) reserveFailed(err error) error {
	e, ok := errors.AsType[*remote.Error](err)
	if !ok || !e.Gone() || d.session.ID == "" {
		return err
	}
	if d.confirmed > largeOffset && d.m.Delivery.Failures < largeProofs {
		return e
	}
	if d.doubts < maxDoubts {
		return &again{e}
	}
	return &lost{e}
}

// open agrees with the server on session and offset and records them before the first byte.
func (d *delivery) open(ctx context.Context, res Reservation) error {
	same := res.Session.ID == d.session.ID && res.Session.Generation == d.session.Generation
	offset := res.Offset
	if offset < 0 || offset > d.m.Length {
		return d.contradiction(remote.StepReserve, "offset %d of %d bytes", offset, d.m.Length)
	}
	switch {
	case same && offset < d.confirmed:
		var err error
		if offset, err = d.backwards(ctx, res.Session); err != nil {
			return err
		}
	case d.verified || !same && d.confirmed > 0:
		cause := remote.Fail(remote.StepReserve, remote.KindMismatch, fmt.Errorf(
			"%w: the server wants the bytes in generation %d, they were sent in %d", ErrAnswer, res.Session.Generation, d.session.Generation))
		if err := d.lose(ctx, cause); err != nil {
			return err
		}
		if d.losses > maxLosses {
			return cause
		}
	}
	if err := d.note("session", d.record.SessionOpened(context.WithoutCancel(ctx), res.Session, res.MediaID, offset)); err != nil {
		return err
	}
	if offset > d.confirmed {
		d.stuck, d.doubts = 0, 0
	}
	d.session, d.mediaID, d.confirmed = res.Session, res.MediaID, offset
	d.limits = limits{min: res.MinAppend, max: res.MaxAppend, streams: res.Streams}
	return nil
}

// backwards asks again for an offset that was below the recorded one: confirmed bytes are given up only when the session
// itself says so.
func (d *delivery) backwards(ctx context.Context, s attachment.Session) (int64, error) {
	at, err := d.offset(ctx, s)
	switch {
	case err != nil:
		return 0, err
	case at < d.confirmed:
		return 0, &lost{remote.Fail(remote.StepOffset, remote.KindMismatch,
			fmt.Errorf("%w: the server confirmed %d bytes and now holds %d", ErrAnswer, d.confirmed, at))}
	}
	return at, nil
}

// offset asks the session for the truth.
func (d *delivery) offset(ctx context.Context, s attachment.Session) (at int64, err error) {
	err = d.ask(ctx, func(ctx context.Context) (err error) {
		at, err = d.u.driver.Offset(ctx, d.m, s)
		return err
	})
	if e, ok := errors.AsType[*remote.Error](err); ok && e.Gone() {
		return 0, &again{e}
	}
	if err == nil && (at < 0 || at > d.m.Length) {
		err = d.contradiction(remote.StepOffset, "offset %d of %d bytes", at, d.m.Length)
	}
	return at, err
}

// verify compares the server's verdict with the manifest. A server that holds every byte and has not finished, because it
// went down in between, is made to by an empty append.
func (d *delivery) verify(ctx context.Context) error {
	for pushed := false; ; pushed = true {
		verdict, err := d.askVerdict(ctx)
		if err == nil {
			return d.compare(ctx, remote.StepVerify, verdict)
		}
		e, ok := errors.AsType[*remote.Error](err)
		switch {
		case !ok:
			return err
		case e.Problem == wire.CodeDigestMismatch:
			return d.damaged(ctx, e)
		case e.Gone():
			return &again{e}
		case e.Problem != wire.CodeNotVerified || pushed:
			return e
		}
		if _, err := d.append(ctx, 0, 0); err != nil {
			if err := d.settle(ctx, 0, err); err != nil {
				return err
			}
		}
	}
}

func (d *delivery) askVerdict(ctx context.Context) (v Verdict, err error) {
	err = d.ask(ctx, func(ctx context.Context) (err error) {
		ctx = context.WithValue(ctx, progressKey{}, d.record.Moved)
		if c, ok := d.u.driver.(Comparer); ok {
			v, err = c.Compare(ctx, d.m, d.session, func() io.Reader { return newReading(ctx, d) })
			return err
		}
		v, err = d.u.driver.Verify(ctx, d.m, d.session)
		return err
	})
	if e, ok := errors.AsType[*remote.Error](err); ok && e.Kind == remote.KindUnread {
		err = d.payloadError(ctx, e.Err)
	}
	return v, err
}

type progressKey struct{}

// Progress is what a driver's Verify tells of n bytes that it reads back: a sign of life, as they may be many.
func Progress(ctx context.Context) func(n int64) {
	if moved, ok := ctx.Value(progressKey{}).(func(int64)); ok {
		return moved
	}
	return func(int64) {}
}

// compare accepts the server's verdict and records it, or finds out which side is damaged.
func (d *delivery) compare(ctx context.Context, step remote.Step, v Verdict) error {
	digest := v.SHA256 == d.m.SHA256.String() || v.SHA256 == "" && !d.u.driver.Capabilities().Registers
	if v.Length != d.m.Length || !digest {
		return d.damaged(ctx, d.contradiction(step, "the server holds %d bytes with digest %.64q, want %d with %s",
			v.Length, v.SHA256, d.m.Length, d.m.SHA256))
	}
	if err := d.note("verification", d.record.Verified(context.WithoutCancel(ctx), d.mediaID)); err != nil {
		return err
	}
	d.verified, d.verdict = true, v
	return nil
}

// damaged reads the whole payload: either it is no longer what was captured, or the server's bytes are void.
func (d *delivery) damaged(ctx context.Context, cause *remote.Error) error {
	if err := d.check(ctx, 0, d.m.Length); err != nil {
		return err
	}
	return &lost{cause}
}

// register asks for the receipt. A server that does not know the verified bytes any more is asked what it does hold, by
// reserving: only where it wants them again are they lost.
func (d *delivery) register(ctx context.Context) error {
	var got receipt.Receipt
	err := d.ask(ctx, func(ctx context.Context) (err error) {
		got, err = d.u.driver.Register(ctx, d.m, d.session, d.verdict)
		return err
	})
	if e, ok := errors.AsType[*remote.Error](err); ok {
		switch {
		case e.Problem == wire.CodeDigestMismatch:
			return d.damaged(ctx, e)
		case e.Gone(), e.Problem == wire.CodeNotVerified:
			return &again{e}
		}
	}
	if err != nil {
		return err
	}
	return d.accept(ctx, got)
}

// registeredBefore records a receipt that the server had already given, to an answer that never arrived.
func (d *delivery) registeredBefore(ctx context.Context, res Reservation) error {
	if err := d.checkReceipt(*res.Receipt); err != nil {
		return err
	}
	if err := d.note("verification", d.record.Verified(context.WithoutCancel(ctx), res.Receipt.MediaID)); err != nil {
		return err
	}
	return d.accept(ctx, *res.Receipt)
}

func (d *delivery) accept(ctx context.Context, got receipt.Receipt) error {
	if err := d.checkReceipt(got); err != nil {
		return err
	}
	return d.note("receipt", d.record.Registered(context.WithoutCancel(ctx), got))
}

func (d *delivery) checkReceipt(got receipt.Receipt) error {
	err := receipt.Check(got, receipt.Facts{
		AttachmentID: string(d.m.ID), Length: d.m.Length, SHA256: d.m.SHA256.String(), Parent: ParentOf(d.m),
	})
	if err != nil {
		return remote.Fail(remote.StepRegister, remote.KindMismatch, err)
	}
	return nil
}

// lose records, loudly, that confirmed bytes are void.
func (d *delivery) lose(ctx context.Context, cause *remote.Error) error {
	d.losses++
	d.u.log.LogAttrs(ctx, slog.LevelWarn, "server lost confirmed bytes; the file is sent from its beginning",
		slog.String(logging.KeyAttachment, string(d.m.ID)), slog.String(logging.KeySession, d.session.ID),
		slog.Int64(logging.KeyOffset, d.confirmed), slog.Any(logging.KeyErr, cause))
	if err := d.note("loss", d.record.Lost(context.WithoutCancel(ctx), cause.Reason, cause.Error())); err != nil {
		return err
	}
	d.confirmed, d.verified, d.verdict = 0, false, Verdict{}
	return nil
}

// cancel lets the server forget a void session. A server that refuses has voided it itself, or goes on with it; the next
// reservation tells.
func (d *delivery) cancel(ctx context.Context) error {
	s := d.session
	if d.session = (attachment.Session{}); s.ID == "" {
		return nil
	}
	err := d.ask(ctx, func(ctx context.Context) error { return d.u.driver.Cancel(ctx, s) })
	if e, ok := errors.AsType[*remote.Error](err); ok && e.Kind == remote.KindProblem {
		return nil
	}
	return err
}

func (d *delivery) contradiction(step remote.Step, format string, args ...any) *remote.Error {
	return remote.Fail(step, remote.KindMismatch, fmt.Errorf("%w: "+format, append([]any{ErrAnswer}, args...)...))
}

// note turns the Recorder's error into Deliver's.
func (d *delivery) note(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %s of %s: %w", ErrRecord, what, d.m.ID, err)
	}
	return nil
}
