package daemon

import (
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	fieldgwserver "github.com/fieldgw/fieldgw/internal/server"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

const simAccount = "acme"

// simServer is the real receiving server on its directory, over its restarts.
type simServer struct {
	s    *sim
	dir  string
	srv  *fieldgwserver.Server // nil while it is down
	http *http.Server
	done chan error
	// ended is closed when this process of the server ends; handlers are its requests.
	ended    chan struct{}
	handlers sync.WaitGroup
	gone     bool // no further request gets in; guarded by mu
	// eyes is the token that the invariants ask with; tokenID names the device's.
	eyes, tokenID string

	disk  simDisk
	mu    sync.Mutex
	rnd   *rand.Rand
	wrong float64 // part of the requests that are answered wrongly
	full  atomic.Bool
	calls int
}

var errSimCrash = errors.New("the process is gone")

func (v *simServer) start() {
	v.disk.revive()
	srv, err := v.open()
	if errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC) {
		v.s.note("the server ended in its recovery: %v", err)
		v.disk.setFails(0)
		srv, err = v.open()
	}
	if err != nil {
		v.s.t.Fatalf("the server does not start: %v", err)
	}
	v.srv = srv
	v.http = &http.Server{
		Handler: http.HandlerFunc(v.handle), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	v.done, v.ended = make(chan error, 1), make(chan struct{})
	v.setGone(false)
	l := v.s.net.listen()
	go func() { v.done <- v.http.Serve(l) }()
}

func (v *simServer) open() (*fieldgwserver.Server, error) {
	return fieldgwserver.New(v.s.ctx, fieldgwserver.Options{
		Dir: v.dir, FS: durable.Hooked(v.hook), Logger: v.s.log("server"),
		Room: func() (int64, error) {
			if v.full.Load() {
				return 0, nil
			}
			return 1 << 40, nil
		},
	})
}

// stop ends the server. A crash leaves every request where it is: none of them touches a file any more.
func (v *simServer) stop(crash bool) {
	if v.srv == nil {
		return
	}
	if crash {
		v.disk.kill()
		v.s.net.cut()
	}
	v.setGone(true)
	close(v.ended)
	// A pipe whose other end is closed takes no deadline, unlike a socket.
	if err := v.srv.Close(); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		v.s.t.Errorf("close the server: %v", err)
	}
	if err := v.http.Close(); err != nil {
		v.s.t.Errorf("close the connections: %v", err)
	}
	if err := <-v.done; !errors.Is(err, http.ErrServerClosed) {
		v.s.t.Errorf("serve: %v", err)
	}
	v.handlers.Wait()
	v.srv = nil
}

func (v *simServer) setGone(gone bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gone = gone
}

// enter lets a request in, unless the server is ending: one that was read before may come late.
func (v *simServer) enter() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return false
	}
	v.handlers.Add(1)
	return true
}

func (v *simServer) restart(crash bool) {
	v.stop(crash)
	v.start()
}

// hook ends a request at the operation at which the process ends, as the end of the process would, and fails operations.
func (v *simServer) hook(c durable.Call) error {
	err := v.disk.before(c)
	if errors.Is(err, errSimCrash) {
		if c.Op == durable.OpClose {
			return nil // the end of a process closes its files
		}
		panic(http.ErrAbortHandler)
	}
	return err
}

// token makes a token of the account for a device and returns its ID and text.
func (v *simServer) token(device string) (id, text string) {
	made, err := v.srv.Admin().CreateToken(v.s.ctx, admin.TokenRequest{Account: simAccount, Device: device})
	if err != nil {
		v.s.t.Fatal(err)
	}
	return made.ID, made.Text
}

// handle is the real handler, with faults before and behind it.
func (v *simServer) handle(w http.ResponseWriter, r *http.Request) {
	if !v.enter() {
		panic(http.ErrAbortHandler)
	}
	defer v.handlers.Done()
	v.s.arrived(r)
	v.mu.Lock()
	v.calls++
	wrong, kind, wait := v.rnd.Float64() < v.wrong, v.rnd.IntN(9), time.Duration(v.rnd.IntN(90))*time.Second
	v.mu.Unlock()
	if wrong {
		v.misbehave(w, r, kind, wait)
	} else {
		v.srv.Handler().ServeHTTP(w, r)
	}
	if v.disk.dead.Load() {
		panic(http.ErrAbortHandler) // nobody is there to answer
	}
}

func (v *simServer) misbehave(w http.ResponseWriter, r *http.Request, kind int, wait time.Duration) {
	codes := []wire.Code{wire.CodeInternal, wire.CodeShuttingDown, wire.CodeServerFull, wire.CodeTooMany, wire.CodeInternal}
	switch {
	case kind < len(codes):
		reply.Common(w.Header())
		reply.Problem(w, codes[kind], "told to refuse")
	case kind == 5: // a proxy in front of it
		w.WriteHeader(http.StatusBadGateway)
	case kind == 6: // a portal
		w.Header().Set("Content-Type", "text/html")
		if _, err := w.Write([]byte("<html>sign in</html>")); err != nil {
			return
		}
	case kind == 7: // the work is done and the answer is a failure
		v.srv.Handler().ServeHTTP(httptest.NewRecorder(), r)
		reply.Common(w.Header())
		reply.Problem(w, wire.CodeInternal, "told to fail")
	default: // slow
		delay := time.NewTimer(wait)
		defer delay.Stop()
		select {
		case <-delay.C:
			v.srv.Handler().ServeHTTP(w, r)
		case <-v.ended:
		}
	}
}

// attachments are the server's records, by ID.
func (v *simServer) attachments() map[attachment.ID]store.Attachment {
	found := map[attachment.ID]store.Attachment{}
	for after := ""; ; {
		page, err := v.srv.Admin().Attachments(v.s.ctx, admin.Query{Account: simAccount, AfterID: after})
		if err != nil {
			v.s.t.Fatal(err)
		}
		for _, a := range page {
			found[attachment.ID(a.ID)], after = a, a.ID
		}
		if len(page) < admin.PageSize {
			return found
		}
	}
}

// offset asks for the confirmed offset of a session; gone says that the server has it no more.
func (v *simServer) offset(session string) (offset string, gone bool) {
	// A look makes file operations too, and must not be what ends the server.
	if n := v.disk.disarm(); n > 0 {
		defer v.disk.arm(n)
	}
	r := httptest.NewRequest(http.MethodHead, "/v1/uploads/"+session, nil)
	r.Header.Set("Authorization", "Bearer "+v.eyes)
	r.Header.Set(wire.HeaderTusResumable, wire.TusVersion)
	w := httptest.NewRecorder()
	v.srv.Handler().ServeHTTP(w, r)
	return w.Header().Get(wire.HeaderUploadOffset), w.Code != http.StatusOK
}

// simDisk is the file operations of one process: they are counted, fail now and then, and stop at the process's end.
type simDisk struct {
	dead    atomic.Bool
	ops     atomic.Int64
	crashAt atomic.Int64 // 0 for never
	onCrash func()

	mu    sync.Mutex
	rnd   *rand.Rand
	fails float64 // part of the writes and fsyncs that fail
	hurt  bool    // one did
	// fault is asked before every operation; a sweep sets it.
	fault func(durable.Call) error
}

func (d *simDisk) revive() {
	d.dead.Store(false)
	d.crashAt.Store(0)
}

func (d *simDisk) kill() { d.dead.Store(true) }

// armed makes the process end at the n-th file operation from now.
func (d *simDisk) arm(n int64) { d.crashAt.Store(d.ops.Load() + n) }

// disarm calls the end off and returns at which operation from now it would have come, 0 for none.
func (d *simDisk) disarm() int64 { return max(0, d.crashAt.Swap(0)-d.ops.Load()) }

func (d *simDisk) setFails(part float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = part
}

func (d *simDisk) setFault(fault func(durable.Call) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// end makes the process end now.
func (d *simDisk) end() {
	if d.dead.CompareAndSwap(false, true) {
		d.onCrash()
	}
}

// wasHurt reports whether an operation ever failed.
func (d *simDisk) wasHurt() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hurt
}

func (d *simDisk) before(c durable.Call) error {
	if d.dead.Load() {
		return errSimCrash
	}
	if n := d.ops.Add(1); n == d.crashAt.Load() {
		d.end()
		return errSimCrash
	}
	d.mu.Lock()
	fault := d.fault
	d.mu.Unlock()
	if fault != nil {
		if err := fault(c); err != nil {
			return err
		}
	}
	switch c.Op {
	case durable.OpWrite, durable.OpSync, durable.OpSyncDir, durable.OpCreate, durable.OpRename:
	default:
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rnd.Float64() >= d.fails || strings.HasSuffix(filepath.Base(c.Path), ".db") {
		return nil
	}
	d.hurt = true
	if c.Op == durable.OpWrite && d.rnd.IntN(2) == 0 {
		return &durable.ShortWrite{N: c.Bytes / 2, Err: syscall.ENOSPC}
	}
	return []error{syscall.EIO, syscall.ENOSPC}[d.rnd.IntN(2)]
}
