package remote_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// tell sends one interim answer.
func tell(w http.ResponseWriter, status int, version, offset string) {
	w.Header().Set(wire.HeaderInteropVersion, version)
	w.Header().Set(wire.HeaderUploadOffset, offset)
	w.WriteHeader(status)
}

// hearing is an append of the reader's bytes that notes which offsets it hears of.
func hearing(t *testing.T, c *remote.Client, length int64, body func() io.Reader, hear func(offset string)) remote.Append {
	t.Helper()
	u, err := c.Resolve("/v1/uploads/x")
	if err != nil {
		t.Fatal(err)
	}
	return remote.Append{
		Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Length: length, Body: body,
		Interim: func(h http.Header) { hear(h.Get(wire.HeaderUploadOffset)) },
	}
}

// Any number of interim answers arrives, in order and while the body is sent; those of another status or version do not.
func TestManyConfirmations(t *testing.T) {
	const many = 2000
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: func(_ *uplinktest.Server, w http.ResponseWriter, r *http.Request, _ http.Handler) {
			tell(w, 103, "8", "103")
			tell(w, wire.StatusResumption, "7", "7")
			tell(w, wire.StatusResumption, "", "none")
			for i := range many {
				if _, err := io.ReadFull(r.Body, make([]byte, 1)); err != nil {
					t.Errorf("byte %d: %v", i, err)
					return
				}
				tell(w, wire.StatusResumption, "8", strconv.Itoa(i+1))
			}
			w.Header().Set(wire.HeaderProtocol, strconv.Itoa(wire.Protocol))
			w.WriteHeader(http.StatusNoContent)
		}})
		var mu sync.Mutex
		var heard []string
		// Each byte waits until the one before it is confirmed.
		news, sent := make(chan struct{}, many), 0
		body := func() io.Reader {
			return readerFunc(func([]byte) (int, error) {
				if sent > 0 {
					<-news
				}
				sent++
				return 1, nil
			})
		}
		_, err := rig.Client.Stream(t.Context(), hearing(t, rig.Client, many, body, func(offset string) {
			mu.Lock()
			heard = append(heard, offset)
			mu.Unlock()
			news <- struct{}{}
		}))
		if err != nil || len(heard) != many {
			t.Fatalf("%v after %d interim answers", err, len(heard))
		}
		for i, offset := range heard {
			if offset != strconv.Itoa(i+1) {
				t.Fatalf("interim answer %d says %q", i, offset)
			}
		}
	})
}

// Nothing is heard after Stream returned, whatever the connection still brings.
func TestConfirmationAfterReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: func(_ *uplinktest.Server, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			for i := range 100 {
				tell(w, wire.StatusResumption, "8", strconv.Itoa(i))
				<-time.After(10 * time.Millisecond)
			}
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 305*time.Millisecond)
		defer cancel()
		returned, heard := false, 0
		_, err := rig.Client.Stream(ctx, hearing(t, rig.Client, 5, func() io.Reader { return strings.NewReader("hello") }, func(string) {
			if heard++; returned {
				t.Error("heard of an interim answer after the return")
			}
		}))
		returned = true
		failed(t, err, remote.KindCancelled)
		if heard == 0 {
			t.Error("heard nothing before either")
		}
		<-time.After(5 * time.Second)
	})
}

// waiting is a body that has some bytes, and then waits until it is closed.
type waiting struct {
	left   int
	closed chan struct{}
}

// Read implements io.Reader.
func (w *waiting) Read(p []byte) (int, error) {
	if w.left == 0 {
		<-w.closed
		return 0, errors.New("closed while waiting")
	}
	n := min(len(p), w.left)
	w.left -= n
	return n, nil
}

// Close implements io.Closer.
func (w *waiting) Close() error {
	close(w.closed)
	return nil
}

// A body that waits for more does not hold up a request whose connection ends, and is not blamed for it.
func TestWaitingBodyIsWoken(t *testing.T) {
	take := func(r *http.Request) {
		if _, err := io.ReadFull(r.Body, make([]byte, 100)); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		act  uplinktest.Act
		kind remote.Kind
		took time.Duration
	}{
		"reset": {func(_ *uplinktest.Server, w http.ResponseWriter, r *http.Request, _ http.Handler) {
			take(r)
			if conn, _, err := http.NewResponseController(w).Hijack(); err != nil || conn.Close() != nil {
				t.Error("no connection to close")
			}
		}, remote.KindBroken, 0},
		"stalled": {uplinktest.Hang(100), remote.KindStalled, remote.DefaultIdleTimeout},
		"refused": {func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
			take(r)
			uplinktest.Refuse(409, wire.CodeOffsetMismatch, nil)(s, w, r, next)
		}, remote.KindProblem, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := uplinktest.Start(t)
				rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: c.act})
				body := func() io.Reader { return &waiting{left: 8 << 10, closed: make(chan struct{})} }
				began := time.Now()
				_, err := rig.Client.Stream(t.Context(), hearing(t, rig.Client, 1<<20, body, func(string) {}))
				failed(t, err, c.kind)
				if took := time.Since(began); took > c.took+5*time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}
