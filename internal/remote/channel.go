package remote

import (
	"context"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// ChannelState is what is known about the way to the server. It is kept over restarts, so that a restart does not hammer.
// The zero value is a channel in order.
type ChannelState struct {
	// Failures counts the outages' attempts in a row, from which the wait was made.
	Failures int `json:"failures,omitempty"`
	// NotBefore is the earliest next attempt on the wall clock, Wait the delay it was made from: whichever of wall and
	// running time ends first ends the wait.
	NotBefore time.Time     `json:"not_before,omitzero"`
	Wait      time.Duration `json:"wait_ns,omitempty"`
	// Code is the reason of the last failure; empty while the channel is in order.
	Code   attachment.Code `json:"code,omitempty"`
	Class  Class           `json:"class,omitempty"`
	Detail string          `json:"detail,omitempty"`
	// Since is when the first failure in a row was seen.
	Since time.Time `json:"since,omitzero"`
	// Weak: the server's status answers, and the hold rests on the failures of some items alone. It never grows long, and
	// an item that was never tried may go ahead as a witness.
	Weak bool `json:"weak,omitempty"`
}

// Held reports whether the channel must not be used at the time now.
func (s ChannelState) Held(now time.Time) bool { return now.Before(s.NotBefore) }

// Verdict is what follows from a failure. With neither, the failure is nobody's: a hold, an end of the program, or a
// server that asks for patience with one item.
type Verdict struct {
	// ChargeItem: the failure is the item's; an attempt is charged to it, or it needs a person, by the error's class.
	ChargeItem bool
	// HoldChannel: everything waits as State says, and no item is charged.
	HoldChannel bool
}

// Channel tells failures of the way to the server from failures of one item, so that one bad item never stops another
// and a bad network never burns an item's attempts.
//
// Some failures speak for themselves: without a connection or with a refused token nothing can be sent, and a refused
// media type concerns one file. The others, marked Confirm by the table (a server error, a broken or stalled connection, a
// foreign answer), are the item's until the status endpoint fails too, or until a second item fails in such a way with no
// success between the two.
//
// It does no I/O of its own. Its methods may be called by several goroutines.
type Channel struct {
	schedule Schedule
	now      func() time.Time
	rnd      func() float64

	mu      sync.Mutex
	state   ChannelState
	suspect attachment.ID // the item whose failure was last found to be its own, since the last success
	several bool          // more than one item failed so since the last success
}

// NewChannel starts from a kept state. now is the wall clock and rnd returns numbers in [0, 1).
func NewChannel(kept ChannelState, s Schedule, now func() time.Time, rnd func() float64) *Channel {
	return &Channel{schedule: s, now: now, rnd: rnd, state: kept}
}

// State returns what to keep and to show.
func (c *Channel) State() ChannelState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Failure judges a failed delivery of an item. probe asks the status endpoint (Client.Probe); it is called at most once,
// only where the error leaves the question open, and not while the channel is held anyway.
//
// Failures that arrive while the channel is held belong to the outage that is counted already.
func (c *Channel) Failure(ctx context.Context, item attachment.ID, e *Error, probe func(context.Context) error) Verdict {
	switch {
	case e.Class == Cancelled, e.Class == Held, e.Class == Local:
		return Verdict{}
	case e.Confirm:
		return c.suspicion(ctx, item, e, probe)
	case e.Class == ChannelTransient, e.Class == ChannelOperator:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.hold(e, false)
	}
	return Verdict{ChargeItem: e.Charge}
}

func (c *Channel) suspicion(ctx context.Context, item attachment.ID, e *Error, probe func(context.Context) error) Verdict {
	if c.State().Held(c.now()) {
		return Verdict{HoldChannel: true}
	}
	found := probe(ctx)
	if ClassOf(found) == Cancelled || ctx.Err() != nil {
		return Verdict{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found != nil {
		return c.hold(worse(e, found), false)
	}
	c.several = c.several || c.suspect != "" && c.suspect != item
	c.suspect = item
	if c.several {
		return c.hold(e, true)
	}
	// Our own server that asks for patience, or has no room, says nothing about the item.
	return Verdict{ChargeItem: e.Charge || e.Kind == KindForeign}
}

// worse is the probe's error, which says what is the matter with the channel, with the longer of the two waits.
func worse(e *Error, found error) *Error {
	p := Fail(StepProbe, KindBroken, found)
	if judged, ok := asError(found); ok {
		*p = *judged
	}
	p.RetryAfter = max(p.RetryAfter, e.RetryAfter)
	return p
}

// hold begins or prolongs a wait.
func (c *Channel) hold(e *Error, weak bool) Verdict {
	now := c.now()
	if c.state.Held(now) {
		return Verdict{HoldChannel: true}
	}
	s := &c.state
	s.Failures++
	if s.Since.IsZero() {
		s.Since = now
	}
	s.Code, s.Class, s.Detail = forChannel(e.Reason), e.Class, e.Error()
	s.Weak = weak
	s.Wait = c.schedule.Delay(c.steps(e), e.RetryAfter, c.rnd)
	s.NotBefore = now.Add(s.Wait)
	return Verdict{HoldChannel: true}
}

// weakSteps is how far a weak hold goes on the schedule: a few bad items must not keep good ones for long.
const weakSteps = 2

// steps is how far on the schedule the wait is. What only a person can mend is probed slowly from the beginning.
func (c *Channel) steps(e *Error) int {
	if c.state.Weak {
		return min(c.state.Failures, weakSteps)
	}
	if e.Class == ChannelOperator {
		return max(c.state.Failures, 3)
	}
	return c.state.Failures
}

// Success records that the server moved an item forward: a step of a delivery was answered as it should be. It ends every
// wait and every suspicion.
func (c *Channel) Success() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.suspect, c.several = ChannelState{}, "", false
}

// Reset ends the wait early: the device came online, a person said retry, or the credential was replaced. The next attempt
// comes after a random part of spread, so that a fleet that came online together does not arrive together; spread 0 means
// at once. Reason and time of the failure stay until an attempt succeeds; the schedule begins anew.
func (c *Channel) Reset(spread time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspect, c.several = "", false
	s := &c.state
	s.Failures, s.Wait, s.NotBefore = 0, 0, time.Time{}
	if s.Code != "" && spread > 0 {
		s.Wait = time.Duration(c.rnd() * float64(spread))
		s.NotBefore = c.now().Add(s.Wait)
	}
}
