// Package damage damages store files for tests, as a bad sector or a flipped bit would: it knows where bbolt puts what,
// and nothing of package store, whose tests use it too.
//
// A file must be closed while it is damaged. Use Pages to find the pages of a kind and Spoil for a single value.
package damage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// The kinds of pages, as bbolt names them. Overflow is the rest of a page that is longer than one.
const (
	Meta     = "meta"
	Freelist = "freelist"
	Branch   = "branch"
	Leaf     = "leaf"
	Free     = "free"
	Overflow = "overflow"
)

// Layout is where the pages of each kind lie in a file.
type Layout struct {
	PageSize int
	// Newest is the meta page of the last transaction, 0 or 1.
	Newest int
	// Limit is the first page that is not in use. The file may be longer.
	Limit int
	Pages map[string][]int
}

// Pages reads the layout of a sound file.
func Pages(t testing.TB, path string) Layout {
	t.Helper()
	l := Layout{Pages: map[string][]int{}}
	view(t, path, func(tx *bolt.Tx) error {
		l.PageSize, l.Newest = tx.DB().Info().PageSize, tx.ID()%2
		for id := 0; ; id++ {
			p, err := tx.Page(id)
			if p == nil || err != nil {
				l.Limit = id
				return err
			}
			l.Pages[p.Type] = append(l.Pages[p.Type], id)
			if p.Type == Free {
				continue // what it says of an overflow is what it said when it was in use
			}
			for range p.OverflowCount {
				id++
				l.Pages[Overflow] = append(l.Pages[Overflow], id)
			}
		}
	})
	return l
}

// Keys lists the keys of a bucket.
func Keys(t testing.TB, path, bucket string) (keys [][]byte) {
	t.Helper()
	view(t, path, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(k, _ []byte) error {
			keys = append(keys, bytes.Clone(k))
			return nil
		})
	})
	return keys
}

// Spoil flips one bit of a stored value, in the file itself. What was freed with the same content is hit with it.
func Spoil(t testing.TB, path, bucket string, key []byte) {
	t.Helper()
	var stored []byte
	view(t, path, func(tx *bolt.Tx) error {
		stored = bytes.Clone(tx.Bucket([]byte(bucket)).Get(key))
		return nil
	})
	if stored == nil {
		t.Fatalf("bucket %s has no key %q", bucket, key)
	}
	spoiled := bytes.Clone(stored)
	spoiled[len(spoiled)-1] ^= 0x04
	Edit(t, path, func(file []byte) []byte {
		if !bytes.Contains(file, stored) {
			t.Fatalf("the value of %q is not in %s", key, path)
		}
		return bytes.ReplaceAll(file, stored, spoiled)
	})
}

// Edit gives the bytes of a file to a function and writes what it returns, in place.
func Edit(t testing.TB, path string, change func([]byte) []byte) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(file), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func view(t testing.TB, path string, read func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: time.Second})
	if err == nil {
		err = errors.Join(db.View(read), db.Close())
	}
	if err != nil {
		t.Fatal(fmt.Errorf("read %s: %w", path, err))
	}
}

// Bloat leaves so many bytes of free pages in a file, as deletions do.
func Bloat(t testing.TB, path string, size int) {
	t.Helper()
	name := []byte("bloat")
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket(name)
		if err != nil {
			return err
		}
		return b.Put(name, make([]byte, size))
	})
	if err == nil {
		err = db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket(name) })
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}
