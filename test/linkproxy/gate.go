package linkproxy

import (
	"context"
	"time"
)

const (
	// A limited direction passes at most a twentieth of a second's bytes at once, so that a small
	// rate gives a trickle and not bursts, and a new rate is felt soon.
	quantum = time.Second / 20
	// drainTimeout bounds the wait for the server's kernel to acknowledge the last bytes of CutAfter.
	drainTimeout  = 5 * time.Second
	drainInterval = time.Millisecond
)

// direction is the accounting of one direction over all connections.
type direction struct {
	bytes int64
	free  time.Time // when the bytes that already passed are paid for at the current rate
}

// allowance is what CutAfter still lets through.
type allowance struct {
	left    int64
	pending int // writes that were admitted and have not been settled
}

// take says how many of n bytes may pass at now, or how long to wait before asking again. At most
// one quantum of unused time is carried over, which makes up for late timers.
func (d *direction) take(now time.Time, rate int64, n int) (int, time.Duration) {
	if rate == 0 || n == 0 {
		return n, 0
	}
	if wait := d.free.Sub(now); wait > 0 {
		return 0, wait
	}
	n = int(min(int64(n), max(1, rate/int64(time.Second/quantum))))
	if earliest := now.Add(-quantum); d.free.Before(earliest) {
		d.free = earliest
	}
	d.free = d.free.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	return n, 0
}

// ticket is the permission to write size bytes once. It must be settled.
type ticket struct {
	d         *direction
	size      int
	allowance *allowance
}

// admit blocks until some of n bytes may pass in direction d. With n == 0 it waits until the link is
// open. It returns errCut, or the error of ctx when the connection ends.
func (p *Proxy) admit(ctx context.Context, d *direction, n int) (ticket, error) {
	for {
		t, wait, changed, err := p.tryAdmit(d, n)
		if err != nil || wait == 0 {
			return t, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return ticket{}, ctx.Err()
		}
		timer.Stop()
	}
}

// tryAdmit is one attempt of admit: with a wait of 0 the ticket is valid, else it is worth trying
// again after wait or when changed is closed.
func (p *Proxy) tryAdmit(d *direction, n int) (ticket, time.Duration, <-chan struct{}, error) {
	const untilChanged = time.Hour
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.mode {
	case ModeCut:
		return ticket{}, 0, nil, errCut
	case ModeStalled, ModeCutting:
		return ticket{}, untilChanged, p.changed, nil
	}
	limited := d == &p.up && p.allowance != nil && n > 0
	if limited {
		n = int(min(int64(n), p.allowance.left))
	}
	rate := p.rate
	if p.delay > 0 {
		rate = 0 // paid for where the bytes entered
	}
	n, wait := d.take(time.Now(), rate, n)
	if wait > 0 {
		return ticket{}, wait, p.changed, nil
	}
	t := ticket{d: d, size: n}
	if limited {
		t.allowance = p.allowance
		t.allowance.left -= int64(n)
		t.allowance.pending++
		if t.allowance.left == 0 {
			p.setMode(ModeCutting, p.allowance)
		}
	}
	return t, 0, nil, nil
}

// settle records that written of a ticket's bytes passed. The last write of an allowance cuts the link.
func (p *Proxy) settle(t ticket, written int) {
	p.mu.Lock()
	t.d.bytes += int64(written)
	a := t.allowance
	last := false
	if a != nil {
		a.pending--
		if p.mode == ModeOpen {
			a.left += int64(t.size - written)
		}
		last = p.allowance == a && p.mode == ModeCutting && a.pending == 0
	}
	p.mu.Unlock()
	if last {
		p.cutAfterDrain(a)
	}
}

// cutAfterDrain ends an allowance: a reset throws away what the kernel has not sent yet, so it waits
// until nothing is left in any connection's send queue. Another order given meanwhile takes precedence.
func (p *Proxy) cutAfterDrain(a *allowance) {
	deadline := time.Now().Add(drainTimeout)
	tick := time.NewTicker(drainInterval)
	defer tick.Stop()
	for {
		p.mu.Lock()
		if p.allowance != a {
			p.mu.Unlock()
			return
		}
		queued := 0
		for l := range p.links {
			queued += l.queuedUp()
		}
		if queued == 0 || time.Now().After(deadline) {
			p.setMode(ModeCut, nil)
			p.endLinks()
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		<-tick.C
	}
}
