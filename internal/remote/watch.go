package remote

import (
	"context"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// watch ends a request that does not get on. Two limits apply: no byte in either direction for idle, and no whole answer
// within answer after the last byte of the request. Until a patient request is answered only the second one counts, for
// the server may have to read what it stored.
type watch struct {
	cancel       context.CancelCauseFunc
	ended        func() // hears of a connection that was closed under the request
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
}

type watchKey struct{}

// start returns a context that ends when the watch finds a limit exceeded; context.Cause says which. stop must be called.
func (w *watch) start(ctx context.Context) context.Context {
	w.began = time.Now()
	ctx, w.cancel = context.WithCancelCause(context.WithValue(ctx, watchKey{}, w))
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      func(info httptrace.GotConnInfo) { w.gotConn(info.Conn) },
		WroteRequest: func(info httptrace.WroteRequestInfo) { w.sent(info.Err) },
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
		c.watch.Store(w)
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
		return
	}
	left := w.idle - quiet
	if left <= 0 {
		left = w.idle
	}
	w.quiet.Reset(left)
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
