package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// follow brings an open session in step with a repeated reservation or creation: whichever came last says who registers,
// and a length that became known is the session's too.
func follow(tx *store.Tx, open *Session, a Attachment, r Reservation) error {
	if open == nil {
		return nil
	}
	next := *open
	next.Length, next.Created = a.Facts.Length, r.Create
	if r.Create {
		next.Metadata = r.Metadata
	}
	if next.Length != UnknownLength && next.Length < next.Offset {
		return fmt.Errorf("reserve %s: %d bytes are there already: %w", a.ID, next.Offset, ErrConflict)
	}
	if next == *open {
		return nil
	}
	if next.Length != open.Length {
		if err := fits(next.Length-next.Offset, r.Room); err != nil {
			return fmt.Errorf("reserve %s: %w", a.ID, err)
		}
	}
	*open = next
	return put(tx, bucketSessions, open.Account, open.ID, open)
}

// completeSession returns, to a creating client, the session of an attachment that needs no bytes. One that never had any,
// or whose session brought bytes that are not those, gets one that is complete from the start.
func completeSession(tx *store.Tx, a *Attachment, r Reservation) (*Session, error) {
	if !r.Create {
		return nil, nil
	}
	if a.Session != "" {
		s, err := get[Session](tx, bucketSessions, a.Account, a.Session)
		return &s, err
	}
	s := Session{
		ID: r.NewSession, Account: a.Account, AttachmentID: a.ID, Generation: a.Generation, Length: a.Facts.Length,
		State: SessionComplete, Offset: a.Facts.Length, AppendedAt: r.Now, Created: true, Metadata: r.Metadata,
	}
	a.Session = s.ID
	return &s, put(tx, bucketSessions, s.Account, s.ID, s)
}

// SetLength tells the length of a session that was created without one.
func (e *Embedded) SetLength(ctx context.Context, account, session string, length, room int64) (s Session, err error) {
	err = e.update(ctx, "set length of session", func(tx *store.Tx) error {
		if s, err = get[Session](tx, bucketSessions, account, session); err != nil {
			return err
		}
		switch {
		case s.State == SessionVoid:
			return ErrGone
		case s.Length == length:
			return nil
		case s.Length != UnknownLength || length < s.Offset:
			return fmt.Errorf("length %d, known is %d, there are %d bytes: %w", length, s.Length, s.Offset, ErrConflict)
		}
		if err := fits(length-s.Offset, room); err != nil {
			return err
		}
		a, err := get[Attachment](tx, bucketAttachments, account, s.AttachmentID)
		if err != nil {
			return err
		}
		s.Length, a.Facts.Length = length, length
		if err := put(tx, bucketAttachments, account, a.ID, a); err != nil {
			return err
		}
		return put(tx, bucketSessions, account, session, s)
	})
	return s, err
}

// Expire ends a session that nobody has used for long.
func (e *Embedded) Expire(ctx context.Context, account, session string, before time.Time, busy func(string) bool) (done bool, err error) {
	err = e.update(ctx, "expire session", func(tx *store.Tx) error {
		done = false
		s, err := get[Session](tx, bucketSessions, account, session)
		if err != nil || s.State != SessionOpen || s.Whole() || !s.AppendedAt.Before(before) || busy(session) {
			return err
		}
		done = true
		return expire(tx, &s)
	})
	return done, err
}

// Measured takes what the server found for what nobody declared.
func (e *Embedded) Measured(ctx context.Context, account, id string, generation int, found Content, newMedia string) error {
	return e.update(ctx, "record digest of "+id, func(tx *store.Tx) error {
		a, s, err := unverified(tx, account, id, generation)
		if err != nil || a.State != wire.StateReserved || a.Facts.SHA256 != "" {
			return err
		}
		if found.Length != s.Length {
			return ErrNotVerified
		}
		a.Facts.SHA256 = found.SHA256
		media, err := mediaFor(tx, account, a.Facts, newMedia)
		if err != nil {
			return err
		}
		a.MediaID = media.ID
		return put(tx, bucketAttachments, account, id, a)
	})
}
