package linkproxy

import (
	"context"
	"io"
	"net"
	"time"
)

// maxTravelling bounds the pieces that one direction of one connection has on its way, chunkSize bytes each (32 MiB).
const maxTravelling = 1024

// piece is what was read at one moment, and when it is due at the other end.
type piece struct {
	data []byte
	err  error
	due  time.Time
}

// traveller is a stream whose bytes are on their way for a while.
type traveller struct {
	ctx    context.Context
	cancel context.CancelFunc
	pieces chan piece
	ended  chan struct{}
	rest   piece
}

// source is where move reads from.
type source interface {
	io.Reader
	// end lets go of what is on its way, after the sockets were closed or have nothing more to give.
	end()
}

type direct struct{ io.Reader }

func (direct) end() {}

// travel returns src itself, or with a delay, src later.
func (l *link) travel(src *net.TCPConn, d *direction) source {
	l.p.mu.Lock()
	delay := l.p.delay
	l.p.mu.Unlock()
	if delay == 0 {
		return direct{src}
	}
	t := &traveller{pieces: make(chan piece, maxTravelling), ended: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(l.ctx)
	go t.enter(l.p, src, d, delay)
	return t
}

// enter reads from src at the rate of the link until src ends.
func (t *traveller) enter(p *Proxy, src *net.TCPConn, d *direction, delay time.Duration) {
	defer close(t.ended)
	for {
		buf := make([]byte, p.most(chunkSize))
		n, err := src.Read(buf)
		if perr := p.pay(t.ctx, d, n); perr != nil {
			err = perr
		}
		select {
		case t.pieces <- piece{buf[:n], err, time.Now().Add(delay)}:
		case <-t.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// most is how many bytes are read at once: no more than a quantum of a limited rate.
func (p *Proxy) most(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		return n
	}
	return int(min(int64(n), max(1, p.rate/int64(time.Second/quantum))))
}

// pay waits until n bytes are paid for at the link's rate.
func (p *Proxy) pay(ctx context.Context, d *direction, n int) error {
	for n > 0 {
		p.mu.Lock()
		k, wait := d.take(time.Now(), p.rate, n)
		p.mu.Unlock()
		n -= k
		if wait == 0 {
			continue
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Read implements io.Reader.
func (t *traveller) Read(p []byte) (int, error) {
	if len(t.rest.data) == 0 && t.rest.err == nil {
		select {
		case t.rest = <-t.pieces:
		case <-t.ctx.Done():
			return 0, t.ctx.Err()
		}
		select {
		case <-time.After(time.Until(t.rest.due)):
		case <-t.ctx.Done():
			return 0, t.ctx.Err()
		}
	}
	n := copy(p, t.rest.data)
	t.rest.data = t.rest.data[n:]
	if len(t.rest.data) > 0 {
		return n, nil
	}
	return n, t.rest.err
}

func (t *traveller) end() {
	t.cancel()
	<-t.ended
}
