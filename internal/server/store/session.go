package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Session returns one session.
func (e *Embedded) Session(_ context.Context, account, id string) (s Session, err error) {
	err = e.view("read session", func(tx *store.Tx) error {
		s, err = get[Session](tx, bucketSessions, account, id)
		return err
	})
	return s, err
}

// Advance confirms bytes.
func (e *Embedded) Advance(ctx context.Context, account, session string, from, to int64, now time.Time) error {
	return e.update(ctx, "confirm offset", func(tx *store.Tx) error {
		s, err := get[Session](tx, bucketSessions, account, session)
		switch {
		case err != nil:
			return err
		case s.State == SessionVoid:
			return ErrGone
		case s.State != SessionOpen || s.Offset != from || to <= from || s.Length != UnknownLength && to > s.Length:
			return fmt.Errorf("%d to %d, confirmed are %d of %d: %w", from, to, s.Offset, s.Length, ErrOffset)
		}
		s.Offset, s.AppendedAt = to, now
		return put(tx, bucketSessions, account, session, s)
	})
}

// Void ends a generation without its bytes.
func (e *Embedded) Void(ctx context.Context, account, id string, generation int, why VoidReason) error {
	return e.update(ctx, "void session of "+id, func(tx *store.Tx) error {
		a, err := get[Attachment](tx, bucketAttachments, account, id)
		switch {
		case err != nil:
			return err
		case a.Generation != generation, a.Void != "":
			return nil
		case a.State == wire.StateRegistered:
			return ErrState
		}
		if err := endSession(tx, a, SessionVoid); err != nil {
			return err
		}
		a.State, a.Session, a.Void = wire.StateReserved, "", why
		return put(tx, bucketAttachments, account, id, a)
	})
}

// Verified records the server's own verification, and the registration where a client knows none.
func (e *Embedded) Verified(ctx context.Context, account, id string, generation int, now time.Time) error {
	return e.update(ctx, "record verification of "+id, func(tx *store.Tx) error {
		a, s, err := unverified(tx, account, id, generation)
		if err != nil || a.State != wire.StateReserved {
			return err
		}
		if err := endSession(tx, a, SessionComplete); err != nil {
			return err
		}
		a.State = wire.StateVerified
		if err := put(tx, bucketAttachments, account, id, a); err != nil || !s.Created {
			return err
		}
		by := Identity{Account: account, Device: a.Holder}
		_, _, err = register(tx, Registration{By: by, ID: id, Parent: a.Facts.Parent, Now: now}, e.server())
		return err
	})
}

// unverified returns an attachment of this generation and, while it is reserved, its session with every byte confirmed.
func unverified(tx *store.Tx, account, id string, generation int) (Attachment, Session, error) {
	a, err := get[Attachment](tx, bucketAttachments, account, id)
	switch {
	case err != nil:
		return a, Session{}, err
	case a.Generation != generation:
		return a, Session{}, ErrGone
	case a.Void != "":
		return a, Session{}, a.Void.Err()
	case a.State != wire.StateReserved:
		return a, Session{}, nil
	}
	s, err := get[Session](tx, bucketSessions, account, a.Session)
	if err == nil && !s.Whole() {
		err = ErrNotVerified
	}
	return a, s, err
}

// server names this store in receipts.
func (e *Embedded) server() string { return wire.ServiceName + "/" + e.db.Epoch() }

// Audit records what reading a content back showed.
func (e *Embedded) Audit(ctx context.Context, account, id string, sound bool) (a Attachment, ended *Session, err error) {
	err = e.update(ctx, "record audit of "+id, func(tx *store.Tx) error {
		ended = nil
		if a, err = get[Attachment](tx, bucketAttachments, account, id); err != nil || !a.audit(sound) {
			return err
		}
		if ended, err = openSession(tx, a); err != nil {
			return err
		}
		if err := endSession(tx, a, SessionVoid); err != nil {
			return err
		}
		a.Session = ""
		return put(tx, bucketAttachments, account, id, a)
	})
	return a, ended, err
}

// Register binds a verified attachment.
func (e *Embedded) Register(ctx context.Context, r Registration) (rec receipt.Receipt, fresh bool, err error) {
	err = e.update(ctx, "register "+r.ID, func(tx *store.Tx) error {
		rec, fresh, err = register(tx, r, e.server())
		return err
	})
	return rec, fresh, err
}

func register(tx *store.Tx, r Registration, server string) (receipt.Receipt, bool, error) {
	none := receipt.Receipt{}
	a, err := get[Attachment](tx, bucketAttachments, r.By.Account, r.ID)
	if err != nil {
		return none, false, err
	}
	changed, fresh, err := a.register(r, server)
	if err != nil {
		return none, false, err
	}
	if fresh {
		if a.Sequence, err = tx.Bucket(bucketRegistered).NextSequence(); err != nil {
			return none, false, err
		}
		err := tx.Bucket(bucketRegistered).Put(key(a.Account, sequenceKey(a.Sequence)), []byte(a.ID))
		if err != nil {
			return none, false, err
		}
		m := Media{ID: a.MediaID, Account: a.Account, SHA256: a.Facts.SHA256, Length: a.Facts.Length, State: MediaReady}
		if err := put(tx, bucketMedia, m.Account, m.ID, m); err != nil {
			return none, false, err
		}
	}
	if changed {
		err = put(tx, bucketAttachments, a.Account, a.ID, a)
	}
	return *a.Receipt, fresh, err
}

// OpenSessions walks the open sessions, a page at a time.
func (e *Embedded) OpenSessions(ctx context.Context, visit func(Session, error) error) error {
	type row struct {
		session Session
		damage  error
	}
	var from []byte
	for {
		var page []row
		err := e.view("list open sessions", func(tx *store.Tx) error {
			return tx.Bucket(bucketOpen).Scan(nil, from, func(k, _ []byte, _ error) error {
				if len(page) == scanPage {
					return store.ErrStop
				}
				account, id := splitKey(k)
				s, err := get[Session](tx, bucketSessions, account, id)
				if errors.Is(err, store.ErrBadValue) || errors.Is(err, ErrNotFound) {
					page = append(page, row{Session{ID: id, Account: account}, fmt.Errorf("%w: %w", ErrDamaged, err)})
					return nil
				}
				page = append(page, row{session: s})
				return err
			})
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, r := range page {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := visit(r.session, r.damage); err != nil {
				return err
			}
		}
		last := page[len(page)-1].session
		from = append(key(last.Account, last.ID), 0)
	}
}
