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

// contents remembers which content files this process has read back, and what it found.
type contents struct {
	mu    sync.Mutex
	known map[string]finding // by account and digest
}

// finding is what is known of one content file as it stood; a file with another identity has yet to be read.
type finding struct {
	id    durable.Identity // none for one that is missing or has another length
	sound bool
}

// note remembers a finding and reports whether it is news.
func (c *contents) note(at string, f finding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.known[at]
	if !known && len(c.known) >= maxKnown {
		for other := range c.known {
			delete(c.known, other)
			break
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

// note remembers a finding and logs, once, one that harms attachments which rest on the content.
func (e *Engine) note(account, sha string, f finding) {
	if e.contents.note(contentKey(account, sha), f) && !f.sound {
		e.log.Error("content file is missing or damaged, its devices must send the bytes again",
			slog.String(logging.KeyAccount, account), slog.String(logging.KeyPath, sha))
	}
}

// Sound reports whether the account's content file of this digest and length is there and its bytes are those of the
// digest, as this process has read them itself: now, or before from the same file, unchanged since in inode, length and
// time. Calls for one content share one reading. Errors: ErrStopping, or the file's.
func (e *Engine) Sound(account, sha string, length int64) (bool, error) {
	id, whole, err := e.files.Look(account, sha, length)
	if err != nil || !whole {
		return false, err
	}
	if sound, known := e.contents.of(contentKey(account, sha), id); known {
		return sound, nil
	}
	sound, err, _ := e.flight.Do(contentKey(account, sha), func() (any, error) {
		found, err := e.read(account, sha, e.goOn)
		return found.SHA256 == sha && found.Length == length, err
	})
	if err != nil {
		return false, err
	}
	return sound.(bool), nil
}

// read reads a content file back and remembers what it found. One that is missing or cannot be read is the zero Content.
func (e *Engine) read(account, sha string, goOn func() error) (store.Content, error) {
	leave, err := e.slot()
	if err != nil {
		return store.Content{}, err
	}
	defer leave()
	found, id, err := e.files.MeasureContent(account, sha, goOn)
	if err != nil && !errors.Is(err, store.ErrLost) {
		return store.Content{}, err
	}
	if err != nil {
		found = store.Content{}
	}
	e.note(account, sha, finding{id: id, sound: found.SHA256 == sha})
	return found, nil
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

// Held reports whether the content of a verified or registered attachment is there: a file of its length that this
// process has not found to be damaged. It reads no bytes.
func (e *Engine) Held(a store.Attachment) (bool, error) {
	id, whole, err := e.files.Look(a.Account, a.Facts.SHA256, a.Facts.Length)
	if err != nil {
		return false, err
	}
	if !whole {
		e.note(a.Account, a.Facts.SHA256, finding{})
		return false, nil
	}
	sound, known := e.contents.of(contentKey(a.Account, a.Facts.SHA256), id)
	return sound || !known, nil
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
// damaged or missing content must be sent again, sound content makes a receipt good that had to be put aside. It returns
// the record as it is then and what was read, which is nothing for a file that is missing or cannot be read. Errors:
// store.ErrNotFound, store.ErrNotVerified for an attachment whose bytes were never verified, ErrStopping.
func (e *Engine) Audit(ctx context.Context, account, id string) (store.Attachment, store.Content, error) {
	a, err := e.store.Attachment(ctx, account, id)
	if err == nil && a.State == wire.StateReserved && a.Receipt == nil {
		err = fmt.Errorf("audit %s: %w", id, store.ErrNotVerified)
	}
	if err != nil {
		return a, store.Content{}, err
	}
	found, err := e.read(account, a.Facts.SHA256, func() error { return errors.Join(ctx.Err(), e.goOn()) })
	if err != nil {
		return a, found, err
	}
	before := a.State
	a, err = e.store.Audit(ctx, account, id, found.SHA256 == a.Facts.SHA256 && found.Length == a.Facts.Length)
	if err == nil && a.State != before {
		e.log.Warn("reading its content back changed an attachment", attachmentAttrs(account, id,
			slog.String(logging.KeyFrom, string(before)), slog.String(logging.KeyState, string(a.State)))...)
	}
	return a, found, err
}
