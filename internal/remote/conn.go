package remote

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

const (
	// maxWrite is handed to the kernel at a time, in bytes. A write returns when all of it is taken, and only then a byte
	// has moved: larger pieces look like a stall on a slow link.
	maxWrite = 16 << 10
	// maxUnsent is how much the kernel keeps that is not even on its way, in bytes.
	maxUnsent = 64 << 10
)

// watchedConn tells the request that uses it of every byte that moves. With HTTP/1.1 requests use a connection one after
// another; with HTTP/2 it belongs to no single one.
type watchedConn struct {
	net.Conn
	watch atomic.Pointer[watch]
	heard atomic.Int64 // when something was read last, in nanoseconds since the first connection
	moved atomic.Bool  // it was ended because the link changed
	owner *openConns
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(int64(time.Since(epoch)))
		c.count(n)
	}
	return n, err
}

// Write implements net.Conn.
func (c *watchedConn) Write(p []byte) (int, error) {
	written := 0
	for {
		piece := p[written:min(len(p), written+maxWrite)]
		n, err := c.Conn.Write(piece)
		written += n
		c.count(n)
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// epoch is where the times of connections count from.
var epoch = time.Now()

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.owner.remove(c)
	return c.Conn.Close()
}

// deaf reports that nothing was read for so long.
func (c *watchedConn) deaf(limit time.Duration) bool {
	return time.Since(epoch)-time.Duration(c.heard.Load()) >= limit
}

func (c *watchedConn) count(n int) {
	if w := c.watch.Load(); w != nil && n > 0 {
		w.moved()
	}
}

// watched finds the connection below TLS.
func watched(conn net.Conn) *watchedConn {
	for {
		switch c := conn.(type) {
		case *watchedConn:
			return c
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// openConns are the connections that a client has.
type openConns struct {
	mu  sync.Mutex
	all map[*watchedConn]struct{}
}

// watched limits and wraps dial, or the dialling of TCP where that is nil: over both families, whichever answers first
// (RFC 8305), and with the name resolved anew each time.
func (o *openConns) watched(dial dialFunc, limit time.Duration) dialFunc {
	if dial == nil {
		dial = (&net.Dialer{Control: limitUnsent}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return o.add(&watchedConn{Conn: conn, owner: o}), nil
	}
}

func (o *openConns) add(c *watchedConn) *watchedConn {
	c.heard.Store(int64(time.Since(epoch)))
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*watchedConn]struct{}{}
	}
	o.all[c] = struct{}{}
	return c
}

func (o *openConns) remove(c *watchedConn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, c)
}

// end closes the connections that are useless and returns their number. Errors of closing are dropped: the requests on them
// report what matters.
func (o *openConns) end(useless func(*watchedConn) bool) int {
	o.mu.Lock()
	var ended []*watchedConn
	for c := range o.all {
		if useless(c) {
			ended = append(ended, c)
		}
	}
	o.mu.Unlock()
	for _, c := range ended {
		c.moved.Store(true)
		_ = c.Close()
	}
	return len(ended)
}

// limitUnsent keeps the kernel's queue of unsent bytes short (TCP_NOTSENT_LOWAT, tcp(7)): otherwise it takes megabytes on
// a slow link, in steps that are further apart than the idle timeout. A kernel without the option still sends.
func limitUnsent(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}
