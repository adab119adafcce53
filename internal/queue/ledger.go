package queue

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Sighting is a source as a scan sees it. The ledger recognizes it by watch, path, medium, size and modification time.
type Sighting struct {
	Watch, RelPath string
	// Medium names the card or filesystem; empty where that is not known.
	Medium   string
	Identity attachment.SourceIdentity
	// ChangedNS is the change time, 0 where it is not known. It is no part of the key.
	ChangedNS int64
}

// SightingOf is the sighting that a source was taken from.
func SightingOf(s attachment.Source) Sighting {
	return Sighting{Watch: s.Watch, RelPath: s.RelPath.Exact(), Medium: s.Medium, Identity: s.Identity, ChangedNS: s.ChangedNS}
}

// Known is what the ledger says of a sighting.
type Known struct {
	ID attachment.ID
	// Device and Inode were the file's when its bytes were last proven to be this attachment's. They are no part of the
	// key: both may change when a card is mounted again.
	Device, Inode uint64
	// ChangedNS was its change time then, 0 where it is not known. No program can set it, so it tells another content that was
	// given the old one's time.
	ChangedNS int64
}

// ledgerPrefix begins the rows of one path, whatever medium, size and time.
func ledgerPrefix(watch, relPath string) []byte {
	return append(groupPrefix(watch), groupPrefix(relPath)...)
}

func ledgerKey(s Sighting) []byte {
	key := append(ledgerPrefix(s.Watch, s.RelPath), groupPrefix(s.Medium)...)
	key = append(key, seqKey(uint64(s.Identity.Size))...)
	return append(key, seqKey(uint64(s.Identity.MTimeNS))...)
}

func ledgerValue(id attachment.ID, s Sighting) []byte {
	return slices.Concat(idKey(id), seqKey(s.Identity.Device), seqKey(s.Identity.Inode), seqKey(uint64(s.ChangedNS)))
}

func knownOf(value []byte) Known {
	n := min(len(value), attachment.IDLength)
	k := Known{ID: attachment.ID(value[:n])}
	if rest := value[n:]; len(rest) >= 16 {
		k.Device, k.Inode = binary.BigEndian.Uint64(rest), binary.BigEndian.Uint64(rest[8:])
		if len(rest) >= 24 { // older rows have no change time
			k.ChangedNS = int64(binary.BigEndian.Uint64(rest[16:]))
		}
	}
	return k
}

// putLedger remembers a source that stays in place. One that was moved into the spool is gone: a file that appears there
// later is another capture, even of the same size and time.
func putLedger(tx *store.Tx, m *attachment.Manifest) error {
	if m.Source.Watch == "" {
		return nil
	}
	s := SightingOf(m.Source)
	if m.Custody == attachment.CustodyMove {
		return tx.Bucket(bLedger).Delete(ledgerKey(s))
	}
	return tx.Bucket(bLedger).Put(ledgerKey(s), ledgerValue(m.ID, s))
}

// dropLedger forgets every row in which a path became one attachment.
func dropLedger(tx *store.Tx, watch, relPath string, id attachment.ID) error {
	var stale [][]byte
	err := tx.Bucket(bLedger).Scan(ledgerPrefix(watch, relPath), nil, func(key, value []byte, bad error) error {
		if bad != nil || knownOf(value).ID == id {
			stale = append(stale, slices.Clone(key))
		}
		return nil
	})
	for _, key := range stale {
		if err == nil {
			err = tx.Bucket(bLedger).Delete(key)
		}
	}
	return err
}

// Known returns what a source became that was seen before with the same path, medium, size and modification time, so that
// a source that stays in place is not taken twice.
func (q *Queue) Known(s Sighting) (known Known, found bool, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		value, err := tx.Bucket(bLedger).Get(ledgerKey(s))
		if isBadValue(err) {
			return nil // looked up by its bytes, or taken again: twice is better than never
		}
		known, found = knownOf(value), value != nil
		return err
	})
	return known, found, err
}

// Remember records that a sighting's bytes were proven to be an attachment's, in place of what was known of that path and
// attachment before.
func (q *Queue) Remember(ctx context.Context, s Sighting, id attachment.ID) error {
	return q.store.Update(ctx, func(tx *store.Tx) error { return remember(tx, s, id) })
}

func remember(tx *store.Tx, s Sighting, id attachment.ID) error {
	if err := dropLedger(tx, s.Watch, s.RelPath, id); err != nil {
		return err
	}
	return tx.Bucket(bLedger).Put(ledgerKey(s), ledgerValue(id, s))
}

// SeenAgain is Remember for another path than the attachment was taken from, and writes it into the journal. moved is that
// path when the file was renamed: the source is there from then on. Otherwise moved is empty.
func (q *Queue) SeenAgain(ctx context.Context, s Sighting, id attachment.ID, moved, detail string) error {
	return q.update(ctx, id, Change{
		Event: attachment.EventSeenAgain, Detail: detail,
		Edit: func(m *attachment.Manifest) {
			if moved != "" {
				m.Source.Path, m.Source.RelPath = attachment.NameOf(moved), attachment.NameOf(s.RelPath)
				m.Source.Medium, m.Source.Identity, m.Source.ChangedNS = s.Medium, s.Identity, s.ChangedNS
			}
		},
	}, func(tx *store.Tx, _ *attachment.Manifest) error { return remember(tx, s, id) })
}
