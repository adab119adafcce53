package queue

import (
	"context"
	"encoding/json"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// mend deals with damaged values that no index holds: what follows from the manifests or the journal is made anew, and what
// only spares a little work, such as an offset that the server knows too, is dropped.
func (q *Queue) mend(ctx context.Context) error {
	for bucket, fix := range map[string]func(tx *store.Tx, key []byte) error{
		bHistory: func(tx *store.Tx, key []byte) error { return tx.Bucket(bHistory).Put(key, nil) },
		bJournal: mendRow,
		// It was made, and stands until somebody lifts it.
		bDecisions: func(tx *store.Tx, key []byte) error {
			return store.PutJSON(tx.Bucket(bDecisions), key, Decision{Name: string(key)})
		},
		bSubmissions: dropFrom(bSubmissions),
		bOffsets:     dropFrom(bOffsets),
		bErrors:      dropFrom(bErrors),
		bChannel:     dropFrom(bChannel),
		bClaims:      dropFrom(bClaims),
	} {
		err := q.pages(ctx, bucket, func(tx *store.Tx, key, _ []byte, bad error) error {
			if bad == nil {
				return nil
			}
			return fix(tx, key)
		})
		if err != nil {
			return err
		}
	}
	return q.RestoreSubmissions(ctx)
}

func dropFrom(bucket string) func(*store.Tx, []byte) error {
	return func(tx *store.Tx, key []byte) error { return tx.Bucket(bucket).Delete(key) }
}

// mendRow puts a row in the place of a damaged one that says so, and what its neighbours prove: where the attachment came
// from and went to.
func mendRow(tx *store.Tx, key []byte) error {
	row := Row{Seq: seqOf(key), Event: attachment.EventRestored, Detail: lostRow}
	err := tx.Bucket(bHistory).Scan(nil, nil, func(key, _ []byte, _ error) error {
		if seqOf(key) != row.Seq {
			return nil
		}
		row.ID = attachment.ID(key[:len(key)-len(seqKey(0))])
		return store.ErrStop
	})
	if err != nil {
		return err
	}
	if row.ID == "" {
		return store.PutJSON(tx.Bucket(bJournal), key, row)
	}
	after := false
	err = tx.Bucket(bHistory).Scan(idKey(row.ID), nil, func(key, _ []byte, _ error) error {
		other, found, err := store.GetJSON[Row](tx.Bucket(bJournal), seqKey(seqOf(key)))
		if isBadValue(err) || err == nil && !found {
			return nil
		}
		if err == nil && other.Seq > row.Seq {
			row.To, after = other.From, true
			return store.ErrStop
		}
		row.From, row.At = other.To, other.At
		return err
	})
	if err != nil {
		return err
	}
	if !after {
		row.To = row.From
		if m, err := load(tx, row.ID); err == nil {
			row.To = m.State
		}
	}
	return store.PutJSON(tx.Bucket(bJournal), key, row)
}

// RestoreSubmissions makes the memory of submissions anew where it is missing, from the manifests: a program that repeats one
// because it got no answer must be told what became of it. Call it after a rebuild.
func (q *Queue) RestoreSubmissions(ctx context.Context) error {
	found := map[string][]attachment.ID{}
	err := q.pages(ctx, bOrder, func(tx *store.Tx, _, id []byte, bad error) error {
		value, err := tx.Bucket(bManifests).Get(id)
		var m attachment.Manifest
		if bad != nil || err != nil || json.Unmarshal(value, &m) != nil || m.Submission == "" {
			return nil
		}
		if !tx.Bucket(bSubmissions).Has([]byte(m.Submission)) {
			found[m.Submission] = append(found[m.Submission], m.ID)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return err
	}
	return q.store.Update(ctx, func(tx *store.Tx) error {
		for submission, ids := range found {
			if err := store.PutJSON(tx.Bucket(bSubmissions), []byte(submission), ids); err != nil {
				return err
			}
		}
		return nil
	})
}
