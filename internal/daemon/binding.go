package daemon

import (
	"context"
	"log/slog"
	"path"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/sidecar"
	"github.com/fieldgw/fieldgw/internal/watch"
)

// bindingOf says what a file belongs to by its watch's rule, or what will say it.
func bindingOf(w *config.Watch, c watch.Candidate) (parent string, b attachment.Binding) {
	switch w.Parent {
	case config.ParentDirectory:
		return c.ParentDir, attachment.Binding{Rule: attachment.BindDirectory}
	case config.ParentPattern:
		parent, _ = w.ParentIn(c.RelPath)
		return parent, attachment.Binding{Rule: attachment.BindPattern}
	case config.ParentSidecar:
		return "", attachment.Binding{Rule: attachment.BindSidecar, Wait: w.SidecarWait.Std()}
	}
	return "", attachment.Binding{Rule: attachment.BindNone}
}

// awaitSidecar follows an adoption that a sidecar is to bind: one that lies there already is looked at again.
func (s *session) awaitSidecar(c watch.Candidate) {
	for _, own := range sidecar.Own(c.RelPath) {
		s.watch.Reconsider(c.Watch, own)
	}
	for _, name := range sidecar.Manifests() {
		s.watch.Reconsider(c.Watch, path.Join(path.Dir(c.RelPath), name))
	}
	s.waits.poke()
}

// waits are the attachments that wait for a sidecar. The end of each wait is durable by the wall clock; this adds the running
// time, so that a clock that is set stretches no wait.
type waits struct {
	wake chan struct{}
	// ends holds when each wait ends in running time, as the last look found it.
	ends map[attachment.ID]time.Duration
}

func newWaits() *waits { return &waits{wake: make(chan struct{}, 1)} }

// poke has the waits looked at; it never blocks.
func (w *waits) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Bounds of looking at waits.
const (
	waitsPage  = 256
	waitsPause = 10 * time.Second // a clock may be set, or the device sleep, while a timer runs
	waitsPace  = time.Second
	waitsShare = 10 // looking takes at most this part of the time
)

// soonest is when the first wait ends, by either clock.
type soonest struct {
	running time.Duration
	wall    time.Time
}

func (s soonest) left() time.Duration { return min(s.running-clock.Running(), time.Until(s.wall)) }

// sidecarWaits is the loop that ends waits for sidecars.
func (s *session) sidecarWaits(ctx context.Context) error {
	var (
		next soonest
		pace = waitsPace
	)
	for {
		if next.left() <= 0 {
			var err error
			began := clock.Running()
			if next, err = s.endWaits(ctx); err != nil {
				if ctx.Err() == nil {
					s.logFailure("waits for sidecars could not be ended", err)
				}
				next.running = clock.Running() + waitsPause
			}
			pace = max(waitsPace, waitsShare*(clock.Running()-began))
		}
		timer := time.NewTimer(min(max(next.left(), pace), waitsPause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-s.waits.wake:
			next.running = min(next.running, clock.Running()+pace)
		}
		timer.Stop()
	}
}

// endWaits ends the waits that are over and returns when the first of the others is.
func (s *session) endWaits(ctx context.Context) (soonest, error) {
	next := soonest{running: clock.Running() + 24*time.Hour, wall: time.Now().Add(24 * time.Hour)}
	ends := map[attachment.ID]time.Duration{}
	for cursor := ""; ; {
		ids, after, err := s.queue.IDs(attachment.ShownCaptured, cursor, waitsPage)
		if err != nil {
			return next, err
		}
		for _, id := range ids {
			if err := s.endWait(ctx, id, ends, &next); err != nil {
				return next, err
			}
		}
		if cursor = after; cursor == "" {
			break
		}
	}
	s.waits.ends = ends
	return next, nil
}

func (s *session) endWait(ctx context.Context, id attachment.ID, ends map[attachment.ID]time.Duration, next *soonest) error {
	e, err := s.queue.Get(id)
	if err != nil || e.Manifest == nil || e.Manifest.State != attachment.Captured {
		return err
	}
	b := e.Manifest.Binding
	end, known := s.waits.ends[id]
	if !known {
		end = clock.Running() + min(b.Wait, time.Until(b.Until))
	}
	if own := (soonest{end, b.Until}); own.left() > 0 && e.Manifest.Awaiting() {
		ends[id] = end
		next.running = min(next.running, end)
		if b.Until.Before(next.wall) {
			next.wall = b.Until
		}
		return nil
	}
	if err := s.queue.EndWait(ctx, id, "", "no sidecar came in time"); err != nil {
		return err
	}
	s.log.Info("a file is sent without its sidecar, which did not come in time", slog.String(logging.KeyAttachment, string(id)))
	s.dispatcher.poke()
	return nil
}

// awaiting says that an attachment waits for its sidecar, and until when.
func (s *session) awaiting(m *attachment.Manifest) *control.Waiting {
	w := control.Why(attachment.HoldSidecar, m.ID, m.AdoptedAt.UTC())
	until := m.Binding.Until.UTC()
	w.Rule, w.NextAttempt = "watch."+m.Source.Watch+".sidecar_wait", &until
	return w
}
