package upload

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/store"
)

// copyBuffer is the size of one read from a body, in bytes.
const copyBuffer = 128 << 10

// Body is the body of an append, and what its request says of it.
type Body struct {
	io.Reader
	// Length is the declared length in bytes, or -1.
	Length int64
	// Deadline sets the deadline of reads from the connection.
	Deadline func(time.Time) error
	// Sums are checksums of the body. With any of them it counts wholly or not at all.
	Sums []Sum
	// Ends says what this append is to the upload.
	Ends Ends
	// Total is what the request says of the length of the upload; nil where it says nothing.
	Total *int64
	// Overtakes ends an older append of the session even while that moves.
	Overtakes bool
	// Confirmed, if set, is told the confirmed offset again and again while the append lasts, after it was recorded.
	Confirmed func(offset int64)
}

// Ends says when an upload is complete.
type Ends int

// What an append is to its upload.
const (
	EndsAtLength Ends = iota // complete with the last byte of the declared length
	EndsLater                // not complete, though every byte may be there
	EndsHere                 // complete with the end of the body, which tells the length where nobody has
)

// Unknown stands for the confirmed offset where there is none to tell.
const Unknown = -1

// Append takes body as the next bytes of a session, from offset at, and verifies the attachment when that makes the upload
// complete. It returns the confirmed offset after the call, also with an error where the session has one, else Unknown.
//
// The order is: data written, data fsynced, offset recorded, offset told; it is gone through about every second and every
// Limits.Confirm bytes, and at the end. A body that breaks off keeps its prefix, unless it has checksums.
// Errors: those of this package, store.ErrNotFound, store.ErrGone, store.ErrOffset, store.ErrDigest after the last byte
// of other content than declared.
func (e *Engine) Append(ctx context.Context, who store.Identity, session string, at int64, body Body) (int64, error) {
	s, to, err := e.take(ctx, who, session, at, body)
	ctx = context.WithoutCancel(ctx)
	if err != nil || s.State != store.SessionOpen || body.Ends == EndsLater {
		return to, err
	}
	if body.Ends == EndsHere {
		_, err := e.Verify(ctx, s.Account, s.AttachmentID)
		return to, err
	}
	if !s.EndsAt(to) {
		return to, nil
	}
	return to, e.verifyLast(ctx, s)
}

// take takes the bytes, alone in the session.
func (e *Engine) take(ctx context.Context, who store.Identity, session string, at int64, body Body) (s store.Session, to int64, err error) {
	p := newPace(body, e.limits.Idle)
	release, err := e.claim(ctx, who, session, p, body.Overtakes)
	if err != nil {
		return s, Unknown, err
	}
	defer release()
	ctx = context.WithoutCancel(ctx) // what arrives is confirmed, whether or not the client still waits
	if s, err = e.standing(ctx, who, session); err != nil {
		return s, Unknown, err
	}
	if at != s.Offset {
		return s, s.Offset, store.ErrOffset
	}
	if s, err = e.lengthen(ctx, who, s, body); err != nil {
		return s, s.Offset, err
	}
	room, over, err := e.room(s, body)
	if err == nil {
		to, err = e.receive(ctx, s, p, body, room, over)
	} else {
		to = s.Offset
	}
	if err == nil {
		err = p.done()
	}
	switch {
	case errors.Is(err, ErrExcess) && body.Ends != EndsAtLength && s.State == store.SessionOpen:
		return s, Unknown, errors.Join(err, e.end(ctx, s, store.VoidExcess))
	case err == nil && body.Ends == EndsHere && s.Length == store.UnknownLength:
		s, err = e.SetLength(ctx, who, s.ID, to)
	case err == nil && body.Ends == EndsHere && !s.EndsAt(to):
		err = ErrLength // a body without a length was shorter than the upload's
	}
	return s, to, err
}

// lengthen records what the request says of the length of the upload. Errors: ErrLength where it says two things, or another
// than is known; those of SetLength.
func (e *Engine) lengthen(ctx context.Context, who store.Identity, s store.Session, body Body) (store.Session, error) {
	total := body.Total
	if body.Ends == EndsHere && body.Length >= 0 {
		end := s.Offset + body.Length
		if total != nil && *total != end {
			return s, ErrLength
		}
		total = &end
	}
	switch {
	case total == nil, s.Length == *total:
		return s, nil
	case s.Length != store.UnknownLength && body.Ends == EndsHere && *total > s.Length && body.Total == nil:
		return s, nil // more bytes than the upload has; those of room
	case s.Length != store.UnknownLength, *total < s.Offset:
		return s, ErrLength
	}
	longer, err := e.SetLength(ctx, who, s.ID, *total)
	if err != nil {
		return s, err
	}
	return longer, nil
}

// Session returns a session that still answers, with an offset whose bytes are there. One that a client created is
// registered when it has all its bytes. Errors: those of standing and of Verify.
func (e *Engine) Session(ctx context.Context, who store.Identity, session string) (store.Session, error) {
	s, err := e.standing(ctx, who, session)
	if err != nil || s.State != store.SessionOpen || !s.Created || !s.Whole() {
		return s, err
	}
	if s, err = e.finished(ctx, s); err != nil {
		return s, err
	}
	return s, e.answers(ctx, s)
}

// standing returns a session that still answers, as it stands. Errors: store.ErrNotFound, store.ErrGone for one that is
// void, whose record is damaged, or whose content is lost since; the file's.
func (e *Engine) standing(ctx context.Context, who store.Identity, session string) (store.Session, error) {
	s, err := e.store.Session(ctx, who.Account, session)
	switch {
	case errors.Is(err, store.ErrDamaged):
		err = errors.Join(store.ErrGone, err)
	case err == nil && s.State == store.SessionOpen:
		s, err = e.settled(ctx, s)
	}
	if err != nil {
		return s, err
	}
	return s, e.answers(ctx, s)
}

// answers fails for a session that is void or whose content is lost.
func (e *Engine) answers(ctx context.Context, s store.Session) error {
	switch s.State {
	case store.SessionVoid:
		return store.ErrGone
	case store.SessionComplete:
		a, err := e.store.Attachment(ctx, s.Account, s.AttachmentID)
		if err != nil {
			return err
		}
		return e.held(a)
	}
	return nil
}

// verifyLast verifies after the last byte. Only what is final fails the append, whose bytes are confirmed in any case;
// everything else is tried again when the device asks for the attachment or registers it. A creating client does neither
// and takes this answer for the receipt, so that it learns of every failure.
func (e *Engine) verifyLast(ctx context.Context, s store.Session) error {
	_, err := e.Verify(ctx, s.Account, s.AttachmentID)
	if err == nil || s.Created || errors.Is(err, store.ErrDigest) || errors.Is(err, store.ErrGone) {
		return err
	}
	if !errors.Is(err, ErrStopping) {
		e.log.Warn("verification is put off", attachmentAttrs(s.Account, s.AttachmentID, slog.Any(logging.KeyErr, err))...)
	}
	return nil
}
