package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Suspect reports whether the store found damaged values when it was opened, so that looking for them is worth the time.
func (q *Queue) Suspect() bool { return q.store.Stats().BadValues > 0 }

// Damaged returns attachments whose stored manifest, segment digests or receipt is damaged, at most limit of them, starting
// after an ID.
func (q *Queue) Damaged(after attachment.ID, limit int) (ids []attachment.ID, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		ids = nil
		return tx.Bucket(bManifests).Scan(nil, idKey(after), func(key, _ []byte, bad error) error {
			if attachment.ID(key) == after {
				return nil
			}
			for _, bucket := range []string{bSegments, bReceipts} {
				if _, err := tx.Bucket(bucket).Get(key); err != nil {
					bad = err
				}
			}
			if bad == nil {
				return nil
			}
			if ids = append(ids, attachment.ID(key)); len(ids) == limit {
				return store.ErrStop
			}
			return nil
		})
	})
	return ids, err
}

// Park shows an attachment whose manifest is damaged, and which nothing can restore, as one that needs a person, and takes it
// out of the dispatcher's way. It changes indexes only.
func (q *Queue) Park(ctx context.Context, id attachment.ID) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		if _, err := load(tx, id); !isBadValue(err) {
			return err
		}
		first, _, err := ends(tx, id)
		if err != nil {
			return nil // where the indexes have it stands in its journal, and nowhere else
		}
		seq, err := orderOf(tx, id, first.Seq)
		if err != nil {
			return err
		}
		if err := unindex(tx, &attachment.Manifest{ID: id, Seq: seq}); err != nil {
			return err
		}
		if err := tx.Bucket(bConditions).Put(groupKey(string(attachment.ShownAttention), seq), idKey(id)); err != nil {
			return err
		}
		return recountConditions(tx)
	})
}

// restoreBeside restores what is kept beside a manifest that can be read.
func restoreBeside(tx *store.Tx, t *attachment.Travelling, r *receipt.Receipt) error {
	if err := restoreReceipt(tx, t.Manifest.ID, r); err != nil {
		return err
	}
	return putSegments(tx, t.Manifest.ID, t.Segments)
}

func restoreReceipt(tx *store.Tx, id attachment.ID, r *receipt.Receipt) error {
	if _, err := tx.Bucket(bReceipts).Get(idKey(id)); !isBadValue(err) || r == nil {
		return nil
	}
	return store.PutJSON(tx.Bucket(bReceipts), idKey(id), r)
}

// Restore makes a damaged record, or what is damaged beside it, again from the manifest that travels with the payload. State and order come from the
// journal, the receipt from its own bucket or from r, which may be nil. The session is not restored: the next reserve
// finds it. Errors wrap ErrNotFound when the journal knows nothing of the attachment either.
func (q *Queue) Restore(ctx context.Context, t *attachment.Travelling, r *receipt.Receipt) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		id := t.Manifest.ID
		if m, err := load(tx, id); err == nil && m.SHA256 == t.Manifest.SHA256 {
			return restoreBeside(tx, t, r)
		}
		first, last, err := ends(tx, id)
		if err != nil {
			return err
		}
		if kept, found, err := store.GetJSON[receipt.Receipt](tx.Bucket(bReceipts), idKey(id)); found && err == nil {
			r = &kept
		}
		m := t.Manifest.Clone()
		if m.Seq, err = orderOf(tx, id, first.Seq); err != nil {
			return err
		}
		m.State, m.Problem = last.To, nil // a person may have ended it since
		m.Delivery = attachment.Delivery{ProposedMediaID: string(id)}
		m.Prepared = m.State != attachment.Captured
		settleFacts(m, last, r)
		if m.Repeats, err = firstAlike(tx, m); err != nil {
			return err
		}
		if err := unindex(tx, m); err != nil {
			return err
		}
		if err := restoreBeside(tx, t, r); err != nil {
			return err
		}
		// write compares with no old manifest, since there is none to compare with: unindex has cleared what it left.
		if m, err = q.write(tx, nil, m, Change{Event: attachment.EventRestored}); err != nil {
			return err
		}
		if m.State == attachment.Uploading {
			if _, err := q.apply(tx, id, Change{Event: attachment.EventInterrupted}); err != nil {
				return err
			}
		}
		return recountAll(tx, parentKey(m))
	})
}

// ends returns the first and the last readable journal row of an attachment.
func ends(tx *store.Tx, id attachment.ID) (first, last Row, err error) {
	err = tx.Bucket(bHistory).Scan(idKey(id), nil, func(key, _ []byte, _ error) error {
		row, found, err := store.GetJSON[Row](tx.Bucket(bJournal), seqKey(seqOf(key)))
		if isBadValue(err) || err == nil && !found {
			return nil
		}
		if first.Seq == 0 {
			first = row
			first.Seq = seqOf(key)
		}
		last = row
		return err
	})
	if err == nil && last.Seq == 0 {
		err = fmt.Errorf("restore %s: %w", id, ErrNotFound)
	}
	return first, last, err
}

// orderOf returns the adoption's number: that of the first journal row, unless that row is damaged and the index says
// another.
func orderOf(tx *store.Tx, id attachment.ID, first uint64) (seq uint64, err error) {
	if found, err := idAt(tx, first); err == nil && found == id {
		return first, nil
	}
	seq = first
	err = tx.Bucket(bOrder).Scan(nil, nil, func(key, value []byte, _ error) error {
		if attachment.ID(value) == id {
			seq = seqOf(key)
			return store.ErrStop
		}
		return nil
	})
	return seq, err
}

// settleFacts fills in what the state demands.
func settleFacts(m *attachment.Manifest, last Row, r *receipt.Receipt) {
	switch m.State {
	case attachment.Uploaded:
		m.Delivery.Verified, m.Delivery.ParentFixed = true, true
		if r != nil && !r.Grade.Delivered() {
			noteReceipt(m, r)
		}
	case attachment.Attention, attachment.Review:
		m.Problem = &attachment.Problem{Code: last.Reason, Since: last.At, Detail: last.Detail}
	case attachment.Reconciled, attachment.Released:
		if r != nil {
			noteReceipt(m, r)
			return
		}
		if m.State == attachment.Reconciled {
			// Delivered by the journal, and the receipt is gone: it says so, and its grade is what the journal proves.
			m.Delivery.Verified, m.Delivery.Grade, m.Delivery.RegisteredAt = true, string(receipt.Registered), maxTime(last.At)
		}
	}
}

func noteReceipt(m *attachment.Manifest, r *receipt.Receipt) {
	m.Delivery.Verified, m.Delivery.Grade = true, string(r.Grade)
	m.Delivery.RegisteredAt, m.Delivery.MediaID = r.RegisteredAt.UTC(), r.MediaID
}

func maxTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return t
}

// unindex removes what the indexes hold for an attachment whose old manifest cannot be read.
func unindex(tx *store.Tx, m *attachment.Manifest) error {
	for _, c := range attachment.Conditions() {
		if err := tx.Bucket(bConditions).Delete(groupKey(string(c), m.Seq)); err != nil {
			return err
		}
	}
	if err := tx.Bucket(bReleases).Delete(idKey(m.ID)); err != nil {
		return err
	}
	for _, bucket := range []string{bDue, bChildren, bUnbound} {
		if err := dropSeq(tx.Bucket(bucket), m.Seq); err != nil {
			return err
		}
	}
	return nil
}

// dropSeq deletes what an index holds under a sequence number.
func dropSeq(b *store.Bucket, seq uint64) error {
	var stale [][]byte
	err := b.Scan(nil, nil, func(key, _ []byte, _ error) error {
		if seqOf(key) == seq {
			stale = append(stale, append([]byte(nil), key...))
		}
		return nil
	})
	for _, key := range stale {
		if derr := b.Delete(key); derr != nil {
			return derr
		}
	}
	return err
}

// recountAll computes every condition's counter and one parent's anew from the indexes.
func recountAll(tx *store.Tx, parent string) error {
	if err := recountConditions(tx); err != nil {
		return err
	}
	// A sidecar may have been binding it when the record was damaged.
	for _, key := range []string{parent, noParent} {
		if err := putParent(tx, key); err != nil {
			return err
		}
	}
	return nil
}

// putParent computes a parent's row anew and drops it when nothing belongs to it.
func putParent(tx *store.Tx, key string) error {
	p, err := recountParent(tx, key)
	if err != nil {
		return err
	}
	if len(p.Conditions) == 0 {
		return tx.Bucket(bParents).Delete([]byte(key))
	}
	return store.PutJSON(tx.Bucket(bParents), []byte(key), p)
}

func recountConditions(tx *store.Tx) error {
	for _, c := range attachment.Conditions() {
		n, err := recountCondition(tx, c)
		if err != nil {
			return err
		}
		if err := store.PutJSON(tx.Bucket(bCounters), []byte(c), n); err != nil {
			return err
		}
	}
	return nil
}
