package upload

import (
	"context"
	"errors"
	"log/slog"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Verify makes sure that the attachment is verified or registered and its content is there, reading its bytes back where
// that is still to be done, and returns its record. It may be called at any time and any number of times; calls for one attachment share
// one reading. Errors: store.ErrNotFound, store.ErrNotVerified while bytes are missing, store.ErrDigest when the stored
// bytes were not the declared ones, store.ErrGone when they are lost, ErrStopping. With store.ErrNotVerified and
// store.ErrGone the record is returned too.
func (e *Engine) Verify(ctx context.Context, account, id string) (store.Attachment, error) {
	a, _, err := e.unverified(ctx, account, id)
	if err != nil || a.State != wire.StateReserved {
		return a, err
	}
	_, err, _ = e.flight.Do(account+"/"+id, func() (any, error) {
		ctx := context.WithoutCancel(ctx) // others may wait for the same reading
		a, s, err := e.unverified(ctx, account, id)
		if err != nil || a.State != wire.StateReserved {
			return nil, err
		}
		return nil, e.verify(ctx, a, s)
	})
	if err != nil {
		return a, err
	}
	return e.store.Attachment(ctx, account, id)
}

// unverified returns an attachment and, while it is reserved, its session with every byte confirmed.
func (e *Engine) unverified(ctx context.Context, account, id string) (store.Attachment, store.Session, error) {
	a, err := e.store.Attachment(ctx, account, id)
	if err == nil && a.State != wire.StateReserved {
		err = e.held(a)
	}
	if err != nil || a.State != wire.StateReserved {
		return a, store.Session{}, err
	}
	if err := a.Void.Err(); err != nil {
		return a, store.Session{}, err
	}
	s, err := e.store.Session(ctx, account, a.Session)
	if errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrNotFound) {
		return a, s, errors.Join(store.ErrGone, err) // the next reserve opens another
	}
	if err == nil && !s.Whole() {
		err = store.ErrNotVerified
	}
	return a, s, err
}

// verify reads the stored bytes back, makes them the account's content and records that. Each step may be repeated. Where
// nobody declared a digest the one found is recorded first, so that a later start knows under which name the content is.
func (e *Engine) verify(ctx context.Context, a store.Attachment, s store.Session) error {
	defer e.verifies(s)()
	if err := e.alone(s); err != nil {
		return err
	}
	leave, err := e.slot()
	if err != nil {
		return err
	}
	defer leave()
	if err := e.goOn(); err != nil {
		return err
	}
	found, err := e.measure(s, a.Facts.SHA256)
	if errors.Is(err, store.ErrLost) {
		return e.lose(ctx, s, err)
	}
	if err != nil {
		return err
	}
	if a.Facts.SHA256 == "" && found.Length == a.Facts.Length {
		if err := e.measured(ctx, a, found); err != nil {
			return err
		}
		a.Facts.SHA256 = found.SHA256
	}
	if found.Length != a.Facts.Length || found.SHA256 != a.Facts.SHA256 {
		e.log.Warn("attachment has other bytes than declared, its session is void", attachmentAttrs(a.Account, a.ID,
			slog.Int(logging.KeyAttempt, a.Generation), slog.Int64(logging.KeyBytes, found.Length))...)
		if err := e.end(ctx, s, store.VoidDigest); err != nil {
			return err
		}
		return store.ErrDigest
	}
	id, aside, err := e.files.Keep(a.Account, s.ID, found)
	if aside != "" {
		e.log.Warn("file of another length in the place of a content was set aside",
			attachmentAttrs(a.Account, a.ID, slog.String(logging.KeyPath, aside))...)
	}
	if errors.Is(err, store.ErrLost) {
		return e.lose(ctx, s, err)
	}
	if err != nil {
		return err
	}
	e.contents.note(contentKey(a.Account, found.SHA256), finding{id: id, sound: true})
	if err := e.store.Verified(ctx, a.Account, a.ID, a.Generation, e.now()); err != nil {
		return err
	}
	e.log.Info("attachment verified", attachmentAttrs(a.Account, a.ID, slog.Int(logging.KeyAttempt, a.Generation),
		slog.Int64(logging.KeyBytes, found.Length))...)
	if s.Created {
		if a, err := e.store.Attachment(ctx, a.Account, a.ID); err == nil && a.Receipt != nil {
			e.registered(store.Identity{Account: a.Account, Device: a.Holder}, *a.Receipt)
		}
	}
	return nil
}

// measure reads a session's bytes back: its data file or, where that became the content before a crash and only the record
// is missing, the content. Errors: store.ErrLost when there is neither, or only a content that is damaged or unreadable.
func (e *Engine) measure(s store.Session, sha string) (store.Content, error) {
	found, err := e.files.Measure(s, e.goOn)
	if !durable.IsNotExist(err) || sha == "" {
		return found, err
	}
	there, _, lerr := e.look(s.Account, sha, s.Length)
	if lerr != nil {
		return found, lerr
	}
	if !there {
		return found, err
	}
	found, rerr := e.read(s.Account, sha, e.goOn)
	if rerr == nil && found.SHA256 != sha {
		rerr = err
	}
	return found, rerr
}

// alone waits until no append is in the session, and cuts off what one left behind the confirmed bytes. Such an append began
// before the length was told; who comes later finds a session with all its bytes and keeps away from the file.
func (e *Engine) alone(s store.Session) error {
	e.mu.Lock()
	older := e.moving[s.Account+"/"+s.ID]
	e.mu.Unlock()
	if older != nil {
		select {
		case <-older.gone:
		case <-e.stopping:
			return ErrStopping
		}
	}
	_, err := e.files.Settle(s.Account, s.ID, s.Offset)
	if errors.Is(err, store.ErrLost) {
		return nil // which measuring it finds too, unless it is the content already
	}
	return err
}

// verifies marks a session as being verified until done is called.
func (e *Engine) verifies(s store.Session) (done func()) {
	at := s.Account + "/" + s.ID
	e.mu.Lock()
	defer e.mu.Unlock()
	e.verifying[at] = true
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.verifying, at)
	}
}

// goOn ends a reading when the server stops.
func (e *Engine) goOn() error {
	select {
	case <-e.stopping:
		return ErrStopping
	default:
		return nil
	}
}
