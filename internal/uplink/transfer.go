package uplink

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"
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
		size, window := d.size()
		if err := d.check(ctx, d.confirmed, min(size, d.u.pace.top())); err != nil {
			return err
		}
		from, began := d.confirmed, time.Now()
		at, err := d.append(ctx, size, window)
		took := time.Since(began)
		if err == nil && (at <= from || at < d.confirmed || at > from+size) {
			err = d.contradiction(remote.StepAppend, "offset %d after %d bytes at %d", at, size, from)
		}
		switch {
		case err == nil && at == d.confirmed:
		case err == nil:
			d.u.pace.sent(size, took)
			err = d.commit(ctx, at)
		default:
			err = d.settle(ctx, size, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// size is that of the next append, and how many of its bytes may go beyond what is confirmed while it lasts; 0: all.
func (d *delivery) size() (n, window int64) {
	left := d.m.Length - d.confirmed
	if d.limits.streams && d.u.listening.pays() {
		n = left
		if d.limits.max > 0 {
			n = min(n, d.limits.max)
		}
		return n, d.u.pace.top()
	}
	return min(max(d.u.pace.next(left, d.limits.max), d.limits.min), left), 0
}

// append sends n bytes from the confirmed offset and returns the offset in the answer. With a window it records what is
// confirmed meanwhile, however it ends.
func (d *delivery) append(ctx context.Context, n, window int64) (at int64, err error) {
	a := Append{Manifest: d.m, Session: d.session, Offset: d.confirmed, Length: n, Moved: d.record.Moved}
	var told *told
	if window > 0 {
		told = newTold(d.confirmed)
		a.Confirmed = told.hear
	}
	var checked atomic.Int64 // by transfer; good for the first time that they are sent
	checked.Store(min(n, d.u.pace.top()))
	err = d.ask(ctx, func(ctx context.Context) (err error) {
		a.Body = func() io.Reader { return newOutgoing(ctx, d, a.Offset, n, window, told, &checked) }
		at, err = d.u.driver.Append(ctx, a)
		return err
	})
	if told != nil {
		offset, heard := told.last()
		if heard || errors.Is(err, errUnheard) {
			d.u.listened(ctx, d.m.ID, heard)
		}
		if err != nil && offset > d.confirmed {
			err = cmp.Or(d.commit(ctx, offset), err)
		}
	}
	e, ok := errors.AsType[*remote.Error](err)
	switch {
	case !ok || e.Kind != remote.KindUnread || errors.Is(err, errUnheard):
		return at, err
	case errors.Is(err, ErrRecord):
		return at, e.Err
	}
	return at, d.payloadError(ctx, e.Err)
}

// settle deals with a failed append of n bytes: nil means that sending goes on from what is now confirmed.
func (d *delivery) settle(ctx context.Context, n int64, err error) error {
	e, ok := errors.AsType[*remote.Error](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, errUnheard):
		return d.resync(ctx)
	case e.Problem == wire.CodeDigestMismatch:
		return d.damaged(ctx, e)
	case e.Shrink && d.limits.streams && n > d.u.pace.top():
		d.limits.streams = false
		return nil
	case e.Shrink && n > d.limits.min && d.u.pace.refused(n):
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
