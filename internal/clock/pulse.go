package clock

import (
	"context"
	"sync/atomic"
	"time"
)

// Pulse is the sign that a loop turns. The loop beats whenever it gets somewhere, and rests while it waits for something
// that may never come. The zero Pulse rests; a nil one takes every call and says nothing.
type Pulse struct{ beat atomic.Pointer[time.Time] }

// Beat says that the loop is at work and gets on.
func (p *Pulse) Beat() {
	if p == nil {
		return
	}
	now := time.Now()
	p.beat.Store(&now)
}

// Rest says that the loop waits, as long as it takes.
func (p *Pulse) Rest() {
	if p != nil {
		p.beat.Store(nil)
	}
}

// Silence is how long ago the last beat was, without the time in which the machine was suspended; 0 while the loop rests.
func (p *Pulse) Silence() time.Duration {
	if p == nil {
		return 0
	}
	if last := p.beat.Load(); last != nil {
		return time.Since(*last)
	}
	return 0
}

type pulseKey struct{}

// WithPulse gives long work under the context a pulse to beat.
func WithPulse(ctx context.Context, p *Pulse) context.Context {
	return context.WithValue(ctx, pulseKey{}, p)
}

// Beat beats the context's pulse, if it has one.
func Beat(ctx context.Context) {
	if p, ok := ctx.Value(pulseKey{}).(*Pulse); ok {
		p.Beat()
	}
}
