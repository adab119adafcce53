package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/user"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/control/server"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Program names the daemon in its lock and to its peers.
const Program = "fieldgwd"

// Options are what Run needs.
type Options struct {
	Config *config.Config
	FS     *durable.FS
	Logger *slog.Logger
	// QueueMax is how large the queue file may become, in bytes; 0 leaves that to internal/store.
	QueueMax int64
	// Notify tells the service manager (sd_notify(3)); nil tells nobody.
	Notify func(state string)
	// Watchdog is within which time the service manager wants to hear WATCHDOG=1; 0: it does not.
	Watchdog time.Duration

	dog *watchdog
}

// Run is the daemon's life: it holds the state directory's lock, opens the account, recovers, and works until ctx ends or
// the queue fails. A damaged queue does not end it: it then adopts nothing and says so. It returns nil after an orderly
// stop. Errors wrap store.ErrLocked when another process holds the state directory, and ErrQueueFailed.
func Run(ctx context.Context, opts Options) (err error) {
	if opts.Notify == nil {
		opts.Notify = func(string) {}
	}
	if err := opts.FS.MkdirAll(opts.Config.StateDir, 0o755); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	lock, err := store.LockDir(opts.FS, opts.Config.StateDir, Program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	opts.dog = newWatchdog(opts)
	feeding, starve := context.WithCancel(context.WithoutCancel(ctx)) // until the last loop has stopped
	var fed sync.WaitGroup
	fed.Go(func() { opts.dog.run(feeding) })
	defer fed.Wait()
	defer starve()
	for {
		err := runAccount(ctx, opts)
		switch {
		case errors.Is(err, errRebind):
			opts.Logger.Info("credential names another account; opening it")
		case errors.Is(err, store.ErrNoSpace) && ctx.Err() == nil:
			// The volume is full and nothing can be recorded, not even that. Stay up, say so, and try again.
			if err := waitForRoom(ctx, opts, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// roomPeriod is how long the daemon stays degraded before it looks for room again.
const roomPeriod = 15 * time.Second

func waitForRoom(ctx context.Context, opts Options, cause error) error {
	acc, err := bindAccount(opts.FS, opts.Config)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, roomPeriod)
	defer cancel()
	return runDegraded(wait, opts, acc, cause)
}

// runAccount works with one account until ctx ends or the account changes.
func runAccount(ctx context.Context, opts Options) (err error) {
	acc, err := bindAccount(opts.FS, opts.Config)
	if err != nil {
		return err
	}
	log := opts.Logger.With(slog.String(logging.KeyAccount, acc.name))
	sp, err := spool.Open(opts.FS, acc.dir)
	if err != nil {
		return err
	}
	st, err := openQueue(opts, acc, sp, log)
	if unusable(err) {
		log.Error("the queue cannot be used: nothing is taken and nothing is sent", slog.Any(logging.KeyErr, err))
		return runDegraded(ctx, opts, acc, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	s, err := assemble(ctx, opts, acc, st, sp, log)
	if err != nil {
		return err
	}
	if err := s.recover(ctx); err != nil {
		return err
	}
	listener, err := listen(opts)
	if err != nil {
		return err
	}
	return s.run(ctx, listener)
}

// listen opens the control socket. A group that does not exist keeps nobody from capturing: then only root and the daemon's
// own user can use the socket, and the log says so.
func listen(opts Options) (net.Listener, error) {
	cfg := opts.Config.Control
	listener, err := server.Listen(cfg.Socket, cfg.Group)
	if unknown := user.UnknownGroupError(""); errors.As(err, &unknown) {
		opts.Logger.Warn("the group of the control socket does not exist: only root and this user can use it; create the group or set control.group",
			slog.String("group", cfg.Group))
		return server.Listen(cfg.Socket, "")
	}
	return listener, err
}

// unusable reports whether the queue file itself is the matter, so that staying up and saying so is all there is to do.
func unusable(err error) bool {
	return errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNewerSchema) || errors.Is(err, store.ErrOtherSchema) ||
		errors.Is(err, ErrQueueMissing)
}

// recover brings queue and spool into step, before anything is adopted or sent.
func (s *session) recover(ctx context.Context) error {
	started := time.Now()
	if err := s.queue.Recover(ctx); err != nil {
		return fmt.Errorf("recover the queue: %w", err)
	}
	if err := s.restoreDecisions(ctx); err != nil {
		return err
	}
	report, err := s.intake.Recover(ctx)
	if err != nil {
		return fmt.Errorf("recover the spool: %w", err)
	}
	logReport(s.log, "recovered", report, time.Since(started))
	return s.acceptSent(ctx)
}

// drainTimeout bounds how long workers may take to record where they stopped.
const drainTimeout = 20 * time.Second

// run starts the loops and waits for their end.
func (s *session) run(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	s.dog.add("dispatcher", &s.dispatcher.pulse)
	s.dog.add("watch", s.watch.Pulses()...)
	s.dog.add("custody", s.adopters[:]...)
	var writer clock.Pulse
	s.dog.add("queue", &writer)
	defer s.dog.removeAll()
	group.Go(func() error { return s.proveWriter(ctx, &writer) })
	group.Go(func() error { return s.watch.Run(ctx) })
	group.Go(func() error { return s.custody(ctx) })
	group.Go(func() error { return s.sidecarWaits(ctx) })
	group.Go(func() error { return s.dispatcher.run(ctx) })
	group.Go(func() error { return s.housekeeping(ctx) })
	group.Go(func() error { return s.followLink(ctx) })
	group.Go(func() error { return server.New(s, server.Options{Logger: s.log}).Run(ctx, listener) })
	group.Go(func() error { return s.guard(ctx) })
	s.opts.Notify("READY=1\nSTATUS=" + s.statusLine())
	s.log.Info("ready", slog.Int("watches", len(s.cfg.Watch)), slog.Bool("configured", s.configured()))
	err := group.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	s.log.Info("stopped")
	return err
}

// guard ends the assembly when the queue fails, when the account changes, or in order.
func (s *session) guard(ctx context.Context) error {
	select {
	case <-ctx.Done():
		s.opts.Notify("STOPPING=1\nSTATUS=stopping")
		return nil
	case <-s.store.Failed():
		s.log.Error("the queue failed; ending, so that a fresh start can look at it", slog.Any(logging.KeyErr, s.store.Err()))
		return fmt.Errorf("%w: %w", ErrQueueFailed, s.store.Err())
	case <-s.rebind:
		return errRebind
	}
}
