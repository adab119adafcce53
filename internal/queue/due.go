package queue

import (
	"context"
	"encoding/binary"
	"errors"
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
}

// passOver bounds how many due attachments are looked at for a wanted one.
const passOver = 256

// firstDue returns the next attachment to work on: the highest priority first, then who has waited longest for its
// turn, then capture order. Claimed items are passed over, damaged ones too, and avoided ones while another is due. next
// is when the earliest of those that are not due yet will be; zero when none waits.
func firstDue(tx *store.Tx, now time.Time, want Want) (found *attachment.Manifest, next time.Time, err error) {
	limit := unixMilli(now)
	var soonest uint64
	var avoided *attachment.Manifest
	looked := 0
	for level := range byte(attachment.MaxPriority + 1) {
		err := tx.Bucket(bDue).Scan([]byte{level}, nil, func(key, value []byte, bad error) error {
			at := binary.BigEndian.Uint64(key[1:9])
			if at > limit {
				if soonest == 0 || at < soonest {
					soonest = at
				}
				return store.ErrStop
			}
			id, err := indexed(tx, key, value, bad)
			if err != nil || tx.Bucket(bClaims).Has(idKey(id)) {
				return nil
			}
			m, err := load(tx, id)
			if err != nil {
				return nil
			}
			looked++
			switch {
			case want.Fresh && (m.Delivery.Attempts > 0 || m.Delivery.Failures > 0):
			case want.Avoid != nil && want.Avoid(id):
				if avoided == nil {
					avoided = m
				}
			default:
				found = m
				return store.ErrStop
			}
			if looked == passOver {
				return store.ErrStop
			}
			return nil
		})
		if err != nil {
			return nil, time.Time{}, err
		}
		if found != nil || looked == passOver {
			break
		}
	}
	if found == nil && !want.Fresh {
		found = avoided
	}
	if found != nil {
		return found, time.Time{}, nil
	}
	if soonest > 0 {
		next = time.UnixMilli(int64(soonest)).UTC()
	}
	return nil, next, nil
}

// clampPage bounds how many waits one transaction shortens.
const clampPage = 256

// ClampWaits ends waits that a wall clock set back would stretch: an item that would be tried later than now plus its
// own delay is tried after that delay. Call it at start and when the clock was set.
func (q *Queue) ClampWaits(ctx context.Context) error {
	var from []byte
	for level := 0; level <= attachment.MaxPriority; {
		var last []byte
		err := q.store.Update(ctx, func(tx *store.Tx) (err error) {
			last, err = q.clampLevel(tx, byte(level), from)
			return err
		})
		if err != nil {
			return err
		}
		if from = last; from == nil {
			level++
		}
	}
	return nil
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

// clampLevel works on one page of one priority, starting at from, and returns where the next page starts.
func (q *Queue) clampLevel(tx *store.Tx, level byte, from []byte) (next []byte, err error) {
	now := q.clock()
	if from == nil {
		from = binary.BigEndian.AppendUint64([]byte{level}, unixMilli(now)+1)
	}
	var ids []attachment.ID
	err = tx.Bucket(bDue).Scan([]byte{level}, from, func(key, value []byte, bad error) error {
		if len(ids) == clampPage {
			next = append([]byte(nil), key...)
			return store.ErrStop
		}
		id, err := indexed(tx, key, value, bad)
		if err == nil {
			ids = append(ids, id)
		}
		return nil
	})
	for _, id := range ids {
		m, lerr := load(tx, id)
		if lerr != nil || !clampWait(m, now) {
			continue
		}
		_, err := q.apply(tx, id, Change{
			Event: attachment.EventRescheduled, Detail: "the clock was set back",
			Edit: func(m *attachment.Manifest) { clampWait(m, now) },
		})
		if err != nil {
			return nil, err
		}
	}
	return next, err
}
