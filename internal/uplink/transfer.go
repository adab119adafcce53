package uplink

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// How long a delivery waits for another request to let go of its session, and how often it asks the gate meanwhile.
const (
	minBusyWait = time.Second
	maxBusyWait = 10 * time.Second
	gateEvery   = 800 * time.Millisecond
)

// transfer sends chunk after chunk until the server confirmed every byte. Each confirmed offset is recorded before the next
// chunk leaves.
func (d *delivery) transfer(ctx context.Context) error {
	for d.confirmed < d.m.Length {
		n := d.u.pace.next(d.m.Length-d.confirmed, d.maxAppend)
		if err := d.check(ctx, d.confirmed, n); err != nil {
			return err
		}
		began := time.Now()
		at, err := d.append(ctx, n)
		took := time.Since(began)
		if err == nil && (at <= d.confirmed || at > d.confirmed+n) {
			err = d.contradiction(remote.StepAppend, "offset %d after %d bytes at %d", at, n, d.confirmed)
		}
		if err == nil {
			d.u.pace.sent(n, took)
			err = d.commit(ctx, at)
		} else {
			err = d.settle(ctx, n, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// append sends n bytes from the confirmed offset and returns the offset in the answer.
func (d *delivery) append(ctx context.Context, n int64) (at int64, err error) {
	from := d.confirmed
	body := func() io.Reader { return io.NewSectionReader(d.payload, from, n) }
	err = d.ask(ctx, func(ctx context.Context) (err error) {
		at, err = d.u.driver.Append(ctx, d.session, from, body, n, d.record.Moved)
		return err
	})
	if e, ok := errors.AsType[*remote.Error](err); ok && e.Kind == remote.KindUnread {
		err = d.payloadError(ctx, e.Err)
	}
	return at, err
}

// settle deals with a failed append of n bytes: nil means that sending goes on from what is now confirmed.
func (d *delivery) settle(ctx context.Context, n int64, err error) error {
	e, ok := errors.AsType[*remote.Error](err)
	switch {
	case !ok:
		return err
	case e.Problem == wire.CodeDigestMismatch:
		return d.damaged(ctx, e)
	case e.Shrink && d.u.pace.refused(n):
		return nil
	case e.Shrink:
		return e.Smallest()
	case d.stuck >= e.Repeats:
		return e
	}
	d.stuck++
	if e.Status == 0 {
		d.u.pace.slowed()
	}
	if err := d.letGo(ctx, e); err != nil {
		return err
	}
	return d.resync(ctx)
}

// resync asks the session for the truth, records it and goes on from there.
func (d *delivery) resync(ctx context.Context) error {
	at, err := d.offset(ctx, d.session)
	for {
		e, ok := errors.AsType[*remote.Error](err)
		if !ok || !e.Busy() || d.stuck >= e.Repeats {
			break
		}
		d.stuck++
		if err := d.letGo(ctx, e); err != nil {
			return err
		}
		at, err = d.offset(ctx, d.session)
	}
	if err == nil && at < d.confirmed {
		at, err = d.backwards(ctx, d.session)
	}
	if err != nil || at == d.confirmed {
		return err
	}
	return d.commit(ctx, at)
}

// letGo waits a little where another request holds the session: mostly one of our own that the server still believes in.
func (d *delivery) letGo(ctx context.Context, e *remote.Error) error {
	if !e.Busy() {
		return nil
	}
	timer := time.NewTimer(min(max(e.RetryAfter, minBusyWait), maxBusyWait))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// commit records a larger confirmed offset.
func (d *delivery) commit(ctx context.Context, at int64) error {
	if err := d.note("offset", d.record.Committed(context.WithoutCancel(ctx), d.session, at)); err != nil {
		return err
	}
	d.confirmed, d.stuck, d.doubts = at, 0, 0
	return nil
}

// check compares bytes with their recorded digests.
func (d *delivery) check(ctx context.Context, off, n int64) error {
	if n == 0 {
		return nil
	}
	if err := d.payload.Check(ctx, off, n); err != nil {
		return d.payloadError(ctx, err)
	}
	return nil
}

func (d *delivery) payloadError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrPayloadChanged):
		return remote.Fail(remote.StepAppend, remote.KindChanged, err)
	case errors.Is(err, ErrPayloadMissing):
		return remote.Fail(remote.StepAppend, remote.KindMissing, err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return remote.Fail(remote.StepAppend, remote.KindUnread, err)
}

// ask makes one request under the gate: asked before, and asked again while it lasts. A gate that closes ends the request;
// an answer that arrived nevertheless counts.
func (d *delivery) ask(ctx context.Context, request func(context.Context) error) error {
	if err := d.gate.MaySend(ctx); err != nil {
		return err
	}
	asking, end := context.WithCancelCause(ctx)
	closed := make(chan error, 1)
	go func() {
		tick := time.NewTicker(gateEvery)
		defer tick.Stop()
		for {
			select {
			case <-asking.Done():
				closed <- nil
				return
			case <-tick.C:
			}
			if err := d.gate.MaySend(asking); err != nil && asking.Err() == nil {
				end(err)
				closed <- err
				return
			}
		}
	}()
	err := request(asking)
	end(nil)
	hold := <-closed
	switch {
	case err == nil:
		return nil
	case hold != nil:
		return hold
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}
