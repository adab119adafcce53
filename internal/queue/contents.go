package queue

import (
	"slices"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// inContents reports whether an attachment can be recognized by its bytes: everything that came from a watch. What a
// program submits, it submits on purpose.
func inContents(m *attachment.Manifest) bool { return m.Source.Watch != "" }

// contentsPrefix begins the rows of one watch and length. The parent is part of the key, so that one form in ten thousand
// inspections is looked up as fast as in one.
func contentsPrefix(watch string, length int64) []byte {
	return append(groupPrefix(watch), seqKey(uint64(length))...)
}

func alikePrefix(watch string, length int64, sum attachment.Digest, parent string) []byte {
	return slices.Concat(contentsPrefix(watch, length), sum[:], groupPrefix(keyOfParent(parent)))
}

func contentsKey(m *attachment.Manifest) []byte {
	return append(alikePrefix(m.Source.Watch, m.Length, m.SHA256, m.Parent.LocalID.Exact()), seqKey(m.Seq)...)
}

func reindexContents(tx *store.Tx, old, m *attachment.Manifest) error {
	contents := tx.Bucket(bContents)
	if old != nil && inContents(old) {
		if inContents(m) && string(contentsKey(old)) == string(contentsKey(m)) {
			return nil
		}
		if err := contents.Delete(contentsKey(old)); err != nil {
			return err
		}
	}
	if !inContents(m) {
		return nil
	}
	return contents.Put(contentsKey(m), idKey(m.ID))
}

// Kept reports whether an attachment stands for its bytes: they are in custody or delivered. A person's decision against
// it, and damage, take that away.
func Kept(m *attachment.Manifest) bool {
	if c := m.Condition(); c == attachment.ShownDiscarded || c == attachment.ShownCancelled {
		return false
	}
	return !Damaged(m)
}

// Damaged reports whether an attachment's bytes are known not to be what was captured.
func Damaged(m *attachment.Manifest) bool {
	if m.Problem == nil {
		return false
	}
	switch m.Problem.Code {
	case attachment.NeedsDamagedEarly, attachment.NeedsPayloadChanged, attachment.NeedsPayloadMissing, attachment.NeedsManifestDamaged:
		return true
	}
	return false
}

// firstAlike returns the first kept attachment of the same watch and parent that was adopted before m with the same bytes.
func firstAlike(tx *store.Tx, m *attachment.Manifest) (first attachment.ID, err error) {
	if !inContents(m) {
		return "", nil
	}
	prefix := alikePrefix(m.Source.Watch, m.Length, m.SHA256, m.Parent.LocalID.Exact())
	looked := 0
	err = alike(tx, prefix, func(other *attachment.Manifest) error {
		switch {
		case other.ID == m.ID, looked == maxAlike, m.Seq != 0 && other.Seq > m.Seq:
			return store.ErrStop
		case Kept(other):
			first = other.ID
			return store.ErrStop
		}
		looked++
		return nil
	})
	return first, err
}

// alike visits the attachments below a prefix in the order of adoption; those whose record is damaged are passed over.
func alike(tx *store.Tx, prefix []byte, visit func(*attachment.Manifest) error) error {
	return tx.Bucket(bContents).Scan(prefix, nil, func(_, value []byte, bad error) error {
		if bad != nil {
			return nil
		}
		m, err := load(tx, attachment.ID(value))
		if isBadValue(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return visit(m)
	})
}

// maxAlike bounds how many attachments with the same bytes are looked at.
const maxAlike = 32

// HasLength reports whether anything of this length came from a watch: only then can a file be a repetition.
func (q *Queue) HasLength(watch string, length int64) (found bool, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		found = false
		return tx.Bucket(bContents).Scan(contentsPrefix(watch, length), nil, func(_, _ []byte, _ error) error {
			found = true
			return store.ErrStop
		})
	})
	return found, err
}

// Alike returns attachments with the given bytes that a sighting may stand for: first those that its path became before,
// then those of the same watch and parent in the order of adoption, at most 32 of each.
func (q *Queue) Alike(s Sighting, parent string, sum attachment.Digest) (samePath, sameParent []*attachment.Manifest, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		samePath, sameParent = nil, nil
		err := tx.Bucket(bLedger).Scan(ledgerPrefix(s.Watch, s.RelPath), nil, func(_, value []byte, bad error) error {
			if bad != nil || len(samePath) == maxAlike {
				return nil
			}
			m, err := load(tx, knownOf(value).ID)
			if err == nil && m.SHA256 == sum && m.Length == s.Identity.Size {
				samePath = append(samePath, m)
			}
			return nil // a row that leads nowhere proves nothing
		})
		if err != nil {
			return err
		}
		return alike(tx, alikePrefix(s.Watch, s.Identity.Size, sum, parent), func(m *attachment.Manifest) error {
			if sameParent = append(sameParent, m); len(sameParent) == maxAlike {
				return store.ErrStop
			}
			return nil
		})
	})
	return samePath, sameParent, err
}
