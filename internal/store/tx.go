package store

import (
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Tx is one transaction: a View's snapshot, or one run of an Update's function. It is used by one goroutine and is dead
// when the function returns.
type Tx struct {
	raw      *bolt.Tx
	gen      *generation // of a View
	allowed  map[string]sealer
	buckets  map[string]*Bucket
	tallies  *Bucket // the internal bucket that holds counts and sequences
	inBolt   bool    // bbolt is at work: a panic now is its own
	writes   int     // changes so far
	bytes    int     // keys and values of those changes
	handlers []func()
}

// Writable reports whether the transaction can change anything.
func (tx *Tx) Writable() bool { return tx.raw.Writable() }

// OnCommit has fn run after the commit that makes this run of the function durable, before Update returns. Functions run
// in order, across all transactions, on the writer goroutine: they must be quick and must not call Update or Close. They
// are dropped when the function fails or is run again. In a View nothing ever runs them.
func (tx *Tx) OnCommit(fn func()) { tx.handlers = append(tx.handlers, fn) }

// Bucket returns a bucket of the schema. It panics for any other name: a mistake of the program that no input can cause.
func (tx *Tx) Bucket(name string) *Bucket {
	if b := tx.buckets[name]; b != nil {
		return b
	}
	seal, ok := tx.allowed[name]
	if !ok {
		misuse("bucket %q is not in the schema", name)
	}
	b := tx.open(name, seal)
	tx.buckets[name] = b
	return b
}

func (tx *Tx) open(name string, seal sealer) *Bucket {
	tx.inBolt = true
	raw := tx.raw.Bucket([]byte(name))
	tx.inBolt = false
	if raw == nil {
		gone("bucket %s", name)
	}
	return &Bucket{tx: tx, name: name, seal: seal, raw: raw}
}

// start makes a transaction ready for a function. It may panic as bbolt does.
func (s *Store) start(tx *Tx, raw *bolt.Tx) {
	*tx = Tx{raw: raw, allowed: s.sealers, buckets: map[string]*Bucket{}}
	tx.tallies = tx.open(tallyBucket, tallySealer)
}

// flush writes the counts and sequences of all buckets in which they changed.
func (tx *Tx) flush() error {
	for _, name := range slices.Sorted(maps.Keys(tx.buckets)) {
		b := tx.buckets[name]
		if !b.changed {
			continue
		}
		key := []byte(name)
		if err := tx.tallies.raw.Put(key, tallySealer.seal(key, b.kept.encode())); err != nil {
			return fmt.Errorf("put the count of bucket %s: %w", name, err)
		}
	}
	return nil
}

// View runs fn on the calling goroutine with a snapshot of the store, and returns its error. What it
// sees is durable: it waits for a commit under way, and for no other work of a writer.
// Until fn returns, the space of what they replace is not used again, a file that has to be mapped anew waits, and one that
// a compaction has replaced stays on the disk: it must be brief and must not call Update. Errors of its own: ErrClosed,
// ErrDamaged when the file shows a fault (the store has then failed), or whatever the store failed with before. A panic of
// fn goes on to the caller.
func (s *Store) View(fn func(*Tx) error) (err error) {
	if err := s.usable(); err != nil {
		return err
	}
	g := s.enter()
	var raw *bolt.Tx
	err = s.unstuck(func() (err error) {
		s.showing.RLock()
		defer s.showing.RUnlock()
		if err := s.Err(); err != nil {
			return err // what the commit that failed meanwhile wrote may be there to read, and may not be there to stay
		}
		raw, err = g.db.Begin(false)
		return err
	})
	if err != nil {
		s.leave(g)
	}
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	if err != nil {
		return err
	}
	tx := &Tx{}
	previous := debug.SetPanicOnFault(true)
	defer func() {
		r := recover()
		debug.SetPanicOnFault(previous)
		if r != nil {
			if damage := asDamage(r, tx.inBolt); damage != nil {
				err = s.abandon(damage)
				return // and without leave: the file stays open
			}
		}
		if rerr := s.unstuck(raw.Rollback); err == nil {
			err = rerr
		}
		s.leave(g)
		if r != nil {
			reraise(r)
		}
	}()
	s.start(tx, raw)
	tx.gen = g
	return fn(tx)
}
