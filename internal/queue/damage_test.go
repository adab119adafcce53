package queue

import (
	"context"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// damage flips one bit in the first stored value of a bucket, below the store, as a bad sector would.
func damage(t *testing.T, path, bucket string) (key []byte) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		k, v := b.Cursor().First()
		if k == nil {
			t.Fatalf("bucket %s is empty", bucket)
		}
		key = append([]byte(nil), k...)
		spoiled := append([]byte(nil), v...)
		spoiled[len(spoiled)-1] ^= 0x04
		return b.Put(key, spoiled)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return key
}

// One damaged value, in whichever bucket, is that item's damage at most: the queue opens, lists, counts, and delivers
// everything else; nothing is forgotten.
func TestOneDamagedValueIsThatItemsDamage(t *testing.T) {
	for _, bucket := range []string{
		bManifests, bOrder, bOffsets, bSegments, bErrors, bJournal, bDue, bConditions, bChildren, bParents, bCounters, bLedger,
		bIntakes, bChannel, bDecisions,
	} {
		t.Run(bucket, func(t *testing.T) {
			f := open(t, t.TempDir()+"/queue.db")
			ctx := context.Background()
			var ids []attachment.ID
			for _, name := range []string{"one", "two", "three"} {
				ids = append(ids, f.adopt("insp-7", name, func(m *attachment.Manifest) {
					m.Custody = attachment.CustodyCopy
					m.Source = attachment.Source{Watch: "cam", RelPath: attachment.NameOf(name)}
					m.Source.Identity.Size = m.Length
				}))
			}
			f.claim()
			f.do("session", f.SessionOpened(ctx, ids[0], session, "fieldgw", "m", 1))
			f.do("fail", f.Failed(ctx, ids[0], Failure{Code: attachment.HoldServerError}, func(int) time.Duration { return time.Nanosecond }))
			f.do("channel", f.PutChannel(ctx, "uplink", 1))
			f.do("decision", f.PutDecision(ctx, Decision{Name: DecisionPauseChannel}))
			id, err := attachment.NewID()
			f.do("id", err)
			f.do("intake", f.PutIntakes(ctx, Intake{ID: id, Way: attachment.CustodyCopy, Filename: attachment.NameOf("x")}))
			f.do("close", f.st.Close())
			damage(t, f.path, bucket)

			f = open(t, f.path)
			t.Cleanup(func() { f.do("close", f.st.Close()) })
			f.do("recover", f.Recover(ctx))
			if findings, err := f.Check(ctx); err != nil || len(findings) == 0 {
				t.Errorf("the check finds nothing: %v", err)
			}
			page, _, err := f.List(Query{Limit: 10})
			if err != nil || len(page) != 3 {
				t.Fatalf("%d attachments listed, %v", len(page), err)
			}
			if _, err := f.Counts(); err != nil {
				t.Errorf("counts: %v", err)
			}
			if _, _, err := f.Parents("", 10); err != nil {
				t.Errorf("parents: %v", err)
			}
			if _, found, err := f.StandingDecision(DecisionPauseChannel); err != nil || !found {
				t.Errorf("the decision is forgotten: %v", err)
			}
			delivered := 0
			for range 3 {
				c := f.claim()
				if c == nil {
					break
				}
				f.deliver(c)
				delivered++
			}
			if want := map[bool]int{true: 2, false: 3}[bucket == bManifests]; delivered != want {
				t.Errorf("%d delivered, want %d", delivered, want)
			}
		})
	}
}
