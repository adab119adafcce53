// Package server answers the local control API: HTTP/JSON over a unix socket, for fieldgwctl and capture apps.
//
// It owns the routes, the socket's rights, the limits and the streaming of submissions and events; what the answers say is the
// Backend's matter. It promises that nobody can connect before the socket has its group and mode, that every decision
// carries the caller whom the kernel named, that a submitted file is never held in memory, and that a slow or silent
// client costs a bounded amount of memory and time and never delays the daemon.
//
// Whoever can connect may read and act: the socket's group is the right to do so. Read backend.go first, then server.go for
// the routes, listen.go for the socket, submit.go and events.go for the two streams.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/fieldgw/fieldgw/internal/control"
)

// The written limits; sizes are in package control.
const (
	maxHeader      = 64 << 10 // bytes of a request's header
	maxSubscribers = 32       // event streams at one time
	maxSubmissions = 8        // submissions at one time
	maxBacklog     = 1024     // transitions kept for one slow subscriber
)

// timing holds the limits in time; tests shorten them.
type timing struct {
	header    time.Duration // for a request's header
	idle      time.Duration // between two pieces of a request's body
	answer    time.Duration // for writing one answer or one event
	keepAlive time.Duration // of a connection without request
	heartbeat time.Duration // between two signs of life in an event stream
	drain     time.Duration // for requests under way when the daemon stops
}

var defaultTiming = timing{
	header: 5 * time.Second, idle: 30 * time.Second, answer: 30 * time.Second, keepAlive: time.Minute,
	heartbeat: 15 * time.Second, drain: 10 * time.Second,
}

// Options are what a Server needs besides its backend.
type Options struct {
	// Logger takes failures of the backend and of connections; refusals are not logged.
	Logger *slog.Logger
}

// Server answers requests for one Backend.
type Server struct {
	backend     Backend
	log         *slog.Logger
	timing      timing
	subscribers slots
	submissions slots
	stopping    chan struct{} // closed when Run begins to stop
}

// New makes a server and starts nothing.
func New(backend Backend, o Options) *Server {
	return &Server{
		backend: backend, log: o.Logger, timing: defaultTiming,
		subscribers: make(slots, maxSubscribers), submissions: make(slots, maxSubmissions),
		stopping: make(chan struct{}),
	}
}

// Run serves l until ctx ends, and closes it. Then event streams end at once; other requests under way get a few seconds,
// after which their contexts end and their connections close. It returns nil after an orderly stop. A Server runs once.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	requests, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	hs := &http.Server{
		Handler:           s.routes(),
		ConnContext:       withPeer,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: s.timing.header,
		IdleTimeout:       s.timing.keepAlive,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	select {
	case err := <-served:
		close(s.stopping)
		return fmt.Errorf("serve control socket: %w", errors.Join(err, hs.Close()))
	case <-ctx.Done():
	}
	close(s.stopping)
	patience, cancel := context.WithTimeout(requests, s.timing.drain)
	defer cancel()
	err := hs.Shutdown(patience)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("control requests were cut off at stop")
		abort()
		err = hs.Close()
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	if err != nil {
		return fmt.Errorf("stop control socket: %w", err)
	}
	return nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				s.refuse(w, r, err)
			}
		})
	}
	route("GET /v1/status", s.status)
	route("GET /v1/attachments", s.list)
	route("GET /v1/attachments/{ref}", s.get)
	route("GET /v1/not-taken", s.notTaken)
	route("GET /v1/records", s.records)
	route("POST /v1/attachments/retry", s.act(s.backend.Retry))
	route("POST /v1/attachments/prioritize", s.act(s.backend.Prioritize))
	route("POST /v1/attachments/pause", s.act(s.backend.Pause))
	route("POST /v1/attachments/resume", s.act(s.backend.Resume))
	route("POST /v1/channel/pause", s.actOnChannel(s.backend.PauseChannel))
	route("POST /v1/channel/resume", s.actOnChannel(s.backend.ResumeChannel))
	route("POST /v1/submissions", s.submit)
	route("GET /v1/events", s.events)
	route("POST /v1/check", s.check)
	route("/", func(_ http.ResponseWriter, r *http.Request) error {
		return control.Refuse(control.CodeNoSuchRoute, fmt.Sprintf("%s %.100q", r.Method, r.URL.Path))
	})
	return mux
}

// slots counts what may run at one time.
type slots chan struct{}

// take reserves a slot; release gives it back. Without a free one it refuses at once.
func (s slots) take() (release func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	default:
		return nil, control.Refuse(control.CodeBusy, fmt.Sprintf("%d of these requests are under way", cap(s)))
	}
}
