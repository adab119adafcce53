package linkproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	chunkSize   = 32 << 10
	dialTimeout = 5 * time.Second
)

// link is one connection through the proxy.
type link struct {
	p      *Proxy
	ctx    context.Context
	cancel context.CancelFunc
	client *net.TCPConn
	server *net.TCPConn  // nil until dialled; guarded by p.mu
	done   chan struct{} // closed when both sockets are closed and serve has ended
}

// take registers a connection, or returns nil if it has to be refused.
func (p *Proxy) take(ctx context.Context, client *net.TCPConn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == ModeCut || len(p.links) >= p.limit {
		p.refused++
		return nil
	}
	l := &link{p: p, client: client, done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(ctx)
	p.links[l] = struct{}{}
	p.connections++
	return l
}

// endLinks resets all connections and returns them, without waiting for them. p.mu is held.
func (p *Proxy) endLinks() []*link {
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
		l.end()
	}
	return links
}

// end resets both sockets. p.mu is held.
func (l *link) end() {
	l.cancel()
	reset(l.client)
	if l.server != nil {
		reset(l.server)
	}
}

// reset closes a socket so that the peer gets a RST instead of an end of stream (socket(7), SO_LINGER
// with a timeout of zero). Errors mean that the socket is closed already, which is what is wanted.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// serve connects to the server and moves bytes both ways until both sides have ended their stream,
// one of them breaks, or the link is cut.
func (l *link) serve() {
	defer close(l.done)
	err := l.forward()
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if err == nil {
		// Both streams ended in order: a plain close lets the kernel deliver what it still has.
		_ = l.server.Close()
		_ = l.client.Close()
	}
	l.end()
	delete(l.p.links, l)
}

func (l *link) forward() error {
	server, err := l.dial()
	if err != nil {
		return err
	}
	downEnded := make(chan error, 1)
	go func() { downEnded <- l.move(server, l.client, &l.p.down) }()
	return errors.Join(l.move(l.client, server, &l.p.up), <-downEnded)
}

// dial connects to the server, not before the link is open.
func (l *link) dial() (*net.TCPConn, error) {
	if _, err := l.p.admit(l.ctx, &l.p.up, 0); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(l.ctx, "tcp", l.p.target)
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if err != nil {
		if l.ctx.Err() == nil {
			l.p.refused++
		}
		return nil, err
	}
	l.server = conn.(*net.TCPConn)
	if l.ctx.Err() != nil { // cut while dialling: whoever cut did not see this socket
		reset(l.server)
		return nil, errCut
	}
	return l.server, nil
}

// move forwards one direction until src ends its stream, which it passes on. When it returns an
// error it has reset the connection, so that the other direction ends too.
func (l *link) move(src, dst *net.TCPConn, d *direction) (err error) {
	from := l.travel(src, d)
	defer func() {
		if err != nil {
			l.p.mu.Lock()
			l.end()
			l.p.mu.Unlock()
		}
		from.end()
	}()
	buf := make([]byte, chunkSize)
	for {
		n, readErr := from.Read(buf)
		if err := l.write(dst, buf[:n], d); err != nil {
			return err
		}
		if readErr == nil {
			continue
		}
		if _, err := l.p.admit(l.ctx, d, 0); err != nil { // a stalled link passes neither FIN nor RST
			return err
		}
		if errors.Is(readErr, io.EOF) {
			return dst.CloseWrite()
		}
		return readErr
	}
}

func (l *link) write(dst *net.TCPConn, b []byte, d *direction) error {
	for len(b) > 0 {
		t, err := l.p.admit(l.ctx, d, len(b))
		if err != nil {
			return err
		}
		n, err := dst.Write(b[:t.size])
		l.p.settle(t, n)
		if err != nil {
			return err
		}
		b = b[n:]
		if l.p.unlucky(n) {
			return errCut
		}
	}
	return nil
}

// queuedUp is how many bytes the server's kernel has not acknowledged (tcp(7), SIOCOUTQ; TIOCOUTQ is
// the same number). A socket that cannot say has nothing to wait for. p.mu is held.
func (l *link) queuedUp() int {
	if l.server == nil {
		return 0
	}
	raw, err := l.server.SyscallConn()
	if err != nil {
		return 0
	}
	queued := 0
	err = raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); err == nil {
			queued = n
		}
	})
	if err != nil {
		return 0
	}
	return queued
}
