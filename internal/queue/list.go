package queue

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/store"
)

// MaxPage bounds a page of List, in entries.
const MaxPage = 500

// Entry is one attachment as the queue knows it. Manifest is nil, and Err says why, when its stored value is damaged.
type Entry struct {
	ID        attachment.ID
	Seq       uint64
	Manifest  *attachment.Manifest
	Confirmed int64
	Failure   *Failure
	Claimed   bool
	Err       error
}

// Query selects attachments. At most one of Condition and Parent narrows it; both empty means all.
type Query struct {
	Condition attachment.Condition
	Parent    string
	// Cursor is what the page before returned; empty for the first page.
	Cursor string
	Limit  int
}

// List returns a page in capture order and the cursor of the next one, which is empty at the end.
func (q *Queue) List(query Query) (page []Entry, cursor string, err error) {
	limit := min(max(query.Limit, 1), MaxPage)
	bucket, prefix := bOrder, []byte(nil)
	switch {
	case query.Condition != "":
		bucket, prefix = bConditions, groupPrefix(string(query.Condition))
	case query.Parent != "":
		bucket, prefix = bChildren, groupPrefix(query.Parent)
	}
	from, err := decodeCursor(prefix, query.Cursor)
	if err != nil {
		return nil, "", err
	}
	err = q.store.View(func(tx *store.Tx) error {
		page, cursor = nil, ""
		return tx.Bucket(bucket).Scan(prefix, from, func(key, value []byte, bad error) error {
			if len(key) != len(prefix)+8 {
				return nil // a longer text that begins with ours
			}
			if len(page) == limit {
				cursor = hex.EncodeToString(key[len(prefix):])
				return store.ErrStop
			}
			id, err := indexed(tx, key, value, bad)
			if err != nil {
				page = append(page, Entry{Seq: seqOf(key), Err: err})
				return nil
			}
			e, err := entry(tx, id)
			e.Seq = seqOf(key)
			page = append(page, e)
			return err
		})
	})
	return page, cursor, err
}

// IDs is List for a condition without reading any manifest: cheap enough to hold every attachment against the spool.
func (q *Queue) IDs(c attachment.Condition, cursor string, limit int) (ids []attachment.ID, next string, err error) {
	prefix := groupPrefix(string(c))
	from, err := decodeCursor(prefix, cursor)
	if err != nil {
		return nil, "", err
	}
	err = q.store.View(func(tx *store.Tx) error {
		ids, next = nil, ""
		return tx.Bucket(bConditions).Scan(prefix, from, func(key, value []byte, bad error) error {
			if len(ids) == limit {
				next = hex.EncodeToString(key[len(prefix):])
				return store.ErrStop
			}
			if id, err := indexed(tx, key, value, bad); err == nil {
				ids = append(ids, id)
			}
			return nil
		})
	})
	return ids, next, err
}

// ErrBadCursor is returned by List for a cursor that it did not make.
var ErrBadCursor = errors.New("not a cursor of this list")

func decodeCursor(prefix []byte, cursor string) ([]byte, error) {
	if cursor == "" {
		return nil, nil
	}
	seq, err := hex.DecodeString(cursor)
	if err != nil || len(seq) != 8 {
		return nil, fmt.Errorf("list: %w", ErrBadCursor)
	}
	return append(slices.Clone(prefix), seq...), nil
}

func entry(tx *store.Tx, id attachment.ID) (Entry, error) {
	e := Entry{ID: id, Claimed: tx.Bucket(bClaims).Has(idKey(id))}
	m, err := load(tx, id)
	if isBadValue(err) {
		e.Err = err
		return e, nil
	}
	if err != nil {
		return e, err
	}
	e.Manifest, e.Seq = m, m.Seq
	if e.Confirmed, err = confirmed(tx, m); err != nil {
		return e, err
	}
	f, found, err := store.GetJSON[Failure](tx.Bucket(bErrors), idKey(id))
	if found && err == nil {
		e.Failure = &f
	}
	if isBadValue(err) {
		err = nil
	}
	return e, err
}

// Get returns one attachment. Errors wrap ErrNotFound.
func (q *Queue) Get(id attachment.ID) (e Entry, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		if !tx.Bucket(bManifests).Has(idKey(id)) {
			return fmt.Errorf("attachment %.64s: %w", attachment.Printable(string(id)), ErrNotFound)
		}
		e, err = entry(tx, id)
		return err
	})
	return e, err
}

// Receipt returns the receipt of a delivered attachment; nil when there is none.
func (q *Queue) Receipt(id attachment.ID) (r *receipt.Receipt, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		v, found, err := store.GetJSON[receipt.Receipt](tx.Bucket(bReceipts), idKey(id))
		if found && err == nil {
			r = &v
		}
		return err
	})
	return r, err
}

// Resolve returns the IDs that begin or end with the given text, at most limit.
func (q *Queue) Resolve(text string, limit int) (ids []attachment.ID, err error) {
	text = strings.ToLower(text)
	tail := []byte(text)
	slices.Reverse(tail)
	err = q.store.View(func(tx *store.Tx) error {
		ids = nil
		collect := func(id attachment.ID) error {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
			if len(ids) == limit {
				return store.ErrStop
			}
			return nil
		}
		err := tx.Bucket(bTails).Scan(tail, nil, func(key, _ []byte, _ error) error {
			return collect(idOfTail(key))
		})
		if err != nil || len(ids) == limit {
			return err
		}
		return tx.Bucket(bManifests).Scan([]byte(text), nil, func(key, _ []byte, _ error) error {
			return collect(attachment.ID(key))
		})
	})
	return ids, err
}

// Counts returns items and bytes per condition, from the kept counters.
func (q *Queue) Counts() (counts map[attachment.Condition]Count, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		counts = map[attachment.Condition]Count{}
		for _, c := range attachment.Conditions() {
			n, found, err := store.GetJSON[Count](tx.Bucket(bCounters), []byte(c))
			if isBadValue(err) {
				n, err = recountCondition(tx, c)
				found = true
			}
			if err != nil {
				return err
			}
			if found && n != (Count{}) {
				counts[c] = n
			}
		}
		return nil
	})
	return counts, err
}

// Oldest returns the first attachment in a condition, in capture order; found is false when there is none.
func (q *Queue) Oldest(c attachment.Condition) (e Entry, found bool, err error) {
	page, _, err := q.List(Query{Condition: c, Limit: 1})
	if err != nil || len(page) == 0 {
		return Entry{}, false, err
	}
	return page[0], true, nil
}

// Parents returns a page of parents in the order of their local IDs, and the cursor of the next page.
func (q *Queue) Parents(cursor string, limit int) (page []ParentCounts, next string, err error) {
	from, err := hex.DecodeString(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("list parents: %w", ErrBadCursor)
	}
	limit = min(max(limit, 1), MaxPage)
	err = q.store.View(func(tx *store.Tx) error {
		page, next = nil, ""
		return tx.Bucket(bParents).Scan(nil, from, func(key, value []byte, bad error) error {
			if len(page) == limit {
				next = hex.EncodeToString(key)
				return store.ErrStop
			}
			var p ParentCounts
			if bad != nil || json.Unmarshal(value, &p) != nil {
				var err error
				if p, err = recountParent(tx, string(key)); err != nil {
					return err
				}
			}
			page = append(page, p)
			return nil
		})
	})
	return page, next, err
}

// ParentOf returns the counts of one parent, or, for the empty ID, of the attachments without one; found is false when
// nothing belongs to it.
func (q *Queue) ParentOf(localID string) (p ParentCounts, found bool, err error) {
	key := keyOfParent(localID)
	err = q.store.View(func(tx *store.Tx) error {
		p, found, err = store.GetJSON[ParentCounts](tx.Bucket(bParents), []byte(key))
		if isBadValue(err) {
			found = true
			p, err = recountParent(tx, key)
		}
		return err
	})
	return p, found, err
}

// NextAttempt returns when the earliest wait of any attachment ends; zero when none waits for a time.
func (q *Queue) NextAttempt() (next time.Time, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		now := q.clock()
		return lanes(tx, nil, func(lane []byte) error {
			return tx.Bucket(bDue).Scan(lane, afterNow(lane, now), func(key, _ []byte, _ error) error {
				if at := time.UnixMilli(int64(binary.BigEndian.Uint64(key[laneSize:]))).UTC(); next.IsZero() || at.Before(next) {
					next = at
				}
				return store.ErrStop
			})
		})
	})
	return next, err
}
