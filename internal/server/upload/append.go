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

// Body is the body of an append.
type Body struct {
	io.Reader
	// Length is the declared length in bytes, or -1.
	Length int64
	// Deadline sets the deadline of reads from the connection.
	Deadline func(time.Time) error
}

// Unknown stands for the confirmed offset where there is none to tell.
const Unknown = -1

// Append takes body as the next bytes of a session, from offset at, and verifies the attachment after its last byte. It
// returns the confirmed offset after the call, also with an error where the session has one, else Unknown.
//
// The order is: data written, data fsynced, offset recorded, offset returned. A body that breaks off keeps its prefix.
// Errors: those of this package, store.ErrNotFound, store.ErrGone, store.ErrOffset, store.ErrDigest after the last byte
// of other content than declared.
func (e *Engine) Append(ctx context.Context, who store.Identity, session string, at int64, body Body) (int64, error) {
	ctx = context.WithoutCancel(ctx) // what arrived is confirmed, whether or not the client still waits
	p := &pace{deadline: body.Deadline, idle: e.limits.Idle}
	release, err := e.claim(who, session, p)
	if err != nil {
		return Unknown, err
	}
	defer release()
	s, err := e.Session(ctx, who, session)
	if err != nil {
		return Unknown, err
	}
	if at != s.Offset {
		return s.Offset, store.ErrOffset
	}
	room, err := e.room(s, body.Length)
	if err != nil {
		return s.Offset, err
	}
	to, err := e.receive(ctx, s, p, body, room)
	if err == nil {
		err = p.done()
	}
	if err != nil || !s.EndsAt(to) || s.State != store.SessionOpen {
		return to, err
	}
	return to, e.verifyLast(ctx, s)
}

// Session returns a session that still answers, with an offset whose bytes are there. One that a client created is
// registered when it has all its bytes. Errors: store.ErrNotFound,
// store.ErrGone for one that is void, whose record is damaged, or whose content is lost since; the file's; those of Verify.
func (e *Engine) Session(ctx context.Context, who store.Identity, session string) (store.Session, error) {
	s, err := e.store.Session(ctx, who.Account, session)
	switch {
	case errors.Is(err, store.ErrDamaged):
		err = errors.Join(store.ErrGone, err)
	case err == nil && s.State == store.SessionOpen:
		if s, err = e.settled(ctx, s); err == nil && s.Created && s.Whole() {
			s, err = e.finished(ctx, s)
		}
	}
	if err != nil {
		return s, err
	}
	switch s.State {
	case store.SessionVoid:
		err = store.ErrGone
	case store.SessionComplete:
		var a store.Attachment
		if a, err = e.store.Attachment(ctx, s.Account, s.AttachmentID); err == nil {
			err = e.held(a)
		}
	}
	return s, err
}

// receive stores up to room bytes behind the confirmed offset and confirms them.
func (e *Engine) receive(ctx context.Context, s store.Session, p *pace, body Body, room int64) (to int64, err error) {
	if room == 0 { // also keeps away from the file of a session that is being verified
		return s.Offset, e.expectEnd(p, body)
	}
	file, err := e.files.Open(s.Account, s.ID, s.Offset)
	if errors.Is(err, store.ErrLost) {
		return Unknown, e.lose(ctx, s, err)
	}
	if err != nil {
		return s.Offset, err
	}
	n, broke := e.copy(file, p, body, room)
	if errors.Is(broke, ErrAppendLimit) {
		return s.Offset, errors.Join(broke, file.Close()) // the next append cuts off what was written
	}
	if n > 0 {
		err = file.Sync()
	}
	if cerr := file.Close(); err != nil {
		// The page cache no longer tells what the disk holds, of earlier bytes either.
		return Unknown, e.lose(ctx, s, errors.Join(err, cerr))
	} else if cerr != nil {
		return s.Offset, cerr
	}
	if n > 0 {
		err := e.store.Advance(ctx, s.Account, s.ID, s.Offset, s.Offset+n, e.now())
		if errors.Is(err, store.ErrGone) {
			e.discard(s) // ended meanwhile, when its file may not have been there yet
		}
		if err != nil {
			return s.Offset, errors.Join(err, broke)
		}
	}
	return s.Offset + n, broke
}

// copy writes the body into the file and returns how many bytes the file took. Errors: those of pace.read, ErrAppendLimit
// as soon as there is a byte too many, or the file's.
func (e *Engine) copy(file *store.Upload, p *pace, body Body, room int64) (n int64, err error) {
	buf := e.buffers.Get().(*[copyBuffer]byte)
	defer e.buffers.Put(buf)
	for {
		k, rerr := p.read(body, buf[:])
		if n+int64(k) > room {
			return n, ErrAppendLimit
		}
		if k > 0 {
			w, err := file.Write(buf[:k])
			n += int64(w)
			if err != nil {
				return n, err
			}
		}
		if errors.Is(rerr, io.EOF) {
			return n, nil
		}
		if rerr != nil {
			return n, rerr
		}
	}
}

// expectEnd reads a body that must be empty.
func (e *Engine) expectEnd(p *pace, body Body) error {
	var one [1]byte
	for {
		n, err := p.read(body, one[:])
		switch {
		case n > 0:
			return ErrAppendLimit
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
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
