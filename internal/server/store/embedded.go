package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/store"
)

// The bucket tree. Every key begins with the account and a slash; account names have no slash, so that a prefix never
// reaches into another account.
//
//	attachments  ACCOUNT/ATTACHMENT_ID  Attachment
//	registered   ACCOUNT/SEQUENCE       attachment ID; 16 hex digits, so that keys sort by number
//	sessions     ACCOUNT/SESSION        Session; void ones stay, so that their URLs answer 410
//	open         ACCOUNT/SESSION        attachment ID; the sessions in state open
//	media        ACCOUNT/MEDIA_ID       Media
//	content      ACCOUNT/SHA256         media ID; one item for one content
//	tokens       ACCOUNT/HASH           Token
const (
	bucketAttachments = "attachments"
	bucketRegistered  = "registered"
	bucketSessions    = "sessions"
	bucketOpen        = "open"
	bucketMedia       = "media"
	bucketContent     = "content"
	bucketTokens      = "tokens"
)

var schema = store.Schema{
	Name:    "fieldgw-server",
	Version: 1,
	Buckets: []string{
		bucketAttachments, bucketRegistered, bucketSessions, bucketOpen, bucketMedia, bucketContent, bucketTokens,
	},
}

// scanPage bounds how many rows are held at once by walks that leave the transaction.
const scanPage = 256

// Embedded is a Store in one bbolt file of one process.
type Embedded struct{ db *store.Store }

// OpenEmbedded opens or makes the store file at path. The caller holds the lock of the data directory. Errors are those
// of package internal/store.
func OpenEmbedded(path string, fs *durable.FS, log *slog.Logger) (*Embedded, error) {
	db, err := store.Open(path, schema, store.Options{FS: fs, Logger: log})
	if errors.Is(err, store.ErrDamaged) {
		err = fmt.Errorf("%w; restore the data directory from a backup", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open records: %w", err)
	}
	return &Embedded{db: db}, nil
}

// Epoch identifies the store.
func (e *Embedded) Epoch() string { return e.db.Epoch() }

// Failed is closed when the store has failed for good.
func (e *Embedded) Failed() <-chan struct{} { return e.db.Failed() }

// Close releases the file.
func (e *Embedded) Close() error { return e.db.Close() }

// update runs fn in the next write transaction. It may run more than once, so it sets results and never adds to them.
func (e *Embedded) update(ctx context.Context, op string, fn func(*store.Tx) error) error {
	return translate(op, e.db.Update(ctx, fn))
}

func (e *Embedded) view(op string, fn func(*store.Tx) error) error {
	return translate(op, e.db.View(fn))
}

// translate turns errors of the file into those of the contract.
func translate(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNoSpace):
		return fmt.Errorf("%s: %w: %w", op, ErrFull, err)
	case errors.Is(err, store.ErrBadValue):
		return fmt.Errorf("%s: %w: %w", op, ErrDamaged, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func key(account, id string) []byte { return []byte(account + "/" + id) }

func splitKey(k []byte) (account, id string) {
	account, id, _ = strings.Cut(string(k), "/")
	return account, id
}

// get reads one JSON row or returns ErrNotFound.
func get[T any](tx *store.Tx, bucket, account, id string) (T, error) {
	v, found, err := store.GetJSON[T](tx.Bucket(bucket), key(account, id))
	if err == nil && !found {
		err = ErrNotFound
	}
	return v, err
}

func put(tx *store.Tx, bucket, account, id string, v any) error {
	return store.PutJSON(tx.Bucket(bucket), key(account, id), v)
}

// Attachment returns one attachment.
func (e *Embedded) Attachment(_ context.Context, account, id string) (a Attachment, err error) {
	err = e.view("read attachment "+id, func(tx *store.Tx) error {
		a, err = get[Attachment](tx, bucketAttachments, account, id)
		return err
	})
	return a, err
}

// Attachments lists attachments in any state.
func (e *Embedded) Attachments(_ context.Context, account, id string, only bool, limit int) ([]Attachment, error) {
	var found []Attachment
	var prefix, from []byte
	if only {
		prefix = key(account, "")
	}
	if id != "" {
		from = append(key(account, id), 0) // the next possible key
	}
	err := e.view("list attachments", func(tx *store.Tx) error {
		b := tx.Bucket(bucketAttachments)
		return b.Scan(prefix, from, func(k, _ []byte, _ error) error {
			if len(found) == limit {
				return store.ErrStop
			}
			account, id := splitKey(k)
			a, err := listed(tx, account, id)
			found = append(found, a)
			return err
		})
	})
	return found, err
}

// listed reads an attachment for a list. A damaged one is there with account and ID alone rather than hidden.
func listed(tx *store.Tx, account, id string) (Attachment, error) {
	a, err := get[Attachment](tx, bucketAttachments, account, id)
	if errors.Is(err, store.ErrBadValue) || errors.Is(err, ErrNotFound) {
		return Attachment{Account: account, ID: id}, nil
	}
	return a, err
}

// Registered lists registered attachments in the order of their registration.
func (e *Embedded) Registered(_ context.Context, account string, after uint64, limit int) ([]Attachment, error) {
	var found []Attachment
	err := e.view("list registered attachments", func(tx *store.Tx) error {
		from := key(account, sequenceKey(after+1))
		return tx.Bucket(bucketRegistered).Scan(key(account, ""), from, func(k, v []byte, bad error) error {
			if len(found) == limit {
				return store.ErrStop
			}
			_, text := splitKey(k)
			sequence, err := strconv.ParseUint(text, 16, 64)
			if err != nil {
				return nil // has no place in the list any more; its attachment is found by its ID
			}
			a := Attachment{Account: account} // where nobody can tell any more which attachment it was
			if bad == nil {
				if a, err = listed(tx, account, string(v)); err != nil {
					return err
				}
			}
			a.Sequence = sequence
			found = append(found, a)
			return nil
		})
	})
	return found, err
}

func sequenceKey(n uint64) string { return fmt.Sprintf("%016x", n) }
