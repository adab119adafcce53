package queue

import (
	"context"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

// busy is a queue with attachments in every state that evidence can be in.
func busy(t *testing.T) (f *fixture, byState map[attachment.State]attachment.ID) {
	f = open(t, t.TempDir()+"/queue.db")
	ctx := context.Background()
	byState = map[attachment.State]attachment.ID{}
	next := func() *Claim {
		id := f.adopt("insp-7", "content")
		c := f.claim()
		if c.Manifest.ID != id {
			t.Fatal("claimed another")
		}
		return c
	}
	delivered := next()
	f.deliver(delivered)
	byState[attachment.Reconciled] = delivered.Manifest.ID
	uploaded := next().Manifest.ID
	f.do("verify", f.Verified(ctx, uploaded, "m"))
	f.do("fail", f.Failed(ctx, uploaded, Failure{Code: attachment.HoldServerError}, func(int) time.Duration { return time.Hour }))
	byState[attachment.Uploaded] = uploaded
	attention := next().Manifest.ID
	f.do("attention", f.RaiseAttention(ctx, attention, Failure{Code: attachment.NeedsSizeLimit, Message: "too large"}))
	byState[attachment.Attention] = attention
	uploading := next().Manifest.ID
	f.do("session", f.SessionOpened(ctx, uploading, session, "fieldgw", "m", 2))
	byState[attachment.Uploading] = uploading
	byState[attachment.Captured] = f.adopt("", "unbound", func(m *attachment.Manifest) {
		m.Source.Watch, m.Source.RelPath = "card", attachment.NameOf("a.jpg")
		m.Binding = attachment.Binding{Rule: attachment.BindSidecar, Wait: time.Hour, Until: time.Now().Add(time.Hour)}
	})
	byState[attachment.Ready] = f.adopt("", "alone", func(m *attachment.Manifest) { m.Source.Watch = "card" })
	return f, byState
}

// corrupt changes the file below the store, and opens it again as a restart would.
func corrupt(t *testing.T, f *fixture, change func(tx *bolt.Tx) error) *fixture {
	t.Helper()
	f.do("close", f.st.Close())
	db, err := bolt.Open(f.path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	f.do("change", db.Update(change))
	f.do("close", db.Close())
	g := open(t, f.path)
	t.Cleanup(func() { g.do("close", g.st.Close()) })
	g.do("recover", g.Recover(context.Background()))
	return g
}

func flip(tx *bolt.Tx, bucket string, key []byte) error {
	b := tx.Bucket([]byte(bucket))
	spoiled := append([]byte(nil), b.Get(key)...)
	spoiled[len(spoiled)-1] ^= 0x04
	return b.Put(key, spoiled)
}

// A damaged index or counter is made again from the manifests: afterwards the full check finds nothing.
func TestReindex(t *testing.T) {
	for _, bucket := range []string{bOrder, bTails, bConditions, bChildren, bDue, bParents, bCounters, bUnbound, bContents} {
		t.Run(bucket, func(t *testing.T) {
			f, _ := busy(t)
			f = corrupt(t, f, func(tx *bolt.Tx) error {
				key, _ := tx.Bucket([]byte(bucket)).Cursor().First()
				return flip(tx, bucket, append([]byte(nil), key...))
			})
			if findings, err := f.Check(context.Background()); err != nil || len(findings) == 0 {
				t.Fatalf("the check finds nothing: %v", err)
			}
			f.do("reindex", f.Reindex(context.Background()))
			f.mustCheck()
		})
	}
}

// A damaged record is restored from the manifest that travels with the payload, in the state that the journal proves, and
// the attachment goes on from there.
func TestRestore(t *testing.T) {
	for _, state := range []attachment.State{
		attachment.Ready, attachment.Uploading, attachment.Uploaded, attachment.Attention, attachment.Reconciled,
	} {
		t.Run(string(state), func(t *testing.T) {
			f, byState := busy(t)
			id := byState[state]
			e, err := f.Get(id)
			f.do("get", err)
			segments, err := f.Segments(id)
			f.do("segments", err)
			// What travels is the manifest as it was adopted.
			tr := &attachment.Travelling{Manifest: *e.Manifest.Clone(), Segments: segments}
			tr.Manifest.State, tr.Manifest.Delivery, tr.Manifest.Problem, tr.Manifest.Seq = attachment.Captured, attachment.Delivery{}, nil, 0
			f = corrupt(t, f, func(tx *bolt.Tx) error { return flip(tx, bManifests, []byte(id)) })
			ctx := context.Background()
			damaged, err := f.Damaged("", 10)
			if err != nil || len(damaged) != 1 || damaged[0] != id || !f.Suspect() {
				t.Fatalf("damaged: %v, %v", damaged, err)
			}
			f.do("restore", f.Restore(ctx, tr, nil))
			f.mustCheck()
			if damaged, err := f.Damaged("", 10); err != nil || len(damaged) != 0 {
				t.Errorf("still damaged: %v, %v", damaged, err)
			}
			got, err := f.Get(id)
			f.do("get", err)
			want := state
			if state == attachment.Uploading {
				want = attachment.Ready
			}
			if got.Manifest.State != want || got.Seq != e.Seq {
				t.Errorf("restored as %s, number %d; was %s, %d", got.Manifest.State, got.Seq, want, e.Seq)
			}
			switch state {
			case attachment.Reconciled:
				if got.Manifest.Condition() != attachment.ShownDelivered || got.Manifest.Delivery.MediaID != "m1" {
					t.Errorf("%+v", got.Manifest.Delivery)
				}
			case attachment.Attention:
				if got.Manifest.Problem.Code != attachment.NeedsSizeLimit {
					t.Errorf("%+v", got.Manifest.Problem)
				}
				f.do("retry", f.Retry(ctx, id, "", ""))
				fallthrough
			default:
				for c := f.claim(); c != nil; c = f.claim() {
					if c.Manifest.ID == id {
						f.do("verify", f.Verified(ctx, id, "m"))
						f.do("register", f.Registered(ctx, f.receiptOf(id)))
					}
				}
				if f.state(id) != attachment.Reconciled {
					t.Errorf("does not go on: %s", f.state(id))
				}
			}
			f.mustCheck()
		})
	}
}

// A damaged record of what was sent is restored as sent, by its receipt, and never as delivered.
func TestRestoreOfSent(t *testing.T) {
	f := open(t, t.TempDir()+"/queue.db")
	ctx := context.Background()
	id := f.adopt("insp-7", "content")
	f.claim()
	f.do("verified", f.Verified(ctx, id, "m"))
	r := f.receiptOf(id)
	r.Grade = receipt.VerifiedDigest
	f.do("sent", f.Sent(ctx, r))
	e, err := f.Get(id)
	f.do("get", err)
	segments, err := f.Segments(id)
	f.do("segments", err)
	tr := &attachment.Travelling{Manifest: *e.Manifest.Clone(), Segments: segments}
	for _, kept := range []*receipt.Receipt{nil, &r} {
		f = corrupt(t, f, func(tx *bolt.Tx) error {
			if kept != nil {
				if err := flip(tx, bReceipts, []byte(id)); err != nil {
					return err
				}
			}
			return flip(tx, bManifests, []byte(id))
		})
		f.do("restore", f.Restore(ctx, tr, kept))
		f.mustCheck()
		if e, err := f.Get(id); err != nil || e.Manifest.Condition() != attachment.ShownSent || e.Manifest.Due() {
			t.Errorf("restored as %+v, %v", e.Manifest, err)
		}
	}
}
