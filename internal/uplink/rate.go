package uplink

import (
	"context"
	"time"
)

const (
	// rateGrants is how many grants a second of the limited rate is divided into: they are short enough for the gate and
	// for the idle timeouts of a server, however many deliveries share the rate.
	rateGrants = 50
	// rateCredit is how much unused time may be made good, so that timers which fire late cost no throughput.
	rateCredit = 100 * time.Millisecond
)

// Limiter divides one rate among all deliveries, in the order in which they ask. The nil Limiter does not limit. It counts
// payload bytes: what HTTP, TLS and TCP add comes on top.
type Limiter struct {
	rate int64         // bytes per second
	turn chan struct{} // held by who waits for the next grant
	free time.Time     // when the next grant may be made; guarded by turn
}

// NewLimiter limits to a rate above zero; otherwise it returns nil, which does not limit.
func NewLimiter(bytesPerSecond int64) *Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &Limiter{rate: bytesPerSecond, turn: make(chan struct{}, 1)}
}

// Take waits for its turn and grants up to want bytes: at least one, unless none is wanted, and no more than a fiftieth of
// a second's. Errors: the cause of the ended context, and then nothing is granted.
func (l *Limiter) Take(ctx context.Context, want int) (n int, err error) {
	if l == nil || want <= 0 {
		return max(want, 0), nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if wait := time.Until(l.free); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	granted := min(int64(want), max(l.rate/rateGrants, 1))
	if earliest := time.Now().Add(-rateCredit); l.free.Before(earliest) {
		l.free = earliest
	}
	l.free = l.free.Add(time.Duration(float64(granted) / float64(l.rate) * float64(time.Second)))
	return int(granted), nil
}
