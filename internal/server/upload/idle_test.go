package upload

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

var device = store.Identity{Account: "acme", Device: "d"}

// newEngine returns an engine over an empty store, and a session of the length given.
func newEngine(t *testing.T, length int64) (*Engine, store.Session, func()) {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	records, err := store.OpenEmbedded(filepath.Join(dir, "server.db"), durable.OS(), log)
	if err != nil {
		t.Fatal(err)
	}
	out, err := records.Reserve(t.Context(), store.Reservation{
		By: device, ID: "a", Facts: wire.Reserve{Length: length, SHA256: strings.Repeat("0", 64)}, Room: 1 << 30, MaxSessions: 1,
		NewSession: "s", NewMedia: "m",
	})
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{MaxAppend: 1 << 20, Confirm: 1 << 20, Idle: 30 * time.Second, AppendsPerDevice: 2, Verifications: 1}
	return New(records, store.NewFiles(durable.OS(), dir), limits, time.Now, log), *out.Session, func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An append may take as long as it likes while bytes arrive, and ends when none arrived for the idle time, which frees
// the session; all that arrived is confirmed.
func TestIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, closed := newEngine(t, 100)
		defer closed()
		conn, client := net.Pipe()
		started := time.Now()
		go func() {
			for range 20 {
				<-time.After(29 * time.Second) // in a bubble: no time passes outside
				if _, err := client.Write([]byte("x")); err != nil {
					t.Error(err)
				}
			}
		}()
		offset, err := e.Append(t.Context(), device, s.ID, 0, Body{Reader: conn, Length: -1, Deadline: conn.SetReadDeadline})
		if !errors.Is(err, ErrIdle) || offset != 20 {
			t.Errorf("offset %d, %v", offset, err)
		}
		if took := time.Since(started); took != 20*29*time.Second+30*time.Second {
			t.Errorf("ended after %s", took)
		}
		rest := Body{Reader: strings.NewReader("y"), Length: 1, Deadline: func(time.Time) error { return nil }}
		if offset, err := e.Append(t.Context(), device, s.ID, 20, rest); err != nil || offset != 21 {
			t.Errorf("the next append: offset %d, %v", offset, err)
		}
		if err := errors.Join(conn.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	})
}

// What an append brought is confirmed a second later at the latest, while its client is silent, and told then.
func TestConfirmedWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, closed := newEngine(t, 100)
		defer closed()
		conn, client := net.Pipe()
		var told []int64
		body := Body{Reader: conn, Length: -1, Deadline: conn.SetReadDeadline, Confirmed: func(offset int64) {
			got, err := e.Session(t.Context(), device, s.ID)
			if err != nil || got.Offset != offset {
				t.Errorf("%d told, %d recorded: %v", offset, got.Offset, err)
			}
			told = append(told, offset)
		}}
		go func() {
			for range 3 {
				if _, err := client.Write([]byte("xy")); err != nil {
					t.Error(err)
				}
				<-time.After(confirmEvery + time.Millisecond)
			}
		}()
		if offset, err := e.Append(t.Context(), device, s.ID, 0, body); !errors.Is(err, ErrIdle) || offset != 6 {
			t.Errorf("offset %d, %v", offset, err)
		}
		if !slices.Equal(told, []int64{2, 4, 6}) {
			t.Errorf("told %v", told)
		}
		check(t, errors.Join(conn.Close(), client.Close()))
	})
}

// An append that got no byte for a while gives way to a newer one, which goes on behind what it brought; one that moves
// does not, unless the newer one is of a dialect in which no client has two.
func TestHungAppendGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, closed := newEngine(t, 100)
		defer closed()
		older := func(at, to int64) (end func()) {
			conn, client := net.Pipe()
			ended := make(chan error, 1)
			go func() {
				body := Body{Reader: conn, Length: -1, Deadline: conn.SetReadDeadline}
				offset, err := e.Append(t.Context(), device, s.ID, at, body)
				if offset != to {
					t.Errorf("the older append ends at %d", offset)
				}
				ended <- err
			}()
			if _, err := client.Write(make([]byte, to-at)); err != nil {
				t.Error(err)
			}
			return func() {
				if err := <-ended; !errors.Is(err, ErrOvertaken) {
					t.Errorf("the older append: %v", err)
				}
				check(t, errors.Join(conn.Close(), client.Close()))
			}
		}
		newer := Body{Reader: strings.NewReader("x"), Length: 1, Deadline: func(time.Time) error { return nil }}
		end := older(0, 3)
		<-time.After(hungAfter - time.Millisecond)
		if _, err := e.Append(t.Context(), device, s.ID, 3, newer); !errors.Is(err, ErrBusy) {
			t.Errorf("while the older one moves: %v", err)
		}
		check(t, e.yield(t.Context(), s.Account, s.ID, false))
		<-time.After(time.Millisecond)
		if offset, err := e.Append(t.Context(), device, s.ID, 3, newer); err != nil || offset != 4 {
			t.Errorf("after the older one hung: offset %d, %v", offset, err)
		}
		end()
		end = older(4, 6)
		synctest.Wait()
		newer.Reader, newer.Overtakes = strings.NewReader("y"), true
		if offset, err := e.Append(t.Context(), device, s.ID, 6, newer); err != nil || offset != 7 {
			t.Errorf("taking over: offset %d, %v", offset, err)
		}
		end()
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Cut ends an append at once, wherever its client is, and later ones are refused.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, closed := newEngine(t, 100)
		defer closed()
		conn, client := net.Pipe()
		started := time.Now()
		ended := make(chan error, 1)
		go func() {
			offset, err := e.Append(t.Context(), device, s.ID, 0, Body{Reader: conn, Length: -1, Deadline: conn.SetReadDeadline})
			if offset != 3 {
				t.Errorf("offset %d", offset)
			}
			ended <- err
		}()
		if _, err := io.WriteString(client, "xyz"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if _, err := e.Append(t.Context(), device, s.ID, 0, Body{}); !errors.Is(err, ErrBusy) {
			t.Errorf("second append: %v", err)
		}
		for range 2 {
			if err := e.Cut(); err != nil {
				t.Error(err)
			}
		}
		if err := <-ended; !errors.Is(err, ErrStopping) || time.Since(started) != 0 {
			t.Errorf("after %s: %v", time.Since(started), err)
		}
		if _, err := e.Append(t.Context(), device, s.ID, 3, Body{}); !errors.Is(err, ErrStopping) {
			t.Errorf("after the cut: %v", err)
		}
		if err := errors.Join(conn.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A verification that the server's stop ends is not a verdict: it begins again at the next start.
func TestCutVerification(t *testing.T) {
	e, s, closed := newEngine(t, 0)
	defer closed()
	if err := e.Cut(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Verify(t.Context(), s.Account, s.AttachmentID); !errors.Is(err, ErrStopping) {
		t.Errorf("stopped: %v", err)
	}
	again := New(e.store, e.files, e.limits, e.now, e.log)
	if _, err := again.Verify(t.Context(), s.Account, s.AttachmentID); !errors.Is(err, store.ErrDigest) {
		t.Errorf("at the next start: %v", err)
	}
}

// The confirmed offset is never ahead of the bytes on disk, in whichever way the read of a body ends.
func TestBodyEnds(t *testing.T) {
	e, s, closed := newEngine(t, 100)
	defer closed()
	at := int64(0)
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, errors.New("connection reset")} {
		body := Body{Reader: io.MultiReader(strings.NewReader("four"), failing{end}), Length: -1, Deadline: func(time.Time) error { return nil }}
		offset, err := e.Append(t.Context(), device, s.ID, at, body)
		if (err == nil) != errors.Is(end, io.EOF) || err != nil && !errors.Is(err, ErrBody) || offset != at+4 {
			t.Errorf("%v: offset %d, %v", end, offset, err)
		}
		at = offset
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
