package daemon

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// simNet joins the device and whatever server runs now, in memory. The seed decides what befalls each connection, by its
// number.
type simNet struct {
	seed uint64

	mu       sync.Mutex
	listener *simListener
	conns    map[*simConn]bool
	dials    uint64
	trouble  float64 // part of the connections that something befalls
	down     bool
}

// simFate is what befalls one connection.
type simFate struct {
	up, down int64 // bytes from the device and to it before it ends; -1 for never
	stall    bool  // it falls silent instead of breaking
	latency  time.Duration
}

func (n *simNet) fate() simFate {
	rnd := rand.New(rand.NewPCG(n.seed, n.dials))
	f := simFate{up: -1, down: -1}
	if rnd.IntN(4) == 0 {
		f.latency = time.Duration(rnd.IntN(300)) * time.Millisecond
	}
	if rnd.Float64() >= n.trouble {
		return f
	}
	switch rnd.IntN(6) {
	case 0:
		f.up = rnd.Int64N(600) // within a header
	case 1:
		f.down = rnd.Int64N(700) // within an answer
	case 2:
		f.down = 700 + rnd.Int64N(4000)
	default:
		f.up = rnd.Int64N(90_000)
	}
	f.stall = rnd.IntN(4) == 0
	return f
}

func (n *simNet) listen() *simListener {
	l := &simListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener = l
	return l
}

func (n *simNet) set(trouble float64, down bool) {
	n.mu.Lock()
	n.trouble, n.down = trouble, down
	n.mu.Unlock()
	if down {
		n.cut()
	}
}

// cut breaks every connection at once.
func (n *simNet) cut() {
	n.mu.Lock()
	conns := n.conns
	n.conns = map[*simConn]bool{}
	n.mu.Unlock()
	for c := range conns {
		c.hangUp()
	}
}

// Dial connects to the server whatever the address says.
func (n *simNet) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	n.mu.Lock()
	n.dials++
	fate, l, down := n.fate(), n.listener, n.down
	n.mu.Unlock()
	if down || l == nil {
		return nil, refused
	}
	device, server := net.Pipe()
	select {
	case l.conns <- server:
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), device.Close(), server.Close())
	}
	c := &simConn{Conn: device, net: n, fate: fate, closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = true
	return c, nil
}

type simListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *simListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *simListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *simListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// simConn is the device's end.
type simConn struct {
	net.Conn
	net    *simNet
	mu     sync.Mutex
	fate   simFate
	once   sync.Once
	closed chan struct{}
}

// allow returns how many of n bytes still pass, and whether the connection ends with them.
func (c *simConn) allow(left *int64, n int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *left < 0 || int64(n) < *left {
		if *left > 0 {
			*left -= int64(n)
		}
		return n, false
	}
	n = int(*left)
	*left = 0
	return n, true
}

func (c *simConn) Write(p []byte) (int, error) {
	if c.fate.latency > 0 {
		delay := time.NewTimer(c.fate.latency)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-c.closed:
		}
	}
	n, last := c.allow(&c.fate.up, len(p))
	written, err := c.Conn.Write(p[:n])
	if err != nil || !last {
		return written, err
	}
	return written, c.end()
}

func (c *simConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	if c.fate.down >= 0 && c.fate.down < int64(len(p)) {
		p = p[:c.fate.down]
	}
	ended := c.fate.down == 0
	c.mu.Unlock()
	if ended {
		return 0, c.end()
	}
	n, err := c.Conn.Read(p)
	c.allow(&c.fate.down, n)
	return n, err
}

// end is what the device sees where the link ends.
func (c *simConn) end() error {
	if c.fate.stall {
		<-c.closed
		return net.ErrClosed
	}
	return errors.Join(&net.OpError{Op: "pipe", Net: "pipe", Err: syscall.ECONNRESET}, c.Close())
}

func (c *simConn) hangUp() {
	if c.Close() != nil {
		return // it was closed already
	}
}

func (c *simConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}
