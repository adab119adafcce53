package queue

import (
	"fmt"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Count is a number of items and their bytes.
type Count struct {
	Items int64 `json:"items"`
	Bytes int64 `json:"bytes"`
}

func (c *Count) add(items, bytes int64) {
	c.Items += items
	c.Bytes += bytes
}

// ParentCounts is what is known of a parent: its IDs, and its attachments by condition.
type ParentCounts struct {
	Parent     attachment.Parent              `json:"parent"`
	Conditions map[attachment.Condition]Count `json:"conditions"`
}

// reindex brings every index and counter from the old manifest to the new one. old is nil for a new attachment.
func reindex(tx *store.Tx, old, m *attachment.Manifest) error {
	if old == nil {
		if err := tx.Bucket(bOrder).Put(seqKey(m.Seq), idKey(m.ID)); err != nil {
			return err
		}
		if err := tx.Bucket(bTails).Put(tailKey(m.ID), nil); err != nil {
			return err
		}
	}
	if err := reindexChild(tx, old, m); err != nil {
		return err
	}
	if err := reindexDue(tx, old, m); err != nil {
		return err
	}
	if err := reindexContents(tx, old, m); err != nil {
		return err
	}
	if err := reindexRelease(tx, old, m); err != nil {
		return err
	}
	if err := reindexUnbound(tx, old, m); err != nil {
		return err
	}
	return recount(tx, old, m)
}

// reindexChild moves an attachment that a sidecar binds from the ones without a parent to its parent's.
func reindexChild(tx *store.Tx, old, m *attachment.Manifest) error {
	children := tx.Bucket(bChildren)
	if old != nil {
		if parentKey(old) == parentKey(m) {
			return nil
		}
		if err := children.Delete(groupKey(parentKey(old), old.Seq)); err != nil {
			return err
		}
	}
	return children.Put(groupKey(parentKey(m), m.Seq), idKey(m.ID))
}

func reindexUnbound(tx *store.Tx, old, m *attachment.Manifest) error {
	unbound := tx.Bucket(bUnbound)
	if old != nil && old.Unbound() {
		if m.Unbound() && string(unboundKey(old)) == string(unboundKey(m)) {
			return nil
		}
		if err := unbound.Delete(unboundKey(old)); err != nil {
			return err
		}
	}
	if !m.Unbound() {
		return nil
	}
	return unbound.Put(unboundKey(m), idKey(m.ID))
}

func reindexDue(tx *store.Tx, old, m *attachment.Manifest) error {
	due := tx.Bucket(bDue)
	if old != nil && old.Due() {
		if m.Due() && string(dueKey(old)) == string(dueKey(m)) {
			return nil
		}
		if err := due.Delete(dueKey(old)); err != nil {
			return err
		}
	}
	if !m.Due() {
		return nil
	}
	return due.Put(dueKey(m), idKey(m.ID))
}

func reindexRelease(tx *store.Tx, old, m *attachment.Manifest) error {
	was := old != nil && old.ReleasePending()
	switch is := m.ReleasePending(); {
	case is && !was:
		return tx.Bucket(bReleases).Put(idKey(m.ID), nil)
	case was && !is:
		return tx.Bucket(bReleases).Delete(idKey(m.ID))
	}
	return nil
}

func recount(tx *store.Tx, old, m *attachment.Manifest) error {
	to := m.Condition()
	if old != nil {
		from := old.Condition()
		if from == to && old.Length == m.Length && old.Parent.ServerID == m.Parent.ServerID &&
			parentKey(old) == parentKey(m) {
			return nil
		}
		if err := tx.Bucket(bConditions).Delete(groupKey(string(from), m.Seq)); err != nil {
			return err
		}
		if err := count(tx, old, from, -1); err != nil {
			return err
		}
	}
	if err := tx.Bucket(bConditions).Put(groupKey(string(to), m.Seq), idKey(m.ID)); err != nil {
		return err
	}
	return count(tx, m, to, +1)
}

func count(tx *store.Tx, m *attachment.Manifest, c attachment.Condition, sign int64) error {
	counters := tx.Bucket(bCounters)
	total, _, err := store.GetJSON[Count](counters, []byte(c))
	switch {
	case isBadValue(err):
		total, err = recountCondition(tx, c)
	case err == nil:
		total.add(sign, sign*m.Length)
	}
	if err != nil {
		return fmt.Errorf("count %s: %w", c, err)
	}
	if err := store.PutJSON(counters, []byte(c), total); err != nil {
		return err
	}
	key := parentKey(m)
	parents := tx.Bucket(bParents)
	p, _, err := store.GetJSON[ParentCounts](parents, []byte(key))
	switch {
	case isBadValue(err):
		p, err = recountParent(tx, key)
	case err == nil:
		p.add(m, c, sign)
	}
	if err != nil {
		return fmt.Errorf("count parent %s: %w", m.Parent.LocalID.Printable(), err)
	}
	if len(p.Conditions) == 0 {
		return parents.Delete([]byte(key)) // its last attachment was bound to another
	}
	return store.PutJSON(parents, []byte(key), p)
}

func (p *ParentCounts) add(m *attachment.Manifest, c attachment.Condition, sign int64) {
	p.Parent.LocalID = m.Parent.LocalID
	if m.Parent.ServerID != "" {
		p.Parent.ServerID = m.Parent.ServerID
	}
	if p.Conditions == nil {
		p.Conditions = map[attachment.Condition]Count{}
	}
	n := p.Conditions[c]
	n.add(sign, sign*m.Length)
	if n == (Count{}) {
		delete(p.Conditions, c)
		return
	}
	p.Conditions[c] = n
}

// recountCondition computes a damaged counter anew from the index, which stands at its new content already.
func recountCondition(tx *store.Tx, c attachment.Condition) (Count, error) {
	var n Count
	err := members(tx, tx.Bucket(bConditions), groupPrefix(string(c)), func(m *attachment.Manifest) {
		if m == nil {
			n.add(1, 0) // of unknown length, and not to be hidden
			return
		}
		n.add(1, m.Length)
	})
	return n, err
}

// recountParent computes a damaged parent row anew from its children.
func recountParent(tx *store.Tx, key string) (ParentCounts, error) {
	var p ParentCounts
	err := members(tx, tx.Bucket(bChildren), groupPrefix(key), func(m *attachment.Manifest) {
		if m != nil {
			p.add(m, m.Condition(), +1)
		}
	})
	return p, err
}

// members visits the manifests that an index lists, with nil for one that is damaged.
func members(tx *store.Tx, index *store.Bucket, prefix []byte, visit func(*attachment.Manifest)) error {
	return index.Scan(prefix, nil, func(key, _ []byte, _ error) error {
		id, err := idAt(tx, seqOf(key))
		if err != nil {
			return err
		}
		m, err := load(tx, id)
		if isBadValue(err) {
			m, err = nil, nil
		}
		if err == nil {
			visit(m)
		}
		return err
	})
}

// noParent is the key of the attachments that belong to nothing. No identifier holds a NUL.
const noParent = "\x00"

func parentKey(m *attachment.Manifest) string { return keyOfParent(m.Parent.LocalID.Exact()) }

func keyOfParent(localID string) string {
	if localID == "" {
		return noParent
	}
	return localID
}
