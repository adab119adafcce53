package upload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Recover brings files and records together after a start, before any request. Every open session's data file is cut
// down to its confirmed offset; a file that is shorter than that or missing makes the session void, since a confirmed
// offset never decreases. Data files that no open session names are removed. Contents are never touched.
func (e *Engine) Recover(ctx context.Context) error {
	err := e.store.OpenSessions(ctx, func(s store.Session, damage error) error {
		if damage != nil {
			e.log.Error("record of an upload session is damaged, the device must send its bytes again",
				slog.String(logging.KeyAccount, s.Account), slog.Any(logging.KeyErr, damage))
			return nil
		}
		err := e.settle(ctx, s)
		if errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNotFound) {
			e.log.Error("record of an attachment is damaged", attachmentAttrs(s.Account, s.AttachmentID, slog.Any(logging.KeyErr, err))...)
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("recover uploads: %w", err)
	}
	err = e.files.Accounts(func(account string) error {
		var broken error // of the records, without which there is no server
		err := e.files.Uploads(account, func(session string) error {
			broken = e.orphan(ctx, account, session)
			return broken
		})
		if err != nil && broken == nil {
			e.log.Error("data files of an account cannot be listed, those that no session names stay",
				slog.String(logging.KeyAccount, account), slog.Any(logging.KeyErr, err))
		}
		return broken
	})
	if err != nil {
		return fmt.Errorf("recover uploads: %w", err)
	}
	return nil
}

// orphan removes a data file that no open session names. Errors are those of the records.
func (e *Engine) orphan(ctx context.Context, account, session string) error {
	if !store.IsSessionID(session) {
		e.log.Warn("file among the uploads is none of ours, it stays", slog.String(logging.KeyAccount, account), slog.String(logging.KeyPath, session))
		return nil
	}
	s, err := e.store.Session(ctx, account, session)
	switch {
	case err == nil && s.State == store.SessionOpen, errors.Is(err, store.ErrDamaged):
		return nil // a damaged record may name this file: it stays
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	}
	if err := e.files.Discard(account, session); err != nil {
		e.log.Warn("data file without an open upload session cannot be removed", slog.String(logging.KeyAccount, account),
			slog.Any(logging.KeyErr, err))
		return nil
	}
	e.log.Info("data file without an open upload session removed", slog.String(logging.KeyAccount, account))
	return nil
}

func (e *Engine) settle(ctx context.Context, s store.Session) error {
	shortened, err := e.files.Settle(s.Account, s.ID, s.Offset)
	if errors.Is(err, store.ErrLost) {
		moved, merr := e.moved(ctx, s)
		if merr != nil || moved {
			return merr
		}
		if err := e.lose(ctx, s, err); !errors.Is(err, store.ErrGone) {
			return err
		}
		return nil
	}
	if err != nil {
		// It is this session's trouble alone, or its account's: nothing is told of it until it is settled.
		e.unsettled.Store(s.Account+"/"+s.ID, nil)
		e.log.Error("data file of an upload session cannot be brought to its confirmed offset",
			attachmentAttrs(s.Account, s.AttachmentID, slog.Any(logging.KeyErr, err))...)
		return nil
	}
	if shortened {
		e.log.Info("unconfirmed bytes cut off", attachmentAttrs(s.Account, s.AttachmentID, slog.Int64(logging.KeyOffset, s.Offset))...)
	}
	return nil
}

// settled returns an open session whose data file fits its offset: one that Recover could not settle is settled now, or
// fails with what stands against it.
func (e *Engine) settled(ctx context.Context, s store.Session) (store.Session, error) {
	at := s.Account + "/" + s.ID
	if _, waits := e.unsettled.Load(at); !waits {
		return s, nil
	}
	e.settling.Lock()
	defer e.settling.Unlock()
	if _, waits := e.unsettled.Load(at); waits {
		_, err := e.files.Settle(s.Account, s.ID, s.Offset)
		if errors.Is(err, store.ErrLost) {
			moved, merr := e.moved(ctx, s)
			if merr != nil {
				return s, merr
			}
			if !moved {
				return s, e.lose(ctx, s, err)
			}
		} else if err != nil {
			return s, err
		}
		e.unsettled.Delete(at)
	}
	return e.store.Session(ctx, s.Account, s.ID)
}

// moved reports whether a complete session's file became the content already and only the record is missing; the next
// verification reads it there.
func (e *Engine) moved(ctx context.Context, s store.Session) (bool, error) {
	if !s.Whole() {
		return false, nil
	}
	a, err := e.store.Attachment(ctx, s.Account, s.AttachmentID)
	if err != nil || a.State != wire.StateReserved || a.Facts.SHA256 == "" {
		return false, err
	}
	_, whole, err := e.files.Look(a.Account, a.Facts.SHA256, a.Facts.Length)
	if err != nil {
		e.log.Error("content of a complete upload session cannot be looked for, its verification will",
			attachmentAttrs(a.Account, a.ID, slog.Any(logging.KeyErr, err))...)
		return true, nil
	}
	return whole, nil
}
