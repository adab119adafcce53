package queue

import (
	"context"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/test/damage"
)

// One damaged value, in whichever bucket, is that item's damage at most: the queue opens, lists, counts, and delivers
// everything else; nothing is forgotten.
func TestOneDamagedValueIsThatItemsDamage(t *testing.T) {
	for _, bucket := range []string{
		bManifests, bOrder, bOffsets, bSegments, bErrors, bJournal, bHistory, bTails, bDue, bConditions, bChildren, bParents, bCounters, bLedger,
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
			damage.Spoil(t, f.path, bucket, damage.Keys(t, f.path, bucket)[0])

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
			f.do("repair", f.Reindex(ctx))
			// These three are mended from what lies beside the payload.
			elsewhere := bucket == bManifests || bucket == bSegments || bucket == bIntakes
			if findings, err := f.Check(ctx); err != nil || len(findings) != 0 && !elsewhere {
				t.Errorf("after a repair: %+v, %v", findings, err)
			}
			if want := map[bool]int{true: 2, false: 3}[bucket == bManifests]; delivered != want {
				t.Errorf("%d delivered, want %d", delivered, want)
			}
		})
	}
}
