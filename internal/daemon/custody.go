package daemon

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/disk"
	"github.com/fieldgw/fieldgw/internal/intake"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/watch"
)

// adopters is how many adoptions run at once: their commits and fsyncs then share the disk's time.
const adopters = 4

// When a candidate that was not taken is offered again.
const (
	retryChanged = 2 * time.Second
	retryStorage = 30 * time.Second
	retryTrouble = time.Minute
	// A repetition stays one unless a person decides otherwise, about it or about the configuration.
	retryRepeated = time.Hour
)

// custody takes candidates from the watch, a few at a time and at its own pace.
func (s *session) custody(ctx context.Context) error {
	var group errgroup.Group
	for _, pulse := range s.adopters {
		group.Go(func() error {
			for c := range s.watch.Candidates() {
				pulse.Beat()
				s.watch.Done(c, s.take(clock.WithPulse(ctx, pulse), c))
				pulse.Rest()
			}
			return nil
		})
	}
	return group.Wait()
}

// take adopts one candidate and says what becomes of its path.
func (s *session) take(ctx context.Context, c watch.Candidate) watch.Disposition {
	if err := ctx.Err(); err != nil {
		return watch.Disposition{Kind: watch.Again, Code: attachment.NotTakenSettling}
	}
	if h := s.captureBlocked(); h != nil {
		code := attachment.NotTakenStorage
		if h.Code == attachment.NotTakenQueueFull {
			code = h.Code
		}
		return watch.Disposition{Kind: watch.Again, Code: code, Detail: h.Detail, Retry: retryStorage}
	}
	w := s.cfg.Watch[c.Watch]
	req := intake.Request{
		Watch: c.Watch, Path: c.Path, RelPath: c.RelPath, Identity: c.Identity, Evidence: c.Evidence,
		Move: w.Adopt == config.AdoptMove, SkipRepeated: w.Repeated == config.RepeatedSkip,
	}
	take := s.intake.Adopt
	if c.Sidecar {
		take = s.intake.TakeSidecar
	} else {
		req.Parent, req.Binding = bindingOf(w, c)
	}
	result, err := take(ctx, req)
	if err != nil {
		if c.Sidecar {
			s.dispatcher.poke() // a manifest may have bound some of what it names
		}
		return s.notTaken(c, err)
	}
	if !result.Known {
		s.dispatcher.poke()
		if req.Binding.Wait > 0 {
			s.awaitSidecar(c)
		}
	}
	if result.Stays {
		return watch.Disposition{Kind: watch.Stays}
	}
	return watch.Disposition{Kind: watch.Taken}
}

func (s *session) notTaken(c watch.Candidate, err error) watch.Disposition {
	var nt *intake.NotTakenError
	switch {
	case errors.As(err, &nt):
		d := watch.Disposition{Kind: watch.Again, Code: nt.Code, Detail: nt.Detail, Retry: retryChanged}
		switch nt.Code {
		case attachment.NotTakenStorage, attachment.NotTakenQueueFull:
			d.Retry = retryStorage
		case attachment.NotTakenUnreadable, attachment.NotTakenPermission, attachment.NotTakenSidecarAlone,
			attachment.NotTakenSidecarAmbiguous, attachment.NotTakenSidecarLate, attachment.NeedsSidecarInvalid:
			d.Retry = retryTrouble
		case attachment.NotTakenRepeated:
			d.Retry = retryRepeated
		}
		if nt.Err != nil && d.Detail == "" {
			d.Detail = attachment.Printable(nt.Err.Error())
		}
		s.log.Debug("not taken", slog.String(logging.KeyPath, c.Path), slog.String(logging.KeyReason, string(nt.Code)), slog.Any(logging.KeyErr, err))
		return d
	case errors.Is(err, context.Canceled):
		return watch.Disposition{Kind: watch.Again, Code: attachment.NotTakenSettling, Retry: retryChanged}
	}
	s.log.Error("adoption failed", slog.String(logging.KeyPath, c.Path), slog.Any(logging.KeyErr, err))
	return watch.Disposition{Kind: watch.Again, Code: attachment.NotTakenQueue, Detail: attachment.Printable(err.Error()), Retry: retryTrouble}
}

// medium names what a path of a watch lies on.
func (s *session) medium(name, path string) intake.Medium {
	w := s.cfg.Watch[name]
	if w == nil {
		return intake.Medium{}
	}
	return intake.Medium(disk.MediumOf(w.Path, filepath.Dir(path), w.Marker))
}
