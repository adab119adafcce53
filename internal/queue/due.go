package queue

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

func isBadValue(err error) bool { return errors.Is(err, store.ErrBadValue) }

// seqOf reads the sequence number that ends the key of every index.
func seqOf(key []byte) uint64 {
	if len(key) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key[len(key)-8:])
}

// idAt returns the ID that was adopted as number seq.
func idAt(tx *store.Tx, seq uint64) (attachment.ID, error) {
	value, err := tx.Bucket(bOrder).Get(seqKey(seq))
	if err != nil {
		return "", err
	}
	if value == nil {
		return "", ErrNotFound
	}
	return attachment.ID(value), nil
}

// indexed returns the ID that an index entry points at. A damaged value is no loss: the key's sequence number says it
// too.
func indexed(tx *store.Tx, key, value []byte, bad error) (attachment.ID, error) {
	if bad == nil {
		return attachment.ID(value), nil
	}
	return idAt(tx, seqOf(key))
}

// Want narrows what ClaimWanted gives out. The zero value takes everything.
type Want struct {
	// Avoid names attachments that are taken only when nothing else is due; nil names none.
	Avoid func(attachment.ID) bool
	// Fresh takes only attachments that were never tried.
	Fresh bool
	// Front takes only what a person put to the front.
	Front bool
	// Quick takes only urgent attachments, of a priority above 0, and those of at most so many bytes, a power of two; 0
	// takes all.
	Quick int64
}

// IsQuick reports whether an attachment is urgent or at most so many bytes long: Want.Quick of one attachment.
func IsQuick(m *attachment.Manifest, small int64) bool {
	return m.Priority > 0 || sizeClass(m.Length) <= sizeClass(small)
}

// passOver bounds how many due attachments of one priority and size class are looked at for a wanted one.
const passOver = 256

// firstDue returns the next attachment to work on: the highest priority first, then who has waited longest for its
// turn, which is who never had to wait before all others, then capture order. Claimed items are passed over, damaged
// ones too, and avoided ones while another is due. next is when the earliest of those that are not due yet will be; zero
// when none waits.
func firstDue(tx *store.Tx, now time.Time, want Want) (found *attachment.Manifest, next time.Time, err error) {
	s := search{tx: tx, limit: unixMilli(now), want: want}
	err = lanes(tx, nil, func(lane []byte) error {
		if s.found.m != nil && lane[0] > s.found.place[0] || want.Front && lane[0] > 0 {
			return store.ErrStop
		}
		if want.Quick > 0 && lane[0] == maxLevel && lane[1] > sizeClass(want.Quick) {
			return store.ErrStop
		}
		return s.lane(lane)
	})
	switch {
	case err != nil:
		return nil, time.Time{}, err
	case s.found.m != nil:
		return s.found.m, time.Time{}, nil
	case s.avoided.m != nil && !want.Fresh:
		return s.avoided.m, time.Time{}, nil
	case s.soonest > 0:
		next = time.UnixMilli(int64(s.soonest)).UTC()
	}
	return nil, next, nil
}

// lanes calls visit for every lane that something waits in, in the order of their keys, beginning with that of the key
// from. ErrStop of visit ends it.
func lanes(tx *store.Tx, from []byte, visit func(lane []byte) error) error {
	for {
		var lane []byte
		err := tx.Bucket(bDue).Scan(nil, from, func(key, _ []byte, _ error) error {
			lane = slices.Clone(key[:laneSize])
			return store.ErrStop
		})
		if err != nil || lane == nil {
			return err
		}
		if err := visit(lane); err != nil {
			if errors.Is(err, store.ErrStop) {
				return nil
			}
			return err
		}
		from = binary.BigEndian.AppendUint16(nil, binary.BigEndian.Uint16(lane)+1)
	}
}

// search looks for the next attachment in one lane after the other.
type search struct {
	tx      *store.Tx
	limit   uint64 // not before it: later than now
	want    Want
	soonest uint64
	// found and avoided are the first ones so far.
	found, avoided candidate
}

// candidate is an attachment with its place in the order: its key without the size class.
type candidate struct {
	m     *attachment.Manifest
	place []byte
}

func (c *candidate) after(place []byte) bool { return c.m == nil || bytes.Compare(c.place, place) > 0 }

// lane looks for an attachment that comes before those found in other lanes.
func (s *search) lane(lane []byte) error {
	looked := 0
	return s.tx.Bucket(bDue).Scan(lane, nil, func(key, value []byte, bad error) error {
		at := binary.BigEndian.Uint64(key[laneSize:])
		if at > s.limit {
			if s.soonest == 0 || at < s.soonest {
				s.soonest = at
			}
			return store.ErrStop
		}
		place := slices.Concat(key[:1], key[laneSize:])
		if !s.found.after(place) {
			return store.ErrStop
		}
		id, err := indexed(s.tx, key, value, bad)
		if err != nil || s.tx.Bucket(bClaims).Has(idKey(id)) {
			return nil
		}
		m, err := load(s.tx, id)
		if err != nil {
			return nil
		}
		looked++
		switch {
		case s.want.Fresh && (m.Delivery.Attempts > 0 || m.Delivery.Failures > 0):
		case s.want.Avoid != nil && s.want.Avoid(id):
			if s.avoided.after(place) {
				s.avoided = candidate{m, place}
			}
		default:
			s.found = candidate{m, place}
			return store.ErrStop
		}
		if looked == passOver {
			return store.ErrStop
		}
		return nil
	})
}

// Waiting returns what ClaimWanted would give out, and claims nothing. Without anything m is nil, and next is ClaimDue's.
func (q *Queue) Waiting(want Want) (m *attachment.Manifest, next time.Time, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		m, next, err = firstDue(tx, q.clock(), want)
		return err
	})
	return m, next, err
}

// clampPage bounds how many waits one transaction shortens.
const clampPage = 256

// ClampWaits ends waits that a wall clock set back would stretch: an item that would be tried later than now plus its
// own delay is tried after that delay. Call it at start and when the clock was set.
func (q *Queue) ClampWaits(ctx context.Context) error {
	var from []byte
	for {
		var next []byte
		err := q.store.Update(ctx, func(tx *store.Tx) (err error) {
			next, err = q.clampFrom(tx, from)
			return err
		})
		if from = next; err != nil || next == nil {
			return err
		}
	}
}

// clampWait brings a wait that is longer than it was meant to be back to its length, and reports whether it was.
func clampWait(m *attachment.Manifest, now time.Time) bool {
	latest := now.Add(m.Delivery.Wait)
	if !m.Delivery.NotBefore.After(latest) {
		return false
	}
	m.Delivery.NotBefore = latest
	return true
}

// afterNow is the first key of a lane whose wait is not over.
func afterNow(lane []byte, now time.Time) []byte {
	return binary.BigEndian.AppendUint64(slices.Clone(lane), unixMilli(now)+1)
}

// clampFrom works on one page, starting at the key from, and returns where the next page starts.
func (q *Queue) clampFrom(tx *store.Tx, from []byte) (next []byte, err error) {
	now := q.clock()
	var ids []attachment.ID
	err = lanes(tx, from, func(lane []byte) error {
		start := afterNow(lane, now)
		if bytes.Compare(from, start) > 0 {
			start = from
		}
		err := tx.Bucket(bDue).Scan(lane, start, func(key, value []byte, bad error) error {
			if len(ids) == clampPage {
				next = slices.Clone(key)
				return store.ErrStop
			}
			id, err := indexed(tx, key, value, bad)
			if err == nil {
				ids = append(ids, id)
			}
			return nil
		})
		if err == nil && next != nil {
			err = store.ErrStop
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		m, err := load(tx, id)
		if err != nil || !clampWait(m, now) {
			continue
		}
		_, err = q.apply(tx, id, Change{
			Event: attachment.EventRescheduled, Detail: "the clock was set back",
			Edit: func(m *attachment.Manifest) { clampWait(m, now) },
		})
		if err != nil {
			return nil, err
		}
	}
	return next, nil
}
