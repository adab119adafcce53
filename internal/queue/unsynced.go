package queue

import (
	"context"
	"encoding/binary"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// PutUnsynced records that a source failed to sync. The kernel tells of that once and takes its pages for written from
// then on, so what can be read of the file may be nowhere on the medium, until a boot reads it from there again. boot
// names the boot, empty when it is not known: such a record is never forgotten.
func (q *Queue) PutUnsynced(ctx context.Context, file attachment.SourceIdentity, boot string) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		return tx.Bucket(bUnsynced).Put(identityKey(file), []byte(boot))
	})
}

// Unsynced reports whether a source failed to sync. A record that cannot be read counts.
func (q *Queue) Unsynced(file attachment.SourceIdentity) (unsynced bool, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		unsynced = tx.Bucket(bUnsynced).Has(identityKey(file))
		return nil
	})
	return unsynced, err
}

// ForgetUnsynced drops the records of earlier boots.
func (q *Queue) ForgetUnsynced(ctx context.Context, boot string) error {
	if boot == "" {
		return nil
	}
	return q.store.Update(ctx, func(tx *store.Tx) error {
		var old [][]byte
		err := tx.Bucket(bUnsynced).Scan(nil, nil, func(key, value []byte, bad error) error {
			if bad == nil && len(value) > 0 && string(value) != boot {
				old = append(old, append([]byte(nil), key...))
			}
			return nil
		})
		for _, key := range old {
			if err == nil {
				err = tx.Bucket(bUnsynced).Delete(key)
			}
		}
		return err
	})
}

func identityKey(file attachment.SourceIdentity) []byte {
	key := binary.BigEndian.AppendUint64(nil, file.Device)
	key = binary.BigEndian.AppendUint64(key, file.Inode)
	key = binary.BigEndian.AppendUint64(key, uint64(file.Size))
	return binary.BigEndian.AppendUint64(key, uint64(file.MTimeNS))
}
