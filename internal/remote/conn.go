package remote

import (
	"context"
	"net"
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

// watchedConn tells the request that uses it of every byte that moves. Requests use a connection one after another.
type watchedConn struct {
	net.Conn
	watch atomic.Pointer[watch]
}

// Read implements net.Conn.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.moved(n)
	return n, err
}

// Write implements net.Conn.
func (c *watchedConn) Write(p []byte) (int, error) {
	written := 0
	for {
		piece := p[written:min(len(p), written+maxWrite)]
		n, err := c.Conn.Write(piece)
		written += n
		c.moved(n)
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	if w := c.watch.Load(); w != nil {
		w.ended()
	}
	return err
}

func (c *watchedConn) moved(n int) {
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

// watchedDial limits and wraps dial, or the dialling of TCP where that is nil.
func watchedDial(dial dialFunc, limit time.Duration) dialFunc {
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
		return &watchedConn{Conn: conn}, nil
	}
}

// limitUnsent keeps the kernel's queue of unsent bytes short (TCP_NOTSENT_LOWAT, tcp(7)): otherwise it takes megabytes on
// a slow link, in steps that are further apart than the idle timeout. A kernel without the option still sends.
func limitUnsent(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}
