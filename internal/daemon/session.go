package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/disk"
	"github.com/fieldgw/fieldgw/internal/intake"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/policy"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/watch"
)

// session is everything that works on one account's captures.
type session struct {
	opts    Options
	cfg     *config.Config
	log     *slog.Logger
	acc     account
	started time.Time

	store   *store.Store
	queue   *queue.Queue
	spool   *spool.Spool
	intake  *intake.Intake
	watch   *watch.Watcher
	storage *storage
	waits   *waits

	dispatcher *dispatcher
	clients    []*remote.Client // of every server that the configuration names
	dog        *watchdog
	adopters   [adopters]*clock.Pulse
	trouble    logging.Repeat
	// rebind is closed when the credential turns out to name another account.
	rebind     chan struct{}
	rebindOnce sync.Once
}

// assemble builds the parts and starts nothing.
func assemble(ctx context.Context, opts Options, acc account, st *store.Store, sp *spool.Spool, log *slog.Logger) (*session, error) {
	s := &session{
		opts: opts, cfg: opts.Config, log: log, acc: acc, started: time.Now().UTC(), store: st,
		queue: queue.New(st, queue.Options{Logger: log}), spool: sp, rebind: make(chan struct{}),
		waits: newWaits(), dog: opts.dog,
	}
	for i := range s.adopters {
		s.adopters[i] = new(clock.Pulse)
	}
	s.storage = newStorage(disk.New(acc.dir, disk.Options{}), s.cfg.Storage)
	s.storage.refresh(ctx)
	boot, err := clock.BootID()
	if err != nil {
		log.Warn("this boot has no name, so a source that fails to sync is not trusted after the next boot either", slog.Any(logging.KeyErr, err))
	}
	s.intake = intake.New(intake.Options{FS: opts.FS, Spool: s.spool, Queue: s.queue, Room: s.room, Logger: log,
		SourcePatience: s.cfg.Storage.StagingGrace.Std(), Boot: boot, Medium: s.medium,
	})
	if s.watch, err = newWatcher(opts, log); err != nil {
		return nil, err
	}
	s.dispatcher = newDispatcher(s)
	if s.configured() {
		if err := s.connect(); err != nil {
			// Capturing does not depend on the uplink: it is held, and the status says why.
			log.Error("the uplink cannot be used; capturing goes on", slog.Any(logging.KeyErr, err))
			s.dispatcher.broken = &policy.Hold{Code: attachment.HoldTLS, Rule: "uplink", Detail: err.Error(), Ends: "a restart"}
		}
	}
	return s, nil
}

func newWatcher(opts Options, log *slog.Logger) (*watch.Watcher, error) {
	var roots []watch.Root
	for _, w := range opts.Config.Watches() {
		roots = append(roots, watch.Root{
			Name: w.Name, Path: w.Path, Recursive: w.Recursive, Include: w.Include, Exclude: w.Exclude, Temporary: w.Temporary,
			Settle: w.Settle.Std(), Poll: w.Events == config.EventsPoll, Marker: w.Marker,
			Sidecars: w.Parent == config.ParentSidecar,
		})
	}
	return watch.New(watch.Options{Roots: roots, FS: opts.FS, Logger: log})
}

// configured reports whether there is a server to send to and a credential to send with.
func (s *session) configured() bool {
	return s.cfg.Uplink.Configured() && (s.cfg.Uplink.Identified() || !s.cfg.Uplink.Driver.Names())
}

func (s *session) askRebind() { s.rebindOnce.Do(func() { close(s.rebind) }) }

func scheduleOf(r config.Retry) remote.Schedule {
	of := func(d config.DurationRange) remote.Range { return remote.Range{Min: d.Low.Std(), Max: d.High.Std()} }
	return remote.Schedule{First: of(r.First), Second: of(r.Second), Third: of(r.Third), Cap: of(r.Cap)}
}

// newDispatcher makes the dispatcher; without an uplink it holds everything as not configured.
func newDispatcher(s *session) *dispatcher {
	d := &dispatcher{
		queue: s.queue, spool: s.spool, log: s.log, workers: s.cfg.Uplink.Workers, accept: s.cfg.Uplink.AcceptGrade, schedule: scheduleOf(s.cfg.Uplink.Retry),
		wake: make(chan struct{}, 1), rnd: rand.Float64, paused: new(atomic.Bool), beats: map[string]*beat{}, suspects: map[attachment.ID]bool{},
		traffic: newTraffic(s.cfg.Uplink.Workers, s.cfg.Uplink.Small.Bytes()),
		windows: s.cfg.Uplink.Schedule(), trusted: clock.Trusted, short: s.storage.short,
	}
	d.channel = remote.NewChannel(remote.ChannelState{}, d.schedule, time.Now, d.rnd)
	return d
}

// statusLine is the one line that the service manager shows.
func (s *session) statusLine() string {
	counts, err := s.queue.Counts()
	if err != nil {
		return "the queue cannot be read"
	}
	var owed int64
	for c, n := range counts {
		if c.Owed() {
			owed += n.Items
		}
	}
	line := fmt.Sprintf("%d waiting for delivery", owed)
	if h := s.dispatcher.hold(time.Now(), false); h != nil {
		line += ", sending held: " + string(h.Code)
	}
	if h := s.captureBlocked(); h != nil {
		line += ", capture blocked: " + string(h.Code)
	}
	return line
}

func (s *session) logFailure(msg string, err error) {
	s.log.Error(msg, slog.Any(logging.KeyErr, err))
}
