package queue

import (
	"context"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Adoption is a secured payload about to be committed.
type Adoption struct {
	Manifest attachment.Manifest
	Segments []attachment.Digest
	// Problem, when set, sends the attachment to attention at once: it is evidence, and a person must look at it.
	Problem *attachment.Problem
	// By names the person or program that handed the file over; empty for the daemon's own watch.
	By string
}

// Adopt commits secured payloads: manifest, journal, ledger, and the end of their intakes, all in one transaction. It is
// the commit point of custody. Adopting an ID that is committed already is fine and changes nothing, so that a caller who
// does not know the outcome can repeat it.
func (q *Queue) Adopt(ctx context.Context, adoptions ...Adoption) error {
	return q.store.Update(ctx, func(tx *store.Tx) error { return q.adoptAll(tx, adoptions) })
}

// Submit is Adopt for the files of one submission: the same transaction remembers which attachments it became.
func (q *Queue) Submit(ctx context.Context, submission string, adoptions []Adoption) error {
	ids := make([]attachment.ID, len(adoptions))
	for i, a := range adoptions {
		ids[i] = a.Manifest.ID
	}
	return q.store.Update(ctx, func(tx *store.Tx) error {
		if err := q.adoptAll(tx, adoptions); err != nil {
			return err
		}
		return store.PutJSON(tx.Bucket(bSubmissions), []byte(submission), ids)
	})
}

// Submission returns the attachments that a submission became; found is false when it was never committed.
func (q *Queue) Submission(submission string) (ids []attachment.ID, found bool, err error) {
	err = q.store.View(func(tx *store.Tx) (err error) {
		ids, found, err = store.GetJSON[[]attachment.ID](tx.Bucket(bSubmissions), []byte(submission))
		return err
	})
	return ids, found, err
}

func (q *Queue) adoptAll(tx *store.Tx, adoptions []Adoption) error {
	for i := range adoptions {
		if err := q.adopt(tx, &adoptions[i]); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) adopt(tx *store.Tx, a *Adoption) error {
	id := a.Manifest.ID
	if err := tx.Bucket(bIntakes).Delete(idKey(id)); err != nil {
		return err
	}
	if tx.Bucket(bManifests).Has(idKey(id)) {
		return nil
	}
	if err := putSegments(tx, id, a.Segments); err != nil {
		return err
	}
	// A sidecar may still bind it: EndWaits or Bind prepares it.
	waits := a.Manifest.Binding.Wait > 0 && a.Manifest.Binding.Rule == attachment.BindSidecar && a.Manifest.Binding.Sidecar == nil
	fresh := a.Manifest
	var err error
	if fresh.Repeats, err = firstAlike(tx, &fresh); err != nil {
		return err
	}
	m, err := q.create(tx, &fresh, Change{Event: attachment.EventAdopted, Detail: string(a.Manifest.Custody), By: a.By})
	if err != nil {
		return err
	}
	// What is not the whole source must not keep the whole source from being taken.
	if m.Length == m.Source.Identity.Size {
		if err := putLedger(tx, m); err != nil {
			return err
		}
	}
	// A queue made anew knows which sidecars lie where they bound something. One that is to leave is dealt with by its release.
	if b := m.Binding.Sidecar; b != nil && !b.ReleasePending {
		if err := putSidecar(tx, m); err != nil {
			return err
		}
	}
	if a.Problem != nil {
		_, err := q.apply(tx, id, Change{
			Event: attachment.EventAttention, Reason: a.Problem.Code, Detail: a.Problem.Detail,
			Edit: func(m *attachment.Manifest) { m.Prepared = !waits },
		})
		return err
	}
	if waits {
		return nil
	}
	_, err = q.apply(tx, id, Change{
		Event: attachment.EventPrepared, Edit: func(m *attachment.Manifest) { m.Prepared = true },
	})
	return err
}

// Unreleased returns the attachments whose source is still to be removed, at most limit of them, starting after an ID.
func (q *Queue) Unreleased(after attachment.ID, limit int) (pending []*attachment.Manifest, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		pending = nil
		return tx.Bucket(bReleases).Scan(nil, idKey(after), func(key, _ []byte, _ error) error {
			if attachment.ID(key) == after {
				return nil
			}
			m, err := load(tx, attachment.ID(key))
			if isBadValue(err) {
				return nil
			}
			if err != nil {
				return err
			}
			if pending = append(pending, m); len(pending) == limit {
				return store.ErrStop
			}
			return nil
		})
	})
	return pending, err
}
