package upload

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/fieldgw/fieldgw/internal/server/store"
)

// confirmEvery is the longest time that bytes of a lasting append wait to be confirmed.
const confirmEvery = time.Second

var (
	errNotStored = errors.New("bytes could not be stored")
	// errSync marks a failed fsync of a data file: the page cache no longer tells what the disk holds, of earlier bytes either.
	errSync = errors.New("data file could not be made durable")
)

// stream puts the body of one append behind the confirmed offset of its session. A body with checksums is confirmed at its
// end or not at all, any other one again and again while it lasts.
type stream struct {
	e       *Engine
	session store.Session // its offset moves with every confirmation
	file    *store.Upload
	body    Body
	// written is how many bytes stand behind the confirmed offset.
	written int64
}

// run takes pieces to the last. It returns how the body ended, nil for its proper end, and what a confirmation in between
// met.
func (t *stream) run(ctx context.Context, p *pace, pieces <-chan piece) (broke, failed error) {
	var due <-chan time.Time
	for last := false; !last; {
		select {
		case in := <-pieces:
			broke, last = t.store(in), in.err != nil
		case <-due:
			failed, due = t.confirm(ctx, true), nil
		}
		if last || t.body.whole() && broke == nil {
			continue
		}
		if broke == nil && failed == nil && t.written >= t.e.limits.Confirm {
			failed, due = t.confirm(ctx, true), nil
		}
		if broke != nil || failed != nil {
			return broke, errors.Join(failed, t.drain(p, pieces))
		}
		if due == nil && t.written > 0 {
			due = time.After(confirmEvery)
		}
	}
	return broke, failed
}

// drain ends the reading of a body whose bytes have nowhere to go.
func (t *stream) drain(p *pace, pieces <-chan piece) error {
	err := p.end(errNotStored)
	for in := range pieces {
		t.e.buffers.Put(in.buf)
	}
	return err
}

// store writes one piece and gives its buffer back. It returns what that met, else how the piece ended, nil for the proper
// end of a body with the right checksums.
func (t *stream) store(in piece) error {
	defer t.e.buffers.Put(in.buf)
	if in.n > 0 {
		t.body.hash(in.buf[:in.n])
		n, err := t.file.Write(in.buf[:in.n])
		t.written += int64(n)
		if err != nil {
			return err
		}
	}
	if errors.Is(in.err, io.EOF) {
		return t.body.verify()
	}
	return in.err
}

// confirm makes durable what was written, records it, and only then tells it where that is wanted. Errors: errSync when the
// bytes can no longer be trusted, those of store.Advance.
func (t *stream) confirm(ctx context.Context, tell bool) error {
	if t.written == 0 {
		return nil
	}
	if err := t.file.Sync(); err != nil {
		return errors.Join(errSync, err)
	}
	from, to := t.session.Offset, t.session.Offset+t.written
	if err := t.e.store.Advance(ctx, t.session.Account, t.session.ID, from, to, t.e.now()); err != nil {
		return err
	}
	t.session.Offset, t.written = to, 0
	if tell && t.body.Confirmed != nil {
		t.body.Confirmed(to)
	}
	return nil
}

// receive stores up to room bytes behind the confirmed offset and confirms them; one byte more is refused with over. What
// was confirmed before an error stays.
func (e *Engine) receive(ctx context.Context, s store.Session, p *pace, body Body, room int64, over error) (to int64, err error) {
	if room == 0 { // also keeps away from the file of a session that is being verified
		if err := e.expectEnd(p, body, over); err != nil {
			return s.Offset, err
		}
		return s.Offset, body.verify()
	}
	file, err := e.files.Open(s.Account, s.ID, s.Offset)
	if errors.Is(err, store.ErrLost) {
		return Unknown, e.lose(ctx, s, err)
	}
	if err != nil {
		return s.Offset, err
	}
	t := &stream{e: e, session: s, file: file, body: body}
	broke, failed := t.run(ctx, p, e.pieces(p, body, room, over))
	dropped := body.whole() && broke != nil || errors.Is(broke, over) // the next append cuts it off, or the next start
	if failed == nil && !dropped {
		failed = t.confirm(ctx, false)
	}
	closed := file.Close()
	switch {
	case errors.Is(failed, errSync):
		return Unknown, e.lose(ctx, t.session, errors.Join(failed, closed))
	case errors.Is(failed, store.ErrGone), errors.Is(broke, store.ErrGone):
		e.discard(s) // ended meanwhile, when its file may not have been there yet
	case failed == nil && broke == nil:
		return t.session.Offset, closed
	}
	return t.session.Offset, errors.Join(failed, broke, closed)
}

// expectEnd reads a body that must be empty.
func (e *Engine) expectEnd(p *pace, body Body, over error) error {
	var one [1]byte
	for {
		n, err := p.read(body, one[:])
		switch {
		case n > 0:
			return over
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
