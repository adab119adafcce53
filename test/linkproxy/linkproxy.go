// Package linkproxy is a TCP proxy that stands between daemon and server, so that a test or the
// demonstration can cut the link between them, let it stall, slow it down, and restore it.
//
// It owns one loopback listener and the connections through it. It promises: Cut resets every
// connection before it returns; CutAfter lets exactly the asked number of client bytes reach the
// server's kernel and nothing come back afterwards; bytes that a peer sends after Stall has returned
// do not move until Restore; memory is bounded by Options.MaxConnections; Run leaves no goroutine.
//
// Read Proxy first, then gate.go (which bytes may pass, and when) and link.go (one connection).
// Control and Do (control.go) are the same operations over a unix socket.
package linkproxy

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// defaultMaxConnections is enough for a test's worth of clients and costs 16 MiB of buffers.
const defaultMaxConnections = 256

// Options configures New.
type Options struct {
	Listen         string // loopback HOST:PORT; empty means 127.0.0.1:0
	Target         string // HOST:PORT of the server, resolved again for every connection
	MaxConnections int    // connections open at one time, further ones are reset; 0 means 256
}

// Mode is the state of the link.
type Mode string

const (
	ModeOpen    Mode = "open"    // bytes move
	ModeStalled Mode = "stalled" // connections are accepted and kept, no byte moves
	ModeCutting Mode = "cutting" // CutAfter has admitted its last byte, which is on its way; nothing else moves
	ModeCut     Mode = "cut"     // no connections; new ones are accepted and reset at once
)

// Stats is a consistent view of a Proxy. Counters never decrease.
type Stats struct {
	Mode        Mode  `json:"mode"`
	BytesUp     int64 `json:"bytes_up"`    // bytes given to the server's sockets
	BytesDown   int64 `json:"bytes_down"`  // bytes given to the clients' sockets
	Connections int64 `json:"connections"` // connections that were taken in, open or not
	Refused     int64 `json:"refused"`     // connections reset at once, or because the server was not reachable
	Open        int   `json:"open"`        // connections at this moment
	Rate        int64 `json:"rate"`        // bytes per second and direction, 0 without a limit
	// CutAfterLeft is how many bytes may still go up before the link cuts itself; absent when CutAfter is not in force.
	CutAfterLeft *int64 `json:"cut_after_left,omitempty"`
}

// Proxy is one link. All methods may be called at any time from any goroutine.
type Proxy struct {
	target   string
	limit    int
	listener *net.TCPListener

	mu          sync.Mutex
	mode        Mode
	changed     chan struct{} // closed and replaced whenever mode or rate changes
	allowance   *allowance    // nil unless CutAfter is in force
	rate        int64
	delay       time.Duration
	resets      float64 // per MiB
	up, down    direction
	links       map[*link]struct{}
	connections int64
	refused     int64
}

// New binds the listening socket, so that Addr is known and clients may already connect, and starts
// nothing. Run or Close releases the socket. It returns ErrNotLoopback, or an error of the network.
func New(opts Options) (*Proxy, error) {
	if _, _, err := net.SplitHostPort(opts.Target); err != nil {
		return nil, fmt.Errorf("parse target: %w", err)
	}
	if opts.Listen == "" {
		opts.Listen = "127.0.0.1:0"
	}
	if opts.MaxConnections <= 0 {
		opts.MaxConnections = defaultMaxConnections
	}
	addr, err := net.ResolveTCPAddr("tcp", opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("resolve listen address: %w", err)
	}
	if !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("%w: %s", ErrNotLoopback, opts.Listen)
	}
	listener, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &Proxy{
		target: opts.Target, limit: opts.MaxConnections, listener: listener,
		mode: ModeOpen, changed: make(chan struct{}), links: map[*link]struct{}{},
	}, nil
}

// Addr is the address to give to clients, as HOST:PORT.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Run forwards connections until ctx ends, then resets those still open, waits for all of them and
// returns nil. It returns an error when the listener breaks. It is called once.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, release := closeWith(ctx, p)
	var serving sync.WaitGroup
	defer func() {
		release()
		p.mu.Lock()
		p.endLinks()
		p.mu.Unlock()
		serving.Wait()
	}()
	for {
		client, err := p.listener.AcceptTCP()
		if ctx.Err() != nil {
			if err == nil {
				reset(client)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		if l := p.take(ctx, client); l != nil {
			serving.Go(l.serve)
		} else {
			reset(client)
		}
	}
}

// closeWith closes c when the returned context ends, which interrupts an Accept or Read on it. release
// ends that context and waits until c is closed. The error of the close is dropped, because the
// interrupted call reports whatever matters.
func closeWith(parent context.Context, c io.Closer) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(parent)
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = c.Close()
	})
	return ctx, func() {
		cancel()
		<-closed
	}
}

// Close releases the listening socket of a proxy that will not run; Run does so by itself.
func (p *Proxy) Close() error { return p.listener.Close() }

// Cut cuts the link: it resets all connections (the peers see ECONNRESET) and from now on resets new
// ones at once, which a client notices in connect(2) or in its first read or write. When it returns no
// connection is left and no byte will move. It ends a Stall and a CutAfter.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.setMode(ModeCut, nil)
	links := p.endLinks()
	p.mu.Unlock()
	for _, l := range links {
		<-l.done
	}
}

// Restore makes the link whole: new connections go through, and connections that survived a Stall
// go on where they were. It ends a CutAfter; the rate stays.
func (p *Proxy) Restore() { p.order(ModeOpen, nil) }

// Stall keeps the link half-open: connections stay and new ones are accepted, but no byte, end of
// stream or new connection reaches the other side. Bytes read before the call (64 KiB at most per
// connection) may still be on their way. It ends a CutAfter.
func (p *Proxy) Stall() { p.order(ModeStalled, nil) }

// CutAfter restores the link and lets it cut itself as soon as n more bytes, on all connections
// together, have gone from clients to the server. Byte n+1 is not forwarded. From the moment the
// n-th byte is handed over nothing comes back down: an answer to it is lost. The first n bytes do
// arrive: the connections are reset when the server's kernel has acknowledged them, or after five
// seconds. Fewer arrive only if a connection breaks by itself. For n <= 0 it is Cut.
func (p *Proxy) CutAfter(n int64) {
	if n <= 0 {
		p.Cut()
		return
	}
	p.order(ModeOpen, &allowance{left: n})
}

// SetRate limits each direction, over all connections, to bytesPerSecond; 0 or less lifts the limit.
func (p *Proxy) SetRate(bytesPerSecond int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = max(0, bytesPerSecond)
	p.up.free, p.down.free = time.Time{}, time.Time{} // the old rate's debts are forgiven
	p.announce()
}

// SetDelay makes every byte of connections that begin from now on arrive so much later, in each direction: half of what a
// round trip takes longer. The rate applies where bytes enter, as on a link, so that no more than rate times delay is on
// its way.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// SetResets makes connections break by themselves, with this probability for each MiB that passes.
func (p *Proxy) SetResets(perMiB float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resets = perMiB
}

// unlucky decides whether a connection breaks after n bytes more.
func (p *Proxy) unlucky(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resets > 0 && rand.Float64() < p.resets*float64(n)/(1<<20)
}

// BytesUp is how many bytes went from clients to the server.
func (p *Proxy) BytesUp() int64 { return p.Stats().BytesUp }

// BytesDown is how many bytes went from the server to clients.
func (p *Proxy) BytesDown() int64 { return p.Stats().BytesDown }

// Connections is how many connections were taken in so far; those refused do not count.
func (p *Proxy) Connections() int64 { return p.Stats().Connections }

// Stats returns state and counters as of one moment.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{
		Mode: p.mode, BytesUp: p.up.bytes, BytesDown: p.down.bytes,
		Connections: p.connections, Refused: p.refused, Open: len(p.links), Rate: p.rate,
	}
	if p.allowance != nil {
		left := p.allowance.left
		s.CutAfterLeft = &left
	}
	return s
}

// Wait blocks until the link is in mode, for a test that waits for CutAfter. It returns the error of
// ctx when that ends first. A mode that comes and goes at once may be missed.
func (p *Proxy) Wait(ctx context.Context, mode Mode) error {
	for {
		p.mu.Lock()
		now, changed := p.mode, p.changed
		p.mu.Unlock()
		if now == mode {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for link to be %s: %w", mode, ctx.Err())
		}
	}
}

func (p *Proxy) order(mode Mode, a *allowance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setMode(mode, a)
}

// setMode changes the state. p.mu is held.
func (p *Proxy) setMode(mode Mode, a *allowance) {
	p.mode, p.allowance = mode, a
	p.announce()
}

// announce wakes everything that waits in admit or Wait. p.mu is held.
func (p *Proxy) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}
