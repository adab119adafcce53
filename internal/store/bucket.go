package store

import (
	"bytes"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Limits of one entry, in bytes.
const (
	MaxKey   = 8 << 10
	MaxValue = 8 << 20
)

// Bucket is one bucket within one transaction, and dead with it. Keys sort by their bytes.
type Bucket struct {
	tx      *Tx
	name    string
	seal    sealer
	raw     *bolt.Bucket
	kept    *tally // loaded when first needed
	changed bool   // kept differs from what is stored
	writes  int    // changes of this bucket in this transaction
}

func (b *Bucket) rawGet(key []byte) []byte {
	b.tx.inBolt = true
	stored := b.raw.Get(key)
	b.tx.inBolt = false
	return stored
}

// open checks a stored value; the result aliases it.
func (b *Bucket) open(key, stored []byte) ([]byte, error) {
	value, damage := b.seal.open(key, stored)
	if damage != "" {
		return nil, &BadValueError{Bucket: b.name, Key: bytes.Clone(key), Reason: damage}
	}
	return value, nil
}

// Get returns a copy of the value of key, or nil when there is none (an empty value is not nil). The only error is a
// *BadValueError.
func (b *Bucket) Get(key []byte) ([]byte, error) {
	stored := b.rawGet(key)
	if stored == nil {
		return nil, nil
	}
	value, err := b.open(key, stored)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(value), nil
}

// Has reports whether key has a value, sound or damaged.
func (b *Bucket) Has(key []byte) bool { return b.rawGet(key) != nil }

// Put sets the value of key; both are copied. Errors: ErrReadOnly, ErrEmptyKey, ErrTooLarge.
func (b *Bucket) Put(key, value []byte) error {
	switch {
	case !b.tx.Writable():
		return fmt.Errorf("put in bucket %s: %w", b.name, ErrReadOnly)
	case len(key) == 0:
		return fmt.Errorf("put in bucket %s: %w", b.name, ErrEmptyKey)
	case len(key) > MaxKey || len(value) > MaxValue:
		return fmt.Errorf("put in bucket %s: %w: %d and %d bytes", b.name, ErrTooLarge, len(key), len(value))
	}
	kept := b.tally()
	isNew := b.rawGet(key) == nil
	b.wrote(len(key) + len(value))
	b.tx.inBolt = true
	err := b.raw.Put(key, b.seal.seal(key, value))
	b.tx.inBolt = false
	if err != nil {
		return fmt.Errorf("put in bucket %s: %w", b.name, err)
	}
	if isNew {
		kept.count++
		b.changed = true
	}
	return nil
}

// Delete removes key; that it is absent is fine. The only error is ErrReadOnly.
func (b *Bucket) Delete(key []byte) error {
	if !b.tx.Writable() {
		return fmt.Errorf("delete in bucket %s: %w", b.name, ErrReadOnly)
	}
	if b.rawGet(key) == nil {
		return nil
	}
	kept := b.tally()
	b.wrote(len(key))
	b.tx.inBolt = true
	err := b.raw.Delete(key)
	b.tx.inBolt = false
	if err != nil {
		return fmt.Errorf("delete in bucket %s: %w", b.name, err)
	}
	kept.count--
	b.changed = true
	return nil
}

// wrote notes a change before it is made, so that one which breaks off counts too.
func (b *Bucket) wrote(n int) {
	b.writes++
	b.tx.writes++
	b.tx.bytes += n
}

// Count returns the number of keys, from the count that is kept beside the bucket: it costs nothing.
func (b *Bucket) Count() uint64 { return b.tally().count }

// NextSequence returns 1, 2, 3, … for the bucket: each number once, as far as its transaction commits. The only error is
// ErrReadOnly.
func (b *Bucket) NextSequence() (uint64, error) {
	if !b.tx.Writable() {
		return 0, fmt.Errorf("next number of bucket %s: %w", b.name, ErrReadOnly)
	}
	kept := b.tally()
	b.wrote(0)
	kept.sequence++
	b.changed = true
	return kept.sequence, nil
}

func (b *Bucket) tally() *tally {
	if b.kept == nil {
		key := []byte(b.name)
		value, damage := tallySealer.open(key, b.tx.tallies.rawGet(key))
		t, ok := decodeTally(value)
		if damage != "" || !ok {
			gone("the count of bucket %s", b.name)
		}
		b.kept = &t
	}
	return b.kept
}

// Scan calls fn for the keys that begin with prefix (nil: all) and are not below from (nil: the first), in ascending order.
// For a damaged value fn gets a nil value and a *BadValueError as bad, and the scan goes on. Key and value are valid only
// inside fn. An error of fn ends the scan and is returned, except that ErrStop makes it nil.
//
// fn must not write to the bucket that is scanned, since bbolt's cursor would skip keys; collect them first. Scan panics
// when it does.
func (b *Bucket) Scan(prefix, from []byte, fn func(key, value []byte, bad error) error) error {
	start := prefix
	if bytes.Compare(from, start) > 0 {
		start = from
	}
	writes := b.writes
	b.tx.inBolt = true
	cursor := b.raw.Cursor()
	key, stored := cursor.Seek(start)
	b.tx.inBolt = false
	for key != nil && bytes.HasPrefix(key, prefix) {
		value, bad := b.open(key, stored)
		if err := fn(key, value, bad); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
		if b.writes != writes {
			misuse("a scan of bucket %s wrote to it", b.name)
		}
		b.tx.inBolt = true
		key, stored = cursor.Next()
		b.tx.inBolt = false
	}
	return nil
}

// Last returns copies of the greatest key that begins with prefix (nil: of all) and of its value; a nil key says that
// there is none. With a *BadValueError the key is returned too.
func (b *Bucket) Last(prefix []byte) (key, value []byte, err error) {
	key, stored := b.lastBefore(successor(prefix))
	if key == nil || !bytes.HasPrefix(key, prefix) {
		return nil, nil, nil
	}
	value, err = b.open(key, stored)
	if err != nil {
		return bytes.Clone(key), nil, err
	}
	return bytes.Clone(key), bytes.Clone(value), nil
}

// successor returns the least key above all those that begin with prefix, nil if there is no such key.
func successor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			next := bytes.Clone(prefix[:i+1])
			next[i]++
			return next
		}
	}
	return nil
}

// lastBefore returns the entry with the greatest key below end; nil is no bound.
func (b *Bucket) lastBefore(end []byte) (key, stored []byte) {
	b.tx.inBolt = true
	key, stored = seekBefore(b.raw, end)
	b.tx.inBolt = false
	return key, stored
}

func seekBefore(raw *bolt.Bucket, end []byte) (key, stored []byte) {
	cursor := raw.Cursor()
	if end == nil {
		return cursor.Last()
	}
	if key, _ := cursor.Seek(end); key == nil {
		return cursor.Last()
	}
	if key, stored = cursor.Prev(); key != nil || !raw.Writable() {
		return key, stored
	}
	// Deletions of this transaction leave empty pages behind, on which Prev answers nil before the beginning.
	first, _ := raw.Cursor().First()
	if first == nil || bytes.Compare(first, end) >= 0 {
		return nil, nil
	}
	for key == nil {
		key, stored = cursor.Prev()
	}
	return key, stored
}
