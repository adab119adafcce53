package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// ErrStoreFailed is returned by Run when the outcome of a commit is unknown: the process must end and start again.
var ErrStoreFailed = errors.New("record store has failed")

// Run serves the protocol on ln and operators on the control socket until ctx ends or the store fails. It then takes no
// new request, gives those under way Limits.Drain, and cuts what still moves with its prefix confirmed. It closes ln, but
// not the server: Close waits for the last handler.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	control, err := admin.Listen(s.opts.FS, s.opts.Dir)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	device, operator := s.httpServer(s.handler), s.httpServer(s.counted(s.admin.Handler()))
	group, running := errgroup.WithContext(ctx)
	serve := func(server *http.Server, ln net.Listener) func() error {
		return func() error {
			if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", ln.Addr(), err)
			}
			return nil
		}
	}
	// Both sockets listen already: who connects now is answered.
	s.notify("READY=1")
	s.log.Info("server is ready", slog.String(logging.KeyAddress, ln.Addr().String()))
	group.Go(serve(device, ln))
	group.Go(serve(operator, control))
	group.Go(func() error { return s.tidy(running) })
	group.Go(func() error {
		var cause error
		drain := s.limits.Drain
		select {
		case <-running.Done():
		case <-s.records.Failed():
			cause, drain = ErrStoreFailed, 0 // nothing can be confirmed any more
		}
		return errors.Join(cause, s.stop(context.WithoutCancel(ctx), drain, device, operator))
	})
	return group.Wait()
}

// tidy looks after the open upload sessions, at the start and from time to time, until ctx ends.
func (s *Server) tidy(ctx context.Context) error {
	again := time.NewTicker(min(max(s.limits.Expire/10, time.Second), tidyTime))
	defer again.Stop()
	for {
		if err := s.engine.Tidy(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("upload sessions could not be looked through", slog.Any(logging.KeyErr, err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

func (s *Server) httpServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:                      handler,
		ReadHeaderTimeout:            s.limits.Header,
		IdleTimeout:                  s.limits.KeepAlive,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// counted makes Close wait for a handler, and refuses requests after it.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.gate.enter() {
			reply.Problem(w, wire.CodeShuttingDown, "the server is stopping")
			return
		}
		defer s.gate.leave()
		next.ServeHTTP(w, r)
	})
}

// stop ends the serving: new appends are refused, requests under way get their time, then what moves is cut.
func (s *Server) stop(ctx context.Context, drain time.Duration, servers ...*http.Server) error {
	s.notify("STOPPING=1")
	s.engine.Refuse()
	errs := []error{s.shutdown(ctx, drain, servers)}
	if errors.Is(errs[0], context.DeadlineExceeded) {
		errs = []error{s.engine.Cut(), s.shutdown(ctx, cutTime, servers)}
	}
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	errs = append(errs, s.engine.Cut()) // no request is left, but tidying may still read a file back
	err := errors.Join(errs...)
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("requests were ended without an answer", slog.Any(logging.KeyErr, err))
		return nil
	}
	return err
}

func (s *Server) shutdown(ctx context.Context, limit time.Duration, servers []*http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var group errgroup.Group
	for _, server := range servers {
		group.Go(func() error { return server.Shutdown(ctx) })
	}
	return group.Wait()
}

func (s *Server) notify(state string) {
	if s.opts.Notify != nil {
		s.opts.Notify(state)
	}
}
