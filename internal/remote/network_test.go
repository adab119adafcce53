package remote_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

// secured is a server with TLS on a network in memory, and a client of it.
type secured struct {
	*remote.Client
	server  *uplinktest.Server
	network *uplinktest.Network
	mu      sync.Mutex
	protos  map[remote.Step]string // by which version of HTTP a step came last
}

// secure starts one that offers HTTP/2 or does not.
func secure(t *testing.T, http2 bool) *secured {
	t.Helper()
	cert, ca := certificate(t, time.Now().Add(24*time.Hour), "127.0.0.1")
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &secured{server: uplinktest.NewServer(), network: &uplinktest.Network{}, protos: map[remote.Step]string{}}
	web := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.protos[map[string]remote.Step{http.MethodPatch: remote.StepAppend, http.MethodGet: remote.StepProbe}[r.Method]] = r.Proto
			s.mu.Unlock()
			s.server.ServeHTTP(w, r)
		}),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 16}, Protocols: new(http.Protocols),
	}
	web.Protocols.SetHTTP1(true)
	web.Protocols.SetHTTP2(http2)
	ended, l := make(chan error, 1), s.network.Listener()
	go func() { ended <- web.ServeTLS(l, "", "") }()
	credential := &uplinktest.Credential{}
	credential.Set(uplinktest.Token, nil, false)
	var err error
	s.Client, err = remote.New(remote.Options{
		Endpoint: "https://127.0.0.1/", CAFile: path, Credential: credential, Logger: slog.New(slog.DiscardHandler), Dial: s.network.Dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.server.Release()
		s.CloseIdle()
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

func (s *secured) proto(step remote.Step) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.protos[step]
}

// Calls use HTTP/2 where the server offers it, and appends then have a connection of their own. Elsewhere one connection
// does for both.
func TestHTTP2(t *testing.T) {
	for name, c := range map[string]struct {
		offered       bool
		calls, append string
		dials         int
	}{"offered": {true, "HTTP/2.0", "HTTP/1.1", 2}, "not offered": {false, "HTTP/1.1", "HTTP/1.1", 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := secure(t, c.offered)
				for range 2 {
					if err := s.Probe(t.Context()); err != nil {
						t.Fatal(err)
					}
					_, err := patch(t, s.Client, make([]byte, 30<<10))
					failed(t, err, remote.KindProblem)
				}
				if got := s.proto(remote.StepProbe); got != c.calls {
					t.Errorf("calls by %s", got)
				}
				if got := s.proto(remote.StepAppend); got != c.append {
					t.Errorf("appends by %s", got)
				}
				if got := s.network.Dials(); got != c.dials {
					t.Errorf("%d connections", got)
				}
			})
		})
	}
}

// A stream whose body nobody reads ends after the idle timeout, and what shares its connection goes on meanwhile and after.
func TestStalledStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t, true)
		s.server.Inject(uplinktest.Fault{Step: remote.StepReserve, Act: uplinktest.Hang(0)})
		ended := make(chan error)
		began := time.Now()
		go func() {
			_, err := s.Do(t.Context(), remote.Request{
				Step: remote.StepReserve, Method: http.MethodPut, Path: "v1/attachments/x", Message: strings.Repeat("x", 500<<10),
			})
			ended <- err
		}()
		for range 5 {
			<-time.After(5 * time.Second)
			if err := s.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.network.Dials(); n != 1 {
			t.Errorf("%d connections", n)
		}
		failed(t, <-ended, remote.KindStalled)
		if took := time.Since(began); took < remote.DefaultIdleTimeout || took > remote.DefaultIdleTimeout+5*time.Second {
			t.Errorf("took %s", took)
		}
		if err := s.Probe(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A dead connection of HTTP/2 is found out by the first request on it, and does not get a second one.
func TestDeadHTTP2Connection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := secure(t, true)
		s.network.Plan(func(dial int) uplinktest.Link {
			if dial == 1 {
				return uplinktest.Link{Up: 4 << 10, Down: uplinktest.Unlimited, Stall: true}
			}
			return uplinktest.Good()
		})
		var err error
		for range 500 {
			if err = s.Probe(t.Context()); err != nil {
				break
			}
		}
		failed(t, err, remote.KindStalled)
		if err := s.Probe(t.Context()); err != nil || s.network.Dials() != 2 {
			t.Errorf("%v, %d connections", err, s.network.Dials())
		}
	})
}

// Interim answers (1xx) keep a request alive in both versions of HTTP, each for another idle timeout.
func TestInterimAnswers(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := secure(t, http2)
				interim := func(times int) uplinktest.Act {
					return func(_ *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
						for range times {
							<-time.After(remote.DefaultIdleTimeout * 2 / 3)
							w.WriteHeader(http.StatusEarlyHints)
						}
						next.ServeHTTP(w, r)
					}
				}
				s.server.Inject(uplinktest.Fault{Step: remote.StepProbe, Act: interim(4)})
				if err := s.Probe(t.Context()); err != nil {
					t.Error(err)
				}
				s.server.Inject(uplinktest.Fault{Step: remote.StepProbe, Act: uplinktest.Slow(time.Minute)})
				failed(t, s.Probe(t.Context()), remote.KindStalled)
			})
		})
	}
}

// elsewhere is a connection from an address that this machine does not have.
type elsewhere struct{ net.Conn }

func (elsewhere) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 443} }

// When an address is gone, the requests on it end at once and cost nothing: an append as moved, and a call is repeated.
func TestLinkChanged(t *testing.T) {
	rig := uplinktest.Start(t)
	hanging := make(chan struct{}, 2)
	hang := func(_ *uplinktest.Server, _ http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		hanging <- struct{}{}
		<-r.Context().Done()
	}
	dialled := func(o *remote.Options) {
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := rig.Network.Dial(ctx, network, address)
			return elsewhere{c}, err
		}
	}
	for _, end := range []func(*remote.Client) int{(*remote.Client).LinkChanged, (*remote.Client).Woke} {
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: hang})
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepProbe, Act: hang})
		c := rig.NewClient(t, dialled)
		append, call := make(chan error, 1), make(chan error, 1)
		go func() { call <- c.Probe(t.Context()) }()
		u, err := c.Resolve("/v1/uploads/x")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := c.Stream(t.Context(), remote.Append{
				Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Length: 10, Body: func() io.Reader { return bytes.NewReader(make([]byte, 10)) },
			})
			append <- err
		}()
		<-hanging
		<-hanging
		if n := end(c); n != 2 {
			t.Errorf("%d connections ended", n)
		}
		e := failed(t, <-append, remote.KindMoved)
		if e.Charge || e.Confirm || !errors.Is(e, remote.ErrMoved) {
			t.Errorf("%+v", e)
		}
		if err := <-call; err != nil {
			t.Errorf("call: %v", err)
		}
	}
}

// A connection that is sound stays, whatever else changed.
func TestLinkChangedElsewhere(t *testing.T) {
	server := uplinktest.NewServer()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: server}
	go func() { _ = web.Serve(l) }()
	t.Cleanup(func() { _ = web.Close() })
	hanging, goOn := make(chan struct{}), make(chan struct{})
	server.Inject(uplinktest.Fault{Step: remote.StepProbe, Act: func(_ *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		close(hanging)
		<-goOn
		next.ServeHTTP(w, r)
	}})
	credential := &uplinktest.Credential{}
	credential.Set(uplinktest.Token, nil, false)
	c, err := remote.New(remote.Options{Endpoint: "http://" + l.Addr().String(), Credential: credential, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	probed := make(chan error)
	go func() { probed <- c.Probe(t.Context()) }()
	<-hanging
	if n := c.LinkChanged(); n != 0 {
		t.Errorf("%d connections ended", n)
	}
	close(goOn)
	if err := <-probed; err != nil || server.Count(remote.StepProbe) != 1 {
		t.Errorf("%v, %d requests", err, server.Count(remote.StepProbe))
	}
}

// After a suspension the first request does not use a connection of before.
func TestSuspended(t *testing.T) {
	var running time.Duration
	rig := uplinktest.Start(t, func(o *remote.Options) { o.Running = func() time.Duration { return running } })
	for i, c := range []struct {
		asleep time.Duration
		dials  int
	}{{0, 1}, {time.Second, 1}, {time.Hour, 2}, {0, 2}} {
		running += c.asleep
		if err := rig.Client.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := rig.Network.Dials(); got != c.dials {
			t.Errorf("request %d: %d connections, want %d", i, got, c.dials)
		}
	}
}

// An IPv6 address is an endpoint like any other, and a name that nobody knows is a link that is down, looked up anew each
// time.
func TestEndpointsByAddressAndName(t *testing.T) {
	credential := &uplinktest.Credential{}
	credential.Set(uplinktest.Token, nil, false)
	client := func(endpoint string) *remote.Client {
		c, err := remote.New(remote.Options{
			Endpoint: endpoint, Credential: credential, Logger: slog.New(slog.DiscardHandler), Proxy: remote.ProxyNone, IdleTimeout: 5 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdle)
		return c
	}
	unknown := client("https://no-such-host.invalid")
	for range 2 {
		e := failed(t, unknown.Probe(t.Context()), remote.KindConnect)
		if e.Class != remote.ChannelTransient || e.Reason != attachment.HoldOffline {
			t.Errorf("%+v", e)
		}
	}
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("not run: there is no IPv6 here: %v", err)
	}
	web := &http.Server{Handler: uplinktest.NewServer()}
	go func() { _ = web.Serve(l) }()
	t.Cleanup(func() { _ = web.Close() })
	if err := client("http://" + l.Addr().String()).Probe(t.Context()); err != nil {
		t.Error(err)
	}
}
