package uplinktest

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
)

// Unlimited, as a limit of bytes, is none.
const Unlimited = -1

// Link is what befalls one connection. A limit is reached after so many bytes in its direction.
type Link struct {
	// Up and Down break the connection, seen from the device; Unlimited for never.
	Up, Down int64
	// Stall makes the connection silent instead of broken: nothing arrives any more, and nobody is told.
	Stall bool
}

// Good is a link that does what it should.
func Good() Link { return Link{Up: Unlimited, Down: Unlimited} }

// Network joins devices and a server in memory. The zero value is ready to use.
type Network struct {
	mu       sync.Mutex
	listener *listener
	plan     func(dial int) Link
	dials    int
	down     bool
}

// Plan decides what befalls each connection; dials are numbered from 1 over the network's life. nil: all are good.
func (n *Network) Plan(plan func(dial int) Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plan = plan
}

// Down refuses new connections, or takes them again.
func (n *Network) Down(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
}

// Dials is the number of connections that were asked for.
func (n *Network) Dials() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// Listener returns the server's end. There is one.
func (n *Network) Listener() net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener == nil {
		n.listener = &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	}
	return n.listener
}

// Dial connects to the listener whatever the address says.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	n.dials++
	link := Good()
	if n.plan != nil {
		link = n.plan(n.dials)
	}
	l, down := n.listener, n.down
	n.mu.Unlock()
	if down || l == nil {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	device, server := net.Pipe()
	select {
	case l.conns <- server:
		return &conn{Conn: device, link: link, closed: make(chan struct{})}, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), device.Close(), server.Close())
	}
}

type listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// conn is the device's end.
type conn struct {
	net.Conn
	mu     sync.Mutex
	link   Link
	once   sync.Once
	closed chan struct{}
}

// take returns how many of n bytes still pass, and whether the limit is reached with them.
func (c *conn) take(limit *int64, n int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *limit < 0 || int64(n) < *limit {
		if *limit > 0 {
			*limit -= int64(n)
		}
		return n, false
	}
	n = int(*limit)
	*limit = 0
	return n, true
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, last := c.take(&c.link.Up, len(p))
	written, err := c.Conn.Write(p[:n])
	if err != nil || !last || written < n {
		return written, err
	}
	return written, c.end()
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	if c.link.Down >= 0 && c.link.Down < int64(len(p)) {
		p = p[:c.link.Down]
	}
	ended := c.link.Down == 0
	c.mu.Unlock()
	if ended {
		return 0, c.end()
	}
	n, err := c.Conn.Read(p)
	c.take(&c.link.Down, n)
	return n, err
}

// end is what the device sees where the link ends.
func (c *conn) end() error {
	if c.link.Stall {
		<-c.closed
		return net.ErrClosed
	}
	return errors.Join(&net.OpError{Op: "pipe", Net: "pipe", Err: syscall.ECONNRESET}, c.Close())
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
