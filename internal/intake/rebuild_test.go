package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/test/damage"
)

// A queue that is made anew knows what a program submitted, so that a repetition is not taken twice, and what a person must
// look at, so that it is not sent.
func TestRebuildKeepsSubmissionsAndAttention(t *testing.T) {
	s := newSite(t)
	ctx := context.Background()
	p := s.restart()
	sub, next := submission("one", "two", "")
	ids, err := p.Submit(ctx, sub, next)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.stop()
		if err := os.Remove(filepath.Join(s.dir, "queue.db")); err != nil {
			t.Fatal(err)
		}
		p = s.start(durable.OS())
		if report, err := p.Rebuild(ctx); err != nil || report[Unrecorded] != 3 {
			t.Fatalf("rebuild: %v, %v", report, err)
		}
		again, err := p.Submit(ctx, sub, nil)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(ids) {
			t.Errorf("repeated: %v, %v; taken as %v", again, err, ids)
		}
		for i, want := range []attachment.Condition{attachment.ShownWaiting, attachment.ShownWaiting, attachment.ShownAttention} {
			e, err := p.Queue.Get(ids[i])
			if err != nil || e.Manifest.Condition() != want {
				t.Errorf("file %d: %+v, %v", i, e.Manifest, err)
			}
		}
	}
	p.stop()
}

// A source that stays in its place is not taken twice because the memory of it was damaged.
func TestDamagedLedgerIsRestored(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "one")
	p := s.restart()
	first, err := p.Adopt(context.Background(), s.request(path, false))
	if err != nil {
		t.Fatal(err)
	}
	p.stop()
	file := filepath.Join(s.dir, "queue.db")
	damage.Spoil(t, file, "ledger", damage.Keys(t, file, "ledger")[0])
	p = s.restart()
	defer p.stop()
	again, err := p.Adopt(context.Background(), s.request(path, false))
	if err != nil || again.ID != first.ID {
		t.Errorf("taken again: %+v after %+v, %v", again, first, err)
	}
	if page, _, err := p.Queue.List(queue.Query{Limit: 10}); err != nil || len(page) != 1 {
		t.Errorf("%d attachments, %v", len(page), err)
	}
}

// A receipt of a lower grade delivers nothing when a queue is made anew: its file is what was sent, in the spool, wherever it
// lay.
func TestRebuildOfSent(t *testing.T) {
	for name, area := range map[string]spool.Area{"in the spool": spool.Payloads, "accepted before": spool.Delivered} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			ctx := context.Background()
			p := s.restart()
			taken, err := p.Adopt(ctx, s.request(s.write("a.jpg", "one"), true))
			if err != nil {
				t.Fatal(err)
			}
			before, err := p.Queue.Get(taken.ID)
			if err != nil {
				t.Fatal(err)
			}
			m := before.Manifest
			data, err := json.Marshal(receipt.Receipt{
				AttachmentID: string(m.ID), MediaID: "media", Parent: receipt.Parent{LocalID: m.Parent.LocalID.Text}, Length: m.Length,
				SHA256: m.SHA256.String(), Grade: receipt.VerifiedDigest, RegisteredAt: time.Unix(1e9, 0),
			})
			if err := errors.Join(err, p.Spool.WriteReceipt(m.ID, data)); err != nil {
				t.Fatal(err)
			}
			if area == spool.Delivered {
				if err := p.Spool.Deliver(m.ID); err != nil {
					t.Fatal(err)
				}
			}
			p.stop()
			if err := os.Remove(filepath.Join(s.dir, "queue.db")); err != nil {
				t.Fatal(err)
			}
			p = s.start(durable.OS())
			defer p.stop()
			if report, err := p.Rebuild(ctx); err != nil || report[Unrecorded] != 1 || report[RebuiltDelivered] != 0 {
				t.Fatalf("rebuild: %v, %v", report, err)
			}
			e, err := p.Queue.Get(m.ID)
			if err != nil || e.Manifest.Condition() != attachment.ShownSent || e.Manifest.Delivery.MediaID != "media" {
				t.Errorf("%+v, %v", e.Manifest, err)
			}
			if at, found, err := p.Spool.Locate(m.ID); err != nil || !found || at != spool.Payloads {
				t.Errorf("lies in %s, %v, %v", at, found, err)
			}
			if found, err := p.Check(ctx, CheckOptions{Deep: true}); err != nil || len(found) > 0 {
				t.Errorf("check: %v, %v", found, err)
			}
		})
	}
}
