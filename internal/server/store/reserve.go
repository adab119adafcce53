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
	if created {
		a = newAttachment(r)
	}
	media, err := mediaFor(tx, a.Account, a.Facts, r.NewMedia)
	if err != nil {
		return Reserved{}, err
	}
	a.MediaID = media.ID
	open, err := openSession(tx, a)
	if err != nil {
		return Reserved{}, err
	}
	if err := follow(tx, open, a, r); err != nil {
		return Reserved{}, err
	}
	var expired *Session
	if a.reopen(open, r, media) {
		if open, expired, err = newSession(tx, &a, r); err != nil {
			return Reserved{}, err
		}
	}
	if a.State != wire.StateReserved {
		if open, err = completeSession(tx, &a, r); err != nil {
			return Reserved{}, err
		}
	}
	out := Reserved{Attachment: a, Session: open, Created: created, Expired: expired}
	if reflect.DeepEqual(before, a) {
		return out, nil // a repetition that changes nothing costs no commit
	}
	return out, put(tx, bucketAttachments, account, a.ID, a)
}

// mediaFor returns the media item of the declared content and makes it where the account has none.
// There is none before the digest is known.
func mediaFor(tx *store.Tx, account string, f wire.Reserve, fresh string) (Media, error) {
	if f.SHA256 == "" {
		return Media{}, nil
	}
	id, err := tx.Bucket(bucketContent).Get(key(account, f.SHA256))
	if err != nil {
		return Media{}, err
	}
	if id != nil {
		return get[Media](tx, bucketMedia, account, string(id))
	}
	m := newMedia(account, f, fresh, tx.Bucket(bucketMedia).Has(key(account, f.ProposedMediaID)))
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

// newSession retires what session the attachment had and opens the one of its present generation. It returns the other
// attachment's session that had to make room, if one had.
func newSession(tx *store.Tx, a *Attachment, r Reservation) (opened, expired *Session, err error) {
	if err := fits(a.Facts.Length, r.Room); err != nil {
		return nil, nil, fmt.Errorf("open session: %w", err)
	}
	if err := endSession(tx, *a, SessionVoid); err != nil {
		return nil, nil, err
	}
	if expired, err = makeRoom(tx, r); err != nil {
		return nil, nil, fmt.Errorf("open session: %w", err)
	}
	a.Session = r.NewSession
	s := &Session{
		ID: r.NewSession, Account: a.Account, AttachmentID: a.ID, Generation: a.Generation,
		Length: a.Facts.Length, State: SessionOpen, AppendedAt: r.Now, Created: r.Create, Metadata: r.Metadata,
	}
	if err := put(tx, bucketSessions, s.Account, s.ID, s); err != nil {
		return nil, nil, err
	}
	return s, expired, tx.Bucket(bucketOpen).Put(key(s.Account, s.ID), []byte(a.ID))
}

// fits tells whether there is room for so many bytes more. Where nobody knows how many, there must be some.
func fits(length, room int64) error {
	if length > room || length == UnknownLength && room <= 0 {
		return fmt.Errorf("%d bytes wanted, %d to give: %w", length, room, ErrFull)
	}
	return nil
}

// makeRoom ends the session without an append for the longest time where the account has its largest number of them. A
// session whose row is damaged takes no bytes and goes first.
func makeRoom(tx *store.Tx, r Reservation) (*Session, error) {
	account, b, open := r.By.Account, tx.Bucket(bucketOpen), 0
	err := b.Scan(key(account, ""), nil, func(_, _ []byte, _ error) error {
		if open++; open >= r.MaxSessions {
			return store.ErrStop
		}
		return nil
	})
	if err != nil || open < r.MaxSessions {
		return nil, err
	}
	var oldest *Session
	err = b.Scan(key(account, ""), nil, func(k, v []byte, _ error) error {
		_, id := splitKey(k)
		if r.Busy != nil && r.Busy(id) {
			return nil
		}
		s, err := get[Session](tx, bucketSessions, account, id)
		switch {
		case errors.Is(err, store.ErrBadValue), errors.Is(err, ErrNotFound):
			s = Session{ID: id, Account: account, AttachmentID: string(v)}
		case err != nil:
			return err
		}
		if oldest == nil || s.AppendedAt.Before(oldest.AppendedAt) {
			oldest = &s
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if oldest == nil || !oldest.idle(r.Now) {
		return nil, ErrTooManySessions
	}
	return oldest, expire(tx, oldest)
}

// expire voids a session and, where that is still its session, notes why with the attachment.
func expire(tx *store.Tx, s *Session) error {
	a, err := get[Attachment](tx, bucketAttachments, s.Account, s.AttachmentID)
	switch {
	case errors.Is(err, store.ErrBadValue), errors.Is(err, ErrNotFound), err == nil && a.Session != s.ID:
		return closeSession(tx, s, SessionVoid)
	case err != nil:
		return err
	}
	s.Generation, s.Length = a.Generation, a.Facts.Length
	if err := closeSession(tx, s, SessionVoid); err != nil {
		return err
	}
	a.State, a.Session, a.Void = wire.StateReserved, "", VoidExpired
	return put(tx, bucketAttachments, a.Account, a.ID, a)
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
	return closeSession(tx, &s, state)
}

// closeSession takes a session out of the open ones and leaves it in the state given.
func closeSession(tx *store.Tx, s *Session, state SessionState) error {
	s.State = state
	if err := put(tx, bucketSessions, s.Account, s.ID, s); err != nil {
		return err
	}
	return tx.Bucket(bucketOpen).Delete(key(s.Account, s.ID))
}
