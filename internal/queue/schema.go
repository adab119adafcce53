package queue

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// The buckets; doc.go says what is in them.
const (
	bManifests   = "manifests"
	bOrder       = "order"
	bTails       = "tails"
	bOffsets     = "offsets"
	bSegments    = "segments"
	bReceipts    = "receipts"
	bErrors      = "errors"
	bJournal     = "journal"
	bHistory     = "history"
	bDue         = "due"
	bConditions  = "conditions"
	bChildren    = "children"
	bParents     = "parents"
	bCounters    = "counters"
	bClaims      = "claims"
	bLedger      = "ledger"
	bContents    = "contents"
	bReleases    = "releases"
	bIntakes     = "intakes"
	bSubmissions = "submissions"
	bChannel     = "channel"
	bDecisions   = "decisions"
	bUnsynced    = "unsynced"
	bUnbound     = "unbound"
	bSidecars    = "sidecars"
)

// Schema describes the queue's file. A change of layout raises Version and adds a migration from the version before.
func Schema() store.Schema {
	return store.Schema{
		Name:    "device-queue",
		Version: 2,
		Buckets: []string{
			bManifests, bOrder, bTails, bOffsets, bSegments, bReceipts, bErrors, bJournal, bHistory, bDue, bConditions,
			bChildren, bParents, bCounters, bClaims, bLedger, bContents, bReleases, bIntakes, bSubmissions, bChannel, bDecisions, bUnsynced,
			bUnbound, bSidecars,
		},
		Migrations: map[int]func(*store.Tx) error{1: laneDue},
	}
}

// laneDue brings the keys of bDue, which knew no size class and no priority above a sidecar's, to what dueKey makes of
// them. Entries of manifests that cannot be read come last; a repair finds them.
func laneDue(tx *store.Tx) error {
	due := tx.Bucket(bDue)
	var old [][]byte
	err := due.Scan(nil, nil, func(key, _ []byte, _ error) error {
		old = append(old, slices.Clone(key))
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range old {
		if err := due.Delete(key); err != nil {
			return err
		}
		id, err := idAt(tx, seqOf(key))
		if err != nil {
			continue
		}
		m, err := load(tx, id)
		switch {
		case err == nil && m.Due():
			err = due.Put(dueKey(m), idKey(id))
		case isBadValue(err):
			err = due.Put(slices.Concat([]byte{maxLevel, maxClass}, key[1:]), idKey(id))
		}
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

func idKey(id attachment.ID) []byte { return []byte(id) }

func tailKey(id attachment.ID) []byte {
	key := []byte(id)
	slices.Reverse(key)
	return key
}

func idOfTail(key []byte) attachment.ID {
	id := slices.Clone(key)
	slices.Reverse(id)
	return attachment.ID(id)
}

func historyKey(id attachment.ID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(id), seq)
}

// groupKey is a text, a NUL and a sequence number: the texts hold no NUL.
func groupKey(group string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(groupPrefix(group), seq)
}

func groupPrefix(group string) []byte { return append([]byte(group), 0) }

// sourceGroup names a path of a watch; neither holds a NUL.
func sourceGroup(watch, relPath string) string { return watch + "\x00" + relPath }

// unboundKey groups the attachments that came from one path.
func unboundKey(m *attachment.Manifest) []byte {
	return groupKey(sourceGroup(m.Source.Watch, m.Source.RelPath.Exact()), m.Seq)
}

// The first two bytes of a key of bDue, its lane: how far the priority is below the front, and the size class. maxClass is
// more than any size's.
const (
	maxLevel = attachment.PriorityFront
	maxClass = 0xFF
	laneSize = 2
)

// sizeClass is the power of two that a length does not exceed, so that "at most 2^n bytes" is a range of keys.
func sizeClass(length int64) byte {
	if length <= 1 {
		return 0
	}
	return byte(bits.Len64(uint64(length - 1)))
}

// dueKey sorts by priority first, then by size class, and within those by the time from which the item may be tried, then
// by capture order. Readers merge the size classes.
func dueKey(m *attachment.Manifest) []byte {
	key := []byte{byte(maxLevel - m.Priority), sizeClass(m.Length)}
	key = binary.BigEndian.AppendUint64(key, unixMilli(m.Delivery.NotBefore))
	return binary.BigEndian.AppendUint64(key, m.Seq)
}

// unixMilli maps the zero time, and any time before 1970, to 0: at once.
func unixMilli(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(0, t.UnixMilli()))
}
