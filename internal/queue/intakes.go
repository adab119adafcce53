package queue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Intake is the recorded intent of an adoption under way. It exists from before the first byte is staged until the
// attachment is committed or the adoption is given up.
type Intake struct {
	ID attachment.ID `json:"id"`
	// Way is how the bytes come into the spool.
	Way    attachment.Custody `json:"way"`
	Parent attachment.Parent  `json:"parent,omitzero"`
	// Binding says what names the parent, and how long a sidecar is waited for.
	Binding attachment.Binding `json:"binding,omitzero"`
	// Filename is the name to keep; Source says where the bytes come from.
	Filename attachment.Name   `json:"filename"`
	Source   attachment.Source `json:"source"`
	// Fingerprint is known beforehand for a move: the file is hashed under the lease before it is renamed.
	Fingerprint *attachment.Fingerprint `json:"fingerprint,omitempty"`
	// ReleaseSource: the watch wants the source gone after custody.
	ReleaseSource bool `json:"release_source,omitempty"`
	// Submission and Declared belong to a submission: its ID, and the length that the caller announced.
	Submission string    `json:"submission,omitempty"`
	Declared   int64     `json:"declared,omitempty"`
	At         time.Time `json:"at"`
}

// PutIntakes makes the intent of adoptions durable, all in one transaction.
func (q *Queue) PutIntakes(ctx context.Context, intakes ...Intake) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		for _, in := range intakes {
			if in.At.IsZero() {
				in.At = q.clock()
			}
			if err := store.PutJSON(tx.Bucket(bIntakes), idKey(in.ID), in); err != nil {
				return err
			}
		}
		return nil
	})
}

// DropIntakes forgets adoptions that were given up. The caller has cleared staging.
func (q *Queue) DropIntakes(ctx context.Context, ids ...attachment.ID) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		for _, id := range ids {
			if err := tx.Bucket(bIntakes).Delete(idKey(id)); err != nil {
				return err
			}
		}
		return nil
	})
}

// maxIntakes bounds what Intakes returns: more adoptions than this are never under way at once.
const maxIntakes = 4096

// Intakes returns the adoptions under way. damaged names those whose record cannot be read.
func (q *Queue) Intakes() (intakes []Intake, damaged []attachment.ID, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		intakes, damaged = nil, nil
		return tx.Bucket(bIntakes).Scan(nil, nil, func(key, value []byte, bad error) error {
			var in Intake
			if bad != nil || json.Unmarshal(value, &in) != nil {
				damaged = append(damaged, attachment.ID(key))
				return nil
			}
			intakes = append(intakes, in)
			if len(intakes) == maxIntakes {
				return store.ErrStop
			}
			return nil
		})
	})
	return intakes, damaged, err
}

// Intake returns the adoption under way for one ID; found is false when there is none.
func (q *Queue) Intake(id attachment.ID) (in Intake, found bool, err error) {
	err = q.store.View(func(tx *store.Tx) (err error) {
		in, found, err = store.GetJSON[Intake](tx.Bucket(bIntakes), idKey(id))
		return err
	})
	return in, found, err
}
