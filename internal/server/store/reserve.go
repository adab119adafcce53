package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Reserve makes or repeats a reservation.
func (e *Embedded) Reserve(ctx context.Context, r Reservation) (Reserved, error) {
	var out Reserved
	err := e.update(ctx, "reserve "+r.ID, func(tx *store.Tx) (err error) {
		out, err = reserve(tx, r)
		return err
	})
	return out, err
}

func reserve(tx *store.Tx, r Reservation) (Reserved, error) {
	account := r.By.Account
	a, err := get[Attachment](tx, bucketAttachments, account, r.ID)
	created := errors.Is(err, ErrNotFound)
	if err != nil && !created {
		return Reserved{}, err
	}
	before := a
	if !created {
		if err := a.replay(r); err != nil {
			return Reserved{}, err
		}
	}
	media, err := mediaFor(tx, r)
	if err != nil {
		return Reserved{}, err
	}
	if created {
		a = newAttachment(r, media.ID)
	}
	open, err := openSession(tx, a)
	if err != nil {
		return Reserved{}, err
	}
	if a.reopen(open, r.Stored && media.matches(r.Facts), r.Stored) {
		if open, err = newSession(tx, &a, r); err != nil {
			return Reserved{}, err
		}
	}
	if a.State != wire.StateReserved {
		open = nil
	}
	out := Reserved{Attachment: a, Session: open, Created: created}
	if reflect.DeepEqual(before, a) {
		return out, nil // a repetition that changes nothing costs no commit
	}
	return out, put(tx, bucketAttachments, account, a.ID, a)
}

// mediaFor returns the media item of the declared content and makes it where the account has none.
func mediaFor(tx *store.Tx, r Reservation) (Media, error) {
	account := r.By.Account
	id, err := tx.Bucket(bucketContent).Get(key(account, r.Facts.SHA256))
	if err != nil {
		return Media{}, err
	}
	if id != nil {
		return get[Media](tx, bucketMedia, account, string(id))
	}
	m := newMedia(r, tx.Bucket(bucketMedia).Has(key(account, r.Facts.ProposedMediaID)))
	if err := put(tx, bucketMedia, account, m.ID, m); err != nil {
		return Media{}, err
	}
	return m, tx.Bucket(bucketContent).Put(key(account, m.SHA256), []byte(m.ID))
}

// openSession returns the attachment's session if it still takes bytes. One whose row is damaged takes none.
func openSession(tx *store.Tx, a Attachment) (*Session, error) {
	if a.Session == "" {
		return nil, nil
	}
	s, err := get[Session](tx, bucketSessions, a.Account, a.Session)
	switch {
	case errors.Is(err, store.ErrBadValue), errors.Is(err, ErrNotFound), err == nil && s.State != SessionOpen:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &s, nil
}

// newSession retires what session the attachment had and opens the one of its present generation.
func newSession(tx *store.Tx, a *Attachment, r Reservation) (*Session, error) {
	if a.Facts.Length > r.Room {
		return nil, fmt.Errorf("open session: %d bytes wanted, %d to give: %w", a.Facts.Length, r.Room, ErrFull)
	}
	if err := endSession(tx, *a, SessionVoid); err != nil {
		return nil, err
	}
	open := 0
	err := tx.Bucket(bucketOpen).Scan(key(a.Account, ""), nil, func(_, _ []byte, _ error) error {
		open++
		if open >= r.MaxSessions {
			return ErrTooManySessions
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	a.Session = r.NewSession
	s := &Session{
		ID: r.NewSession, Account: a.Account, AttachmentID: a.ID, Generation: a.Generation,
		Length: a.Facts.Length, State: SessionOpen,
	}
	if err := put(tx, bucketSessions, s.Account, s.ID, s); err != nil {
		return nil, err
	}
	return s, tx.Bucket(bucketOpen).Put(key(s.Account, s.ID), []byte(a.ID))
}

// endSession takes the attachment's session, if any, out of the open ones and leaves it in the state given. A damaged
// row is written anew.
func endSession(tx *store.Tx, a Attachment, state SessionState) error {
	if a.Session == "" {
		return nil
	}
	s, err := get[Session](tx, bucketSessions, a.Account, a.Session)
	switch {
	case errors.Is(err, store.ErrBadValue), errors.Is(err, ErrNotFound):
		s = Session{
			ID: a.Session, Account: a.Account, AttachmentID: a.ID, Generation: a.Generation, Length: a.Facts.Length,
		}
	case err != nil:
		return err
	}
	s.State = state
	if err := put(tx, bucketSessions, s.Account, s.ID, s); err != nil {
		return err
	}
	return tx.Bucket(bucketOpen).Delete(key(s.Account, s.ID))
}
