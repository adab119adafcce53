package upload

import (
	"context"
	"errors"
	"log/slog"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/store"
)

// Tidy looks once through the open sessions. One that has all its bytes is verified, and registered where its client knows
// no registration: a crash may have come before that, and nobody need ask again. One that got no byte for Limits.Expire is
// ended. What cannot be done is logged and left for the next time. Errors: those of the records, ctx.Err.
func (e *Engine) Tidy(ctx context.Context) error {
	return e.store.OpenSessions(ctx, func(s store.Session, damage error) error {
		if damage != nil || e.Busy(s.Account, s.ID) {
			return nil
		}
		err := e.tidy(ctx, s)
		if err != nil && !errors.Is(err, ErrStopping) {
			e.log.Warn("upload session is left as it is for now",
				attachmentAttrs(s.Account, s.AttachmentID, slog.Int64(logging.KeyOffset, s.Offset), slog.Any(logging.KeyErr, err))...)
		}
		return nil
	})
}

func (e *Engine) tidy(ctx context.Context, s store.Session) error {
	if s.Whole() {
		_, err := e.Verify(ctx, s.Account, s.AttachmentID)
		if errors.Is(err, store.ErrDigest) || errors.Is(err, store.ErrGone) {
			return nil // said already; the session is void
		}
		return err
	}
	busy := func(session string) bool { return e.Busy(s.Account, session) }
	done, err := e.store.Expire(ctx, s.Account, s.ID, e.now().Add(-e.limits.Expire), busy)
	if err == nil && done {
		e.log.Warn("upload session got no byte for too long and was ended, its confirmed bytes are discarded",
			attachmentAttrs(s.Account, s.AttachmentID, slog.Int(logging.KeyAttempt, s.Generation), slog.Int64(logging.KeyOffset, s.Offset))...)
		e.discard(s)
	}
	return err
}
