package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// failed demands a judged error of a kind.
func failed(t *testing.T, err error, kind remote.Kind) *remote.Error {
	t.Helper()
	e, ok := errors.AsType[*remote.Error](err)
	if !ok || e.Kind != kind {
		t.Fatalf("got %v, want an error of kind %s", err, kind)
	}
	return e
}

// patch is an append to an upload that need not exist.
func patch(t *testing.T, c *remote.Client, content []byte) (*remote.Response, error) {
	t.Helper()
	u, err := c.Resolve("/v1/uploads/x")
	if err != nil {
		t.Fatal(err)
	}
	return c.Stream(t.Context(), remote.Append{
		Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Length: int64(len(content)),
		Body: func() io.Reader { return bytes.NewReader(content) },
	})
}

// An endpoint that would send the token in clear or to a doubtful place makes no client.
func TestEndpoints(t *testing.T) {
	for endpoint, good := range map[string]bool{
		"https://gw.example": true, "https://gw.example:8443/base/": true, "http://127.0.0.1:8443": true, "http://[::1]:1": true,
		"http://localhost": true, "http://gw.example": false, "ftp://gw.example": false, "gw.example": false, "": false,
		"https://": false, "https://u:p@gw.example": false, "https://gw.example/?a=b": false, "https://gw.example/#x": false,
		"https:opaque": false, "https://[::1]:8443": true, "https://[2001:db8::1]/x": true, "https://[fe80::1%25eth0]": false, "http://127.0.0.1.evil.example": false, "https://gw.example:port": false,
	} {
		_, err := remote.New(remote.Options{Endpoint: endpoint, Credential: &uplinktest.Credential{}, Logger: slog.New(slog.DiscardHandler)})
		if (err == nil) != good || err != nil && !errors.Is(err, remote.ErrBadOptions) {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

// An address that the server gives is followed only on the server's own host.
func TestResolve(t *testing.T) {
	c, err := remote.New(remote.Options{
		Endpoint: "https://gw.example/base", Credential: &uplinktest.Credential{}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"v1/uploads/7": "https://gw.example/base/v1/uploads/7", "/v1/uploads/7?x=1#y": "https://gw.example/v1/uploads/7?x=1",
		"https://gw.example/u": "https://gw.example/u", "https://GW.example:443/u": "https://GW.example:443/u", "//gw.example/u": "https://gw.example/u",
		"http://gw.example/u": "", "http://gw.example:443/u": "", "https://gw.example:8443/u": "", "//other/u": "", "https://a@gw.example/u": "", "": "", "mailto:x": "", ":": "",
		"https://gw.example.evil/u": "",
	} {
		u, err := c.Resolve(address)
		switch {
		case want == "" && (err == nil || !errors.Is(err, remote.ErrForeign)):
			t.Errorf("%q: %v, %v", address, u, err)
		case want != "" && (err != nil || u.String() != want):
			t.Errorf("%q: %v, %v; want %s", address, u, err, want)
		}
	}
}

// The probe succeeds at our server alone.
func TestProbe(t *testing.T) {
	html := http.Header{"Content-Type": {"text/html"}}
	marked := http.Header{"Fieldgw-Protocol": {"1"}}
	for name, c := range map[string]struct {
		act  uplinktest.Act
		kind remote.Kind
	}{
		"ours":             {nil, ""},
		"portal's page":    {uplinktest.Foreign(200, html, "<html>"), remote.KindForeign},
		"portal's way":     {uplinktest.Foreign(302, http.Header{"Location": {"http://portal.example/"}}, ""), remote.KindForeign},
		"our way":          {uplinktest.Foreign(307, http.Header{"Location": {"/v1/status"}, "Fieldgw-Protocol": {"1"}}, ""), remote.KindForeign},
		"no mark":          {uplinktest.Foreign(200, nil, `{"service":"fieldgw","protocol":1}`), remote.KindForeign},
		"another protocol": {uplinktest.Foreign(200, http.Header{"Fieldgw-Protocol": {"2"}}, `{"service":"fieldgw","protocol":2}`), remote.KindForeign},
		"another service":  {uplinktest.Foreign(200, marked, `{"service":"other","protocol":1}`), remote.KindForeign},
		"mark on a page":   {uplinktest.Foreign(200, marked, "<html>"), remote.KindForeign},
		"two values":       {uplinktest.Foreign(200, marked, `{"service":"fieldgw","protocol":1} {}`), remote.KindForeign},
		"wrong type":       {uplinktest.Foreign(200, marked, `{"service":"fieldgw","protocol":"1"}`), remote.KindForeign},
		"too long":         {uplinktest.Foreign(200, marked, `{"service":"`+strings.Repeat("x", wire.MaxControlBody)+`"}`), remote.KindForeign},
		"marked error":     {uplinktest.Foreign(500, marked, "oops"), remote.KindForeign},
		"refused":          {uplinktest.Refuse(401, wire.CodeCredentials, nil), remote.KindProblem},
		"error":            {uplinktest.Refuse(500, wire.CodeInternal, nil), remote.KindProblem},
		"dropped":          {uplinktest.Cut(0), remote.KindBroken},
	} {
		t.Run(name, func(t *testing.T) {
			rig := uplinktest.Start(t)
			if c.act != nil {
				rig.Server.Inject(uplinktest.Fault{Step: remote.StepProbe, Times: uplinktest.Always, Act: c.act})
			}
			err := rig.Client.Probe(t.Context())
			if c.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			e := failed(t, err, c.kind)
			if e.Charge || c.kind == remote.KindForeign && !errors.Is(e, remote.ErrForeign) {
				t.Errorf("%+v", e)
			}
			if n := rig.Server.Count(remote.StepProbe); n != 1 && (c.kind != remote.KindBroken || n != 2) {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// A call is repeated once when its connection breaks; an append never is.
func TestQuickRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepProbe, Act: uplinktest.Cut(0)})
		if err := rig.Client.Probe(t.Context()); err != nil {
			t.Error(err)
		}
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Times: uplinktest.Always, Act: uplinktest.Cut(10)})
		_, err := patch(t, rig.Client, make([]byte, 100))
		failed(t, err, remote.KindBroken)
		if n := rig.Server.Count(remote.StepAppend); n != 1 {
			t.Errorf("%d appends", n)
		}
	})
}

// A refusal of a large append costs none of its bytes.
func TestRefusalCostsNoBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: uplinktest.Slow(time.Second)})
		var moved int64
		u, err := rig.Client.Resolve("/v1/uploads/x")
		if err != nil {
			t.Fatal(err)
		}
		_, err = rig.Client.Stream(t.Context(), remote.Append{
			Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Length: 1 << 20, Header: http.Header{"Tus-Resumable": {"1.0.0"}},
			Body: func() io.Reader { return bytes.NewReader(make([]byte, 1<<20)) }, Moved: func(n int64) { moved += n },
		})
		if e := failed(t, err, remote.KindProblem); !e.Gone() || moved != 0 {
			t.Errorf("%v after %d bytes", err, moved)
		}
	})
}

// A body that ends early or cannot be read fails with the reader's error, and the server has no whole request.
func TestBodyFails(t *testing.T) {
	rig := uplinktest.Start(t)
	u, err := rig.Client.Resolve("/v1/uploads/x")
	if err != nil {
		t.Fatal(err)
	}
	_, err = rig.Client.Stream(t.Context(), remote.Append{
		Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Length: 100,
		Body: func() io.Reader { return strings.NewReader("too short") },
	})
	if e := failed(t, err, remote.KindUnread); !errors.Is(e, remote.ErrShortBody) {
		t.Error(err)
	}
}

// The body is out of use when Stream returns, whatever the transport still does.
func TestBodyIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: uplinktest.Hang(0)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		u, err := rig.Client.Resolve("/v1/uploads/x")
		if err != nil {
			t.Fatal(err)
		}
		closed := false
		_, err = rig.Client.Stream(ctx, remote.Append{
			Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Length: 1 << 40, Body: func() io.Reader {
				return readerFunc(func(p []byte) (int, error) {
					if closed {
						t.Error("read after Stream returned")
					}
					return len(p), nil
				})
			},
		})
		closed = true
		failed(t, err, remote.KindCancelled)
		synctest.Wait()
	})
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The limits of waiting, each by itself.
func TestLimits(t *testing.T) {
	const idle, answer = remote.DefaultIdleTimeout, remote.DefaultAnswerTimeout
	small := func(rig *uplinktest.Rig, t *testing.T) error { return rig.Client.Probe(t.Context()) }
	large := func(rig *uplinktest.Rig, t *testing.T) error {
		_, err := patch(t, rig.Client, make([]byte, 1<<20))
		return err
	}
	medium := func(rig *uplinktest.Rig, t *testing.T) error {
		_, err := patch(t, rig.Client, make([]byte, 60<<10))
		return err
	}
	stalledAt := func(up, down int64) func(*uplinktest.Rig) {
		return func(rig *uplinktest.Rig) {
			rig.Network.Plan(func(int) uplinktest.Link { return uplinktest.Link{Up: up, Down: down, Stall: true} })
		}
	}
	at := func(step remote.Step, act uplinktest.Act) func(*uplinktest.Rig) {
		return func(rig *uplinktest.Rig) { rig.Server.Inject(uplinktest.Fault{Step: step, Act: act}) }
	}
	both := func(a, b func(*uplinktest.Rig)) func(*uplinktest.Rig) {
		return func(rig *uplinktest.Rig) { a(rig); b(rig) }
	}
	for name, c := range map[string]struct {
		prepare func(*uplinktest.Rig)
		send    func(*uplinktest.Rig, *testing.T) error
		kind    remote.Kind
		after   time.Duration
	}{
		"silent link, call":     {stalledAt(10, -1), small, remote.KindStalled, idle},
		"silent link, append":   {both(stalledAt(500<<10, -1), at(remote.StepAppend, drain)), large, remote.KindStalled, idle},
		"silent in the answer":  {stalledAt(-1, 20), small, remote.KindStalled, idle},
		"slow answer to a call": {at(remote.StepProbe, uplinktest.Slow(time.Hour)), small, remote.KindStalled, idle},
		"slow answer, append":   {at(remote.StepAppend, drainSlowly), large, remote.KindSilent, answer},
		"trickling, unasked":    {at(remote.StepAppend, trickle), medium, remote.KindSilent, answer},
		"half an answer":        {at(remote.StepAppend, half), large, remote.KindStalled, idle},
		"trickling answer":      {at(remote.StepProbe, trickle), small, remote.KindSilent, answer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := uplinktest.Start(t)
				c.prepare(rig)
				began := time.Now()
				failed(t, c.send(rig, t), c.kind)
				if took := time.Since(began); took < c.after || took > c.after+15*time.Second {
					t.Errorf("took %s, want %s", took, c.after)
				}
			})
		})
	}
}

// drain reads the whole body and refuses it.
func drain(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	uplinktest.Refuse(409, wire.CodeOffsetMismatch, nil)(s, w, r, next)
}

// drainSlowly reads the whole body and thinks about it for an hour.
func drainSlowly(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, _ http.Handler) {
	uplinktest.Slow(time.Hour)(s, w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { drain(s, w, r, nil) }))
}

// half reads the whole body, begins to answer and stops.
func half(_ *uplinktest.Server, w http.ResponseWriter, r *http.Request, _ http.Handler) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	w.Header().Set("Content-Length", "100")
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return
	}
	<-r.Context().Done()
}

// trickle answers a byte in every ten seconds, for ever.
func trickle(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, _ http.Handler) {
	w.Header().Set("Fieldgw-Protocol", "1")
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
		if _, err := io.WriteString(w, " "); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
	}
}

// A slow link is no stalled one: bytes that move in either direction keep a request alive for as long as it takes.
func TestSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: func(_ *uplinktest.Server, w http.ResponseWriter, r *http.Request, _ http.Handler) {
			buf := make([]byte, 20<<10)
			tick := time.NewTicker(20 * time.Second)
			defer tick.Stop()
			for {
				<-tick.C
				if _, err := io.ReadFull(r.Body, buf); err != nil {
					break
				}
			}
			uplinktest.Refuse(409, wire.CodeOffsetMismatch, nil)(nil, w, r, nil)
		}})
		began := time.Now()
		_, err := patch(t, rig.Client, make([]byte, 800<<10))
		failed(t, err, remote.KindProblem)
		if took := time.Since(began); took < 2*remote.DefaultAnswerTimeout {
			t.Errorf("took %s only", took)
		}
	})
}

// Dialling has a limit too, and what cannot be reached is the channel's matter.
func TestCannotConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		rig.Network.Down(true)
		if e := failed(t, rig.Client.Probe(t.Context()), remote.KindConnect); e.Class != remote.ChannelTransient {
			t.Errorf("class %s", e.Class)
		}
		c := rig.NewClient(t, func(o *remote.Options) {
			o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		began := time.Now()
		failed(t, c.Probe(t.Context()), remote.KindConnect)
		if took := time.Since(began); took != remote.DefaultIdleTimeout {
			t.Errorf("dialled for %s", took)
		}
	})
}

// A download has no limit but that bytes move: what was stored may be large, and the link slow.
func TestDownloadMayTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		const pieces = 40
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepVerify, Act: func(_ *uplinktest.Server, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Fieldgw-Protocol", "1")
			for range pieces {
				if _, err := w.Write([]byte("piece")); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
				<-time.After(remote.DefaultIdleTimeout * 2 / 3)
			}
		}})
		began := time.Now()
		var got bytes.Buffer
		_, err := rig.Client.Download(t.Context(), remote.Request{Step: remote.StepVerify, Method: http.MethodGet, Path: "v1/attachments/x"}, &got)
		if err != nil || got.Len() != 5*pieces {
			t.Errorf("%d bytes, %v", got.Len(), err)
		}
		if took := time.Since(began); took < 2*remote.DefaultAnswerTimeout {
			t.Errorf("took only %s", took)
		}
	})
}
