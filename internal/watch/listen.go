package watch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/logging"
)

// open gets the source of events and makes it known; nil when there is none, which costs only speed.
func (w *Watcher) open() EventSource {
	source := w.opts.Source
	if source == nil {
		var err error
		if source, err = w.inotify(); err != nil {
			for _, t := range w.trees {
				t.noSource(noEvents(err))
			}
			if detail := noEvents(err); detail != w.deaf {
				w.deaf = detail
				w.opts.Logger.Warn("no file events, directories are only scanned from time to time", slog.String(logging.KeyErr, detail))
			}
			return nil
		}
	}
	w.deaf = ""
	w.registry.use(source)
	return source
}

// listen turns events into dirty directories until ctx ends. It is always ready to read: whoever scans may take as long
// as it likes, and a queue that overflows while it does only makes everything dirty. Inotify that could not be had, or
// that failed, is tried again at the interval of the rescan. The error is that of closing the source.
func (w *Watcher) listen(ctx context.Context, source EventSource) error {
	for {
		if source != nil {
			w.pump(ctx, source)
			w.registry.use(nil)
			err := source.Close()
			if ctx.Err() != nil {
				return err
			}
			for _, t := range w.trees {
				t.noSource("the source of file events ended")
				t.wantWalk()
			}
			w.opts.Logger.Warn("file events ended, directories are only scanned from time to time", slog.Any(logging.KeyErr, err))
		}
		if w.opts.Source != nil {
			<-ctx.Done()
			return nil
		}
		retry := time.NewTimer(w.opts.Rescan)
		select {
		case <-ctx.Done():
			retry.Stop()
			return nil
		case <-retry.C:
		}
		if source = w.open(); source != nil {
			w.opts.Logger.Info("file events are available again")
			for _, t := range w.trees {
				t.wantWalk()
			}
		}
	}
}

// pump marks directories until ctx or the source ends.
func (w *Watcher) pump(ctx context.Context, source EventSource) {
	events, errs := source.Events(), source.Errors()
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-events:
			if !ok {
				return
			}
			for _, t := range w.trees {
				t.mark(event.Path)
			}
		case err, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			if !errors.Is(err, ErrOverflow) {
				w.opts.Logger.Warn("file events may have been missed, scanning everything", slog.Any(logging.KeyErr, err))
			}
			for _, t := range w.trees {
				t.lostEvents()
			}
		}
	}
}
