package upload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Creation is what a client says of an upload that it opens by itself, without the control plane. Its zero value is a file
// of no bytes of which nothing is known.
type Creation struct {
	// Length is the number of bytes, or store.UnknownLength for one that SetLength tells later.
	Length int64
	// SHA256 is the declared digest in lower-case hex; empty where the server's own is to count.
	SHA256    string
	MediaType string
	Filename  string
	Parent    receipt.Parent
	// AttachmentID makes the creation repeatable; empty means a new attachment each time.
	AttachmentID string
	// Metadata is what the client said in its own words, to be given back to it.
	Metadata string
}

// facts are what would be declared of the attachment. Errors: ErrTooLarge, wire.ErrInvalid.
func (c Creation) facts(maxLength int64) (wire.Reserve, error) {
	f := wire.Reserve{
		Length: c.Length, SHA256: c.SHA256, Role: wire.RoleOriginal, MediaType: cmp.Or(c.MediaType, "application/octet-stream"),
		Filename: c.Filename, Parent: c.Parent,
	}
	if f.Length > maxLength {
		return f, ErrTooLarge
	}
	whole := f // with stand-ins for what may be unknown
	whole.SHA256 = cmp.Or(f.SHA256, strings.Repeat("0", 64))
	whole.Filename = cmp.Or(f.Filename, "unnamed")
	if f.Length == store.UnknownLength {
		whole.Length = 0
	}
	if c.AttachmentID != "" && !store.IsUUID(c.AttachmentID) {
		return f, fmt.Errorf("%w: the attachment ID is not a UUID in its canonical text", wire.ErrInvalid)
	}
	return f, whole.Validate()
}

// Reserve makes or repeats a device's reservation of an attachment. Errors: those of store.Store.Reserve, ErrStopping.
func (e *Engine) Reserve(ctx context.Context, who store.Identity, id string, facts wire.Reserve) (store.Reserved, error) {
	stored, seen, err := e.Stored(ctx, who.Account, id, facts)
	if err != nil {
		return store.Reserved{}, err
	}
	return e.reserve(ctx, store.Reservation{By: who, ID: id, Facts: facts, Stored: stored, Seen: seen})
}

// Create opens an upload, or finds the one that a repetition means, and returns its session: open, or complete where every
// byte is there and the attachment is registered. Errors: ErrTooLarge, wire.ErrInvalid, store.ErrConflict for an attachment
// ID that is known with other facts, store.ErrTooManySessions, store.ErrFull, those of Register.
func (e *Engine) Create(ctx context.Context, who store.Identity, c Creation) (store.Session, error) {
	facts, err := c.facts(e.limits.MaxLength)
	if err != nil {
		return store.Session{}, err
	}
	r := store.Reservation{By: who, ID: c.AttachmentID, Facts: facts, Create: true, Metadata: c.Metadata}
	if r.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return store.Session{}, fmt.Errorf("make attachment ID: %w", err)
		}
		r.ID = id.String()
	} else if r.Stored, r.Seen, err = e.kept(ctx, who.Account, r.ID); err != nil {
		return store.Session{}, err
	}
	out, err := e.reserve(ctx, r)
	if err != nil {
		return store.Session{}, err
	}
	if out.Created {
		e.log.Info("upload created", attachmentAttrs(who.Account, r.ID, slog.String(logging.KeyDevice, who.Device),
			slog.Int64(logging.KeyBytes, facts.Length))...)
	}
	if out.Attachment.State == wire.StateVerified { // by a device that has not registered it
		if _, err := e.Register(ctx, who, r.ID, out.Attachment.Facts.Parent); err != nil {
			return store.Session{}, err
		}
	}
	return e.Session(ctx, who, out.Session.ID)
}

// kept reports whether the bytes of an attachment that was verified before are still there; they are what a repeated
// creation finds. Seen is as for Stored.
func (e *Engine) kept(ctx context.Context, account, id string) (kept bool, seen wire.AttachmentState, err error) {
	a, err := e.store.Attachment(ctx, account, id)
	if errors.Is(err, store.ErrNotFound) {
		return false, "", nil
	}
	if err == nil && a.State != wire.StateReserved {
		kept, err = e.Held(a)
	}
	return kept, a.State, err
}

// reserve fills in what every reservation needs and does it.
func (e *Engine) reserve(ctx context.Context, r store.Reservation) (store.Reserved, error) {
	var err, merr, serr error
	r.Room, err = e.limits.Room()
	r.NewSession, serr = store.NewSessionID()
	r.NewMedia, merr = store.NewMediaID()
	if err := errors.Join(err, serr, merr); err != nil {
		return store.Reserved{}, err
	}
	r.Now, r.MaxSessions = e.now(), e.limits.SessionsPerAccount
	r.Busy = func(session string) bool { return e.Busy(r.By.Account, session) }
	out, err := e.store.Reserve(ctx, r)
	if err == nil && out.Expired != nil {
		e.Expired(*out.Expired)
	}
	return out, err
}

// SetLength tells the length of a session that was created without one; telling the same again does nothing. Errors:
// ErrTooLarge, store.ErrNotFound, store.ErrGone, store.ErrConflict for another length or one below the offset,
// store.ErrFull.
func (e *Engine) SetLength(ctx context.Context, who store.Identity, session string, length int64) (store.Session, error) {
	if length < 0 || length > e.limits.MaxLength {
		return store.Session{}, ErrTooLarge
	}
	if s, err := e.store.Session(ctx, who.Account, session); err != nil || s.Length == length && s.State != store.SessionVoid {
		return s, err
	}
	room, err := e.limits.Room()
	if err != nil {
		return store.Session{}, err
	}
	return e.store.SetLength(ctx, who.Account, session, length, room)
}

// Terminate ends a session without its bytes; one that has ended already stays so. An append that moves ends with it. Errors:
// store.ErrNotFound, ErrFinished for one whose bytes are verified, ErrBusy while they are being verified.
func (e *Engine) Terminate(ctx context.Context, who store.Identity, session string) error {
	s, err := e.store.Session(ctx, who.Account, session)
	switch {
	case errors.Is(err, store.ErrDamaged):
		return nil // it takes no bytes any more
	case err != nil:
		return err
	case s.State == store.SessionVoid:
		return nil
	case s.State == store.SessionComplete:
		return ErrFinished
	}
	moving, verifying := e.under(s)
	if verifying {
		return ErrBusy
	}
	if err := e.end(ctx, s, store.VoidTerminated); err != nil {
		return err
	}
	e.log.Info("upload session was ended by its client", attachmentAttrs(s.Account, s.AttachmentID,
		slog.Int(logging.KeyAttempt, s.Generation), slog.Int64(logging.KeyOffset, s.Offset))...)
	if moving != nil {
		return moving.end(store.ErrGone)
	}
	return nil
}

// under tells what is under way with a session.
func (e *Engine) under(s store.Session) (moving *pace, verifying bool) {
	at := s.Account + "/" + s.ID
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.moving[at], e.verifying[at]
}

// room is how many bytes an append to the session may bring, and the error that one byte more is refused with. Errors:
// ErrExcess, ErrAppendLimit, ErrTooLarge, store.ErrFull.
func (e *Engine) room(s store.Session, body Body) (room int64, over, err error) {
	room, over = s.Length-s.Offset, ErrExcess
	if s.Length == store.UnknownLength {
		free, err := e.limits.Room()
		if err != nil {
			return 0, nil, err
		}
		if room, over = e.limits.MaxLength-s.Offset, ErrTooLarge; body.Length <= room && (free <= 0 || body.Length > free) {
			return 0, nil, store.ErrFull
		}
	}
	if body.Length > room {
		return 0, nil, over
	}
	if body.whole() && room > e.limits.MaxAppend {
		room, over = e.limits.MaxAppend, ErrAppendLimit
	}
	if body.Length > room {
		return 0, nil, over
	}
	return room, over, nil
}

// finished verifies and registers a created session with all its bytes.
func (e *Engine) finished(ctx context.Context, s store.Session) (store.Session, error) {
	if _, err := e.Verify(ctx, s.Account, s.AttachmentID); err != nil {
		return s, err
	}
	return e.store.Session(ctx, s.Account, s.ID)
}

// measured records what was found of bytes whose digest nobody declared.
func (e *Engine) measured(ctx context.Context, a store.Attachment, found store.Content) error {
	media, err := store.NewMediaID()
	if err != nil {
		return err
	}
	return e.store.Measured(ctx, a.Account, a.ID, a.Generation, found, media)
}

// Expires is when a session that gets no byte until then is ended; the zero time for one that does not wait for bytes. It
// may be ended earlier to make room for another, after store.IdleSession.
func (e *Engine) Expires(s store.Session) time.Time {
	if s.State != store.SessionOpen || s.Whole() {
		return time.Time{}
	}
	return s.AppendedAt.Add(e.limits.Expire)
}
