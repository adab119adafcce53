package queue

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// repairPage bounds how many entries one transaction of a repair looks at.
const repairPage = 256

// Reindex makes every index and counter agree with the manifests: missing entries are put, stale ones deleted, counters
// computed anew, and damaged values beside them mended. It works in small transactions and may run while the queue is in use. Manifests and journal are the
// truth and are not touched.
func (q *Queue) Reindex(ctx context.Context) error {
	if err := q.pages(ctx, bManifests, q.putEntries); err != nil {
		return err
	}
	for _, bucket := range []string{bOrder, bTails, bConditions, bDue, bChildren, bReleases, bUnbound, bContents} {
		fix := func(tx *store.Tx, key, value []byte, _ error) error { return dropStale(tx, bucket, key, value) }
		if err := q.pages(ctx, bucket, fix); err != nil {
			return err
		}
	}
	err := q.store.Update(ctx, func(tx *store.Tx) error {
		if err := recountConditions(tx); err != nil {
			return err
		}
		return recountParents(tx)
	})
	if err != nil {
		return err
	}
	return q.mend(ctx)
}

// pages calls fix for every entry of a bucket, a page in each transaction.
func (q *Queue) pages(ctx context.Context, bucket string, fix func(tx *store.Tx, key, value []byte, bad error) error) error {
	type item struct {
		key, value []byte
		bad        error
	}
	var from []byte
	for {
		var page []item
		err := q.store.Update(ctx, func(tx *store.Tx) error {
			page = nil
			err := tx.Bucket(bucket).Scan(nil, from, func(key, value []byte, bad error) error {
				page = append(page, item{append([]byte(nil), key...), append([]byte(nil), value...), bad})
				if len(page) == repairPage {
					return store.ErrStop
				}
				return nil
			})
			for _, i := range page {
				if err := fix(tx, i.key, i.value, i.bad); err != nil {
					return err
				}
			}
			return err
		})
		if err != nil || len(page) < repairPage {
			return err
		}
		from = append(page[len(page)-1].key, 0)
	}
}

// putEntries puts the index entries that a manifest demands.
func (q *Queue) putEntries(tx *store.Tx, key, value []byte, bad error) error {
	var m attachment.Manifest
	if bad != nil || json.Unmarshal(value, &m) != nil {
		return nil
	}
	// One source may have become several attachments, so that an entry which can be read is left.
	if _, err := tx.Bucket(bLedger).Get(ledgerKey(SightingOf(m.Source))); isBadValue(err) {
		if err := putLedger(tx, &m); err != nil {
			return err
		}
	}
	for bucket, want := range entriesOf(&m) {
		found, err := tx.Bucket(bucket).Get(want.key)
		if err != nil && !isBadValue(err) {
			return err
		}
		if err == nil && tx.Bucket(bucket).Has(want.key) && string(found) == string(want.value) {
			continue
		}
		if err := tx.Bucket(bucket).Put(want.key, want.value); err != nil {
			return err
		}
	}
	return nil
}

// indexEntry is what one index holds of one attachment.
type indexEntry struct{ key, value []byte }

// entriesOf lists what every index must hold of an attachment.
func entriesOf(m *attachment.Manifest) map[string]indexEntry {
	id := idKey(m.ID)
	entries := map[string]indexEntry{
		bOrder:      {seqKey(m.Seq), id},
		bTails:      {tailKey(m.ID), nil},
		bConditions: {groupKey(string(m.Condition()), m.Seq), id},
		bChildren:   {groupKey(parentKey(m), m.Seq), id},
	}
	if m.Due() {
		entries[bDue] = indexEntry{dueKey(m), id}
	}
	if inContents(m) {
		entries[bContents] = indexEntry{contentsKey(m), id}
	}
	if m.ReleasePending() {
		entries[bReleases] = indexEntry{id, nil}
	}
	if m.Unbound() {
		entries[bUnbound] = indexEntry{unboundKey(m), id}
	}
	return entries
}

// dropStale deletes an index entry that no manifest demands. Entries of an attachment whose manifest is damaged stay:
// they are what is still known of it.
func dropStale(tx *store.Tx, bucket string, key, value []byte) error {
	id, err := owner(tx, bucket, key, value)
	if err == nil {
		var m *attachment.Manifest
		if m, err = load(tx, id); err == nil && string(entriesOf(m)[bucket].key) == string(key) || isBadValue(err) {
			return nil
		}
	}
	if err != nil && !isBadValue(err) && !errors.Is(err, ErrNotFound) {
		return err
	}
	return tx.Bucket(bucket).Delete(key)
}

// owner is the attachment that an index entry belongs to.
func owner(tx *store.Tx, bucket string, key, value []byte) (attachment.ID, error) {
	switch bucket {
	case bTails:
		return idOfTail(key), nil
	case bReleases:
		return attachment.ID(key), nil
	case bOrder:
		return attachment.ID(value), nil
	}
	return idAt(tx, seqOf(key))
}

// recountParents computes every parent's counts anew, and drops parents that nothing belongs to.
func recountParents(tx *store.Tx) error {
	var keys []string
	err := tx.Bucket(bParents).Scan(nil, nil, func(key, _ []byte, _ error) error {
		keys = append(keys, string(key))
		return nil
	})
	if err != nil {
		return err
	}
	last := ""
	err = tx.Bucket(bChildren).Scan(nil, nil, func(key, _ []byte, _ error) error {
		if parent := string(key[:max(0, len(key)-9)]); parent != last {
			last = parent
			keys = append(keys, parent)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := putParent(tx, key); err != nil {
			return err
		}
	}
	return nil
}
