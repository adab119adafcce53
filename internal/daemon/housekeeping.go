package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/logging"
)

// How often the slow loop looks at each thing.
const (
	sensorPeriod  = 10 * time.Second
	releasePeriod = time.Minute
	sweepPeriod   = 10 * time.Minute
	statusPeriod  = 30 * time.Second
)

// housekeeping is the slow loop: free space, the clock, sources still to be removed, adoptions that were left, staging
// that nobody names, and the one line that the service manager shows.
func (s *session) housekeeping(ctx context.Context) error {
	var (
		sensor  = time.NewTicker(sensorPeriod)
		release = time.NewTicker(releasePeriod)
		sweep   = time.NewTicker(sweepPeriod)
		status  = time.NewTicker(statusPeriod)
		steps   clock.StepDetector
		sleeps  clock.SleepDetector
		seen    = map[attachment.ID]int64{}
		window  attachment.Code
	)
	defer sensor.Stop()
	defer release.Stop()
	defer sweep.Stop()
	defer status.Stop()
	s.releaseSources(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sensor.C:
			s.observeStorage(ctx)
			s.observeClock(ctx, &steps)
			s.observeSleep(ctx, &sleeps)
			window = s.observeWindow(window)
			s.dispatcher.stopStale()
			s.observeCredential()
		case <-release.C:
			s.releaseSources(ctx)
		case <-sweep.C:
			now, grace := int64(clock.Running()), int64(s.cfg.Storage.StagingGrace.Std())
			if err := s.intake.SweepStaging(seen, now, grace); err != nil && ctx.Err() == nil {
				s.logFailure("staging could not be swept", err)
			}
		case <-status.C:
			s.opts.Notify("STATUS=" + s.statusLine())
		}
	}
}

func (s *session) observeStorage(ctx context.Context) {
	if hold := s.queueFull(); hold != nil {
		s.trouble.Fail(ctx, s.log, "queue", "capture is blocked; files stay where they are",
			slog.String(logging.KeyHold, string(hold.Code)), slog.String("detail", hold.Detail))
	}
	if !s.storage.observe(ctx) {
		return
	}
	if hold := s.storage.blocked(); hold != nil {
		s.log.Error("capture is blocked; files stay where they are", slog.String(logging.KeyHold, string(hold.Code)), slog.String("detail", hold.Detail))
		return
	}
	s.log.Info("capture goes on")
	s.watch.Rescan("")
}

// observeSleep looks at everything anew after a suspension: waits ran on meanwhile, and connections are dead without knowing
// it.
func (s *session) observeSleep(ctx context.Context, sleeps *clock.SleepDetector) {
	slept := sleeps.Observe(time.Now(), clock.Running())
	if slept == 0 {
		return
	}
	s.log.Info("the machine was suspended", slog.Duration("slept", slept))
	if err := s.queue.ClampWaits(ctx); err != nil && ctx.Err() == nil {
		s.logFailure("waits could not be adjusted to the clock", err)
	}
	for _, c := range s.clients {
		c.Woke()
	}
	s.waits.poke()
	s.dispatcher.poke()
}

// observeClock ends waits that a clock set back would stretch.
func (s *session) observeClock(ctx context.Context, steps *clock.StepDetector) {
	step, stepped := steps.Observe(time.Now(), clock.Running())
	if !stepped {
		return
	}
	s.log.Warn("the clock was set", slog.Duration("step", step))
	if err := s.queue.ClampWaits(ctx); err != nil && ctx.Err() == nil {
		s.logFailure("waits could not be adjusted to the clock", err)
	}
	s.waits.poke()
	if step < 0 {
		s.dispatcher.channel.Reset(retrySpread)
	}
	s.dispatcher.poke()
}

// observeWindow tells of a window that opened or closed, for whatever reason, and returns the code of the hold that stands.
// The dispatcher wakes by itself when a window opens; it does not hear of free space, or sleep through a suspension.
func (s *session) observeWindow(before attachment.Code) (now attachment.Code) {
	h := s.dispatcher.barred(time.Now(), false)
	if h.OfWindow() {
		now = h.Code
	}
	if now == before {
		return now
	}
	if now == "" {
		s.log.Info("upload windows hold nothing back")
	} else {
		s.log.Info("upload windows hold sending", slog.String(logging.KeyHold, string(now)), slog.Time(logging.KeyNotBefore, h.Until))
	}
	s.dispatcher.poke()
	return now
}

// observeCredential lets a new credential end a hold on credentials, and one for another account open that account.
func (s *session) observeCredential() {
	named, ok := identity(s.cfg)
	if ok && named.Account != s.acc.name {
		s.askRebind()
		return
	}
	d := s.dispatcher
	if ok && d.client != nil && aboutCredential(d.channel.State().Code) && d.client.CredentialChanged() {
		d.channel.Reset(retrySpread)
		d.poke()
	}
}

func (s *session) releaseSources(ctx context.Context) {
	if err := s.intake.Resume(ctx); err != nil && ctx.Err() == nil {
		s.logFailure("an interrupted adoption could not be finished", err)
	}
	if err := s.intake.ReleasePending(ctx); err != nil && ctx.Err() == nil {
		s.logFailure("sources could not be removed", err)
	}
}
