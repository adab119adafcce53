package upload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// maxKnown bounds what is remembered of content files. Whatever is forgotten is read again.
const maxKnown = 16384

// contents remembers what this process has read of content files, so that they are not read again. Of damage it is the
// memory only until the file is set aside.
type contents struct {
	mu    sync.Mutex
	known map[string]finding // by account and digest
}

// finding is what is known of one content file as it stood; a file with another identity has yet to be read.
type finding struct {
	id    durable.Identity // none where it is said already that there is no file
	sound bool
}

// note remembers a finding and reports whether it is news.
func (c *contents) note(at string, f finding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.known[at]
	if !known && len(c.known) >= maxKnown {
		for other, f := range c.known {
			if f.sound || f.id == (durable.Identity{}) {
				delete(c.known, other)
				break
			}
		}
	}
	c.known[at] = f
	return !known || old != f
}

// of tells what is known of the file with this identity.
func (c *contents) of(at string, id durable.Identity) (sound, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, known := c.known[at]
	return f.sound, known && f.id == id
}

// contentKey names a content; no attachment's key looks like it.
func contentKey(account, sha string) string { return account + "/content/" + sha }

// look tells whether a content file of this digest and length is there, and whether this process has found it sound. One
// that was found damaged and could not be set aside then is set aside now.
func (e *Engine) look(account, sha string, length int64) (there, sound bool, err error) {
	id, there, err := e.files.Look(account, sha, length)
	if err != nil || !there {
		return false, false, err
	}
	sound, known := e.contents.of(contentKey(account, sha), id)
	if known && !sound {
		_, err := e.setAside(account, sha, id)
		return false, false, err
	}
	return true, sound, nil
}

// missing logs, once, that attachments rest on a content that is not there, or not whole.
func (e *Engine) missing(account, sha string) {
	if e.contents.note(contentKey(account, sha), finding{}) {
		e.log.Error("content file is missing or has another length, its devices must send the bytes again",
			slog.String(logging.KeyAccount, account), slog.String(logging.KeyPath, sha))
	}
}

// Sound reports whether the account's content file of this digest and length is there and its bytes are those of the
// digest, as this process has read them itself: now, or before from the same file, unchanged since in inode, length and
// time. Calls for one content share one reading. Errors: ErrStopping, or the file's.
func (e *Engine) Sound(account, sha string, length int64) (bool, error) {
	there, sound, err := e.look(account, sha, length)
	if err != nil || !there || sound {
		return sound, err
	}
	read, err, _ := e.flight.Do(contentKey(account, sha), func() (any, error) {
		found, err := e.readInTurn(account, sha, e.goOn)
		return found.SHA256 == sha && found.Length == length, err
	})
	if err != nil {
		return false, err
	}
	return read.(bool), nil
}

// read reads a content file back. One whose bytes are not those of its name is set aside before that is told. One that is
// missing is the zero Content; so is one that the medium does not give back, which proves nothing of its bytes: it stays
// where it is and is read again when next asked for.
func (e *Engine) read(account, sha string, goOn func() error) (store.Content, error) {
	for {
		found, id, err := e.files.MeasureContent(account, sha, goOn)
		switch {
		case durable.IsNotExist(err):
			e.missing(account, sha)
			return store.Content{}, nil
		case errors.Is(err, store.ErrLost):
			e.log.Error("content file cannot be read, it does not count for now", slog.String(logging.KeyAccount, account),
				slog.String(logging.KeyPath, sha), slog.Any(logging.KeyErr, err))
			return store.Content{}, nil
		case err != nil:
			return store.Content{}, err
		case found.SHA256 == sha:
			e.contents.note(contentKey(account, sha), finding{id: id, sound: true})
			return found, nil
		}
		if done, err := e.setAside(account, sha, id); done || err != nil {
			return found, err
		}
		// What was read stands there no more: another reading set it aside, or a device has sent the bytes again.
	}
}

func (e *Engine) readInTurn(account, sha string, goOn func() error) (store.Content, error) {
	leave, err := e.slot()
	if err != nil {
		return store.Content{}, err
	}
	defer leave()
	return e.read(account, sha, goOn)
}

// setAside takes a content file that was found damaged out of its place for good, and reports whether it still stood there.
// From now on nobody is given it, also where setting it aside fails.
func (e *Engine) setAside(account, sha string, id durable.Identity) (done bool, err error) {
	e.contents.note(contentKey(account, sha), finding{id: id})
	path, err := e.files.SetAside(account, sha, id)
	if path != "" {
		e.contents.note(contentKey(account, sha), finding{})
		e.log.Error("content file is damaged and was set aside, its devices must send the bytes again",
			slog.String(logging.KeyAccount, account), slog.String(logging.KeyPath, path))
	}
	return path != "", err
}

// slot waits for its turn to read a file back. Errors: ErrStopping.
func (e *Engine) slot() (leave func(), err error) {
	select {
	case e.reading <- struct{}{}:
		return func() { <-e.reading }, nil
	case <-e.stopping:
		return nil, ErrStopping
	}
}

// Held reports whether the content of a verified or registered attachment is there: a file of its length that was not
// found to be damaged. It reads no bytes.
func (e *Engine) Held(a store.Attachment) (bool, error) {
	there, _, err := e.look(a.Account, a.Facts.SHA256, a.Facts.Length)
	if err == nil && !there {
		e.missing(a.Account, a.Facts.SHA256)
	}
	return there, err
}

// Stored reports whether a reservation needs no bytes as far as the content file is concerned. What is registered was
// promised already: there the file is looked for, as Held does. Whatever would be promised anew rests on Sound.
// seen is the state of the attachment for which that holds, empty where there is none.
func (e *Engine) Stored(ctx context.Context, account, id string, facts wire.Reserve) (stored bool, seen wire.AttachmentState, err error) {
	a, err := e.store.Attachment(ctx, account, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return false, "", err
	case a.State == wire.StateRegistered:
		stored, err = e.Held(a)
		return stored, a.State, err
	case a.State == wire.StateReserved && a.Session != "":
		return false, a.State, nil // it has a session of its own
	default:
		seen = a.State
	}
	stored, err = e.Sound(account, facts.SHA256, facts.Length)
	return stored, seen, err
}

// held fails with store.ErrGone where the content of a verified or registered attachment is not there.
func (e *Engine) held(a store.Attachment) error {
	held, err := e.Held(a)
	if err == nil && !held {
		err = fmt.Errorf("content of %s: %w", a.ID, store.ErrGone)
	}
	return err
}

// Audit reads the content of an attachment back, whatever is known of it, and records what that means for the attachment:
// damaged or missing content must be sent again, sound content makes a receipt good that had to be put aside. So must
// content that the medium does not give back, until an audit reads it. It returns the record as it is then and what was
// read, which is nothing for a file that is missing or cannot be read. Errors:
// store.ErrNotFound, store.ErrNotVerified for an attachment whose bytes were never verified, ErrStopping.
func (e *Engine) Audit(ctx context.Context, account, id string) (store.Attachment, store.Content, error) {
	a, err := e.store.Attachment(ctx, account, id)
	if err == nil && a.State == wire.StateReserved && a.Receipt == nil {
		err = fmt.Errorf("audit %s: %w", id, store.ErrNotVerified)
	}
	if err != nil {
		return a, store.Content{}, err
	}
	found, err := e.readInTurn(account, a.Facts.SHA256, func() error { return errors.Join(ctx.Err(), e.goOn()) })
	if err != nil {
		return a, found, err
	}
	before := a.State
	a, ended, err := e.store.Audit(ctx, account, id, found.SHA256 == a.Facts.SHA256 && found.Length == a.Facts.Length)
	if ended != nil {
		e.discard(*ended)
	}
	if err == nil && a.State != before {
		e.log.Warn("reading its content back changed an attachment", attachmentAttrs(account, id,
			slog.String(logging.KeyFrom, string(before)), slog.String(logging.KeyState, string(a.State)))...)
	}
	return a, found, err
}
