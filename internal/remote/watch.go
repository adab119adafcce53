package remote

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// watch ends a request that does not get on. Two limits apply: no byte in either direction for idle, and no whole answer
// within answer after the last byte of the request. Bytes are counted as they are taken from the body and arrive in the
// answer, and on the connection too where it is the request's own (HTTP/1.1). Until a patient request is answered only the second one counts, for
// the server may have to read what it stored.
type watch struct {
	cancel       context.CancelCauseFunc
	idle, answer time.Duration
	patient      bool
	began        time.Time
	last         atomic.Int64 // when a byte moved, in nanoseconds since began

	mu        sync.Mutex
	stopped   bool
	connected bool // a connection was had at least once
	answering bool // the answer has begun
	working   bool // the server is at work for a patient request
	quiet     *time.Timer
	silent    *time.Timer
	conns     []*watchedConn
	shared    bool // some of them serve other requests too (HTTP/2)
}

type watchKey struct{}

// start returns a context that ends when the watch finds a limit exceeded; context.Cause says which. stop must be called.
func (w *watch) start(ctx context.Context) context.Context {
	w.began = time.Now()
	ctx, w.cancel = context.WithCancelCause(context.WithValue(ctx, watchKey{}, w))
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(info httptrace.GotConnInfo) { w.gotConn(info.Conn) },
		WroteRequest:         func(info httptrace.WroteRequestInfo) { w.sent(info.Err) },
		GotFirstResponseByte: w.moved,
		Got1xxResponse:       func(int, textproto.MIMEHeader) error { w.moved(); return nil },
	})
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, t := range []*time.Timer{w.quiet, w.silent} {
		if t != nil {
			t.Stop()
		}
	}
	for _, c := range w.conns {
		c.watch.CompareAndSwap(w, nil)
	}
	w.cancel(nil)
}

// gotConn begins the idle limit. Connecting has limits of its own.
func (w *watch) gotConn(conn net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.connected = true
	if c := watched(conn); c != nil {
		if shared(conn) {
			w.shared = true
		} else {
			c.watch.Store(w)
		}
		w.conns = append(w.conns, c)
	}
	w.moved()
	if w.quiet == nil {
		w.quiet = time.AfterFunc(w.idle, w.check)
	}
}

// sent begins the limit for the answer. What the buffers still hold at this moment is small. The answer may have begun
// already.
func (w *watch) sent(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || w.stopped || w.answering {
		return
	}
	w.working = w.patient
	w.expect()
}

// answered begins the idle limit anew for the body of the answer.
func (w *watch) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved()
	w.working, w.answering = false, true
	if w.silent == nil {
		w.expect()
	}
}

// expect begins the limit for the whole answer; anew, when the request was sent again on another connection.
func (w *watch) expect() {
	if w.silent == nil {
		w.silent = time.AfterFunc(w.answer, func() { w.cancel(ErrSilent) })
		return
	}
	w.silent.Reset(w.answer)
}

func (w *watch) moved() { w.last.Store(int64(time.Since(w.began))) }

func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	quiet := time.Since(w.began) - time.Duration(w.last.Load())
	if quiet >= w.idle && !w.working {
		w.cancel(ErrStalled)
		w.dropDeaf()
		return
	}
	left := w.idle - quiet
	if left <= 0 {
		left = w.idle
	}
	w.quiet.Reset(left)
}

// dropDeaf closes connections that are shared and have not been heard of either: cancelling a request of HTTP/2 leaves its
// connection to the next one. w.mu is held.
func (w *watch) dropDeaf() {
	for _, c := range w.conns {
		if w.shared && c.deaf(w.idle) {
			_ = c.Close() // whatever else is sent on it hears of it
		}
	}
}

// multiplexed reports that the request shares its connection with others (HTTP/2).
func (w *watch) multiplexed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shared
}

// uprooted reports that a connection of the request was ended because the link changed.
func uprooted(ctx context.Context) bool {
	w, ok := ctx.Value(watchKey{}).(*watch)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.conns, func(c *watchedConn) bool { return c.moved.Load() })
}

// shared reports whether a connection serves several requests at a time.
func shared(conn net.Conn) bool {
	c, ok := conn.(interface{ ConnectionState() tls.ConnectionState })
	return ok && c.ConnectionState().NegotiatedProtocol == "h2"
}

// movingBody tells of bytes of the answer as they are read.
type movingBody struct {
	io.ReadCloser
	watch *watch
}

// Read implements io.Reader.
func (b movingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watch.moved()
	}
	return n, err
}

func wasConnected(ctx context.Context) bool {
	w, ok := ctx.Value(watchKey{}).(*watch)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.connected
}
