package intake

import (
	"context"
	"errors"
	"log/slog"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// settleFound deals with one thing that the scan of the spool found. Adoptions that are still under way are left alone.
func (in *Intake) settleFound(ctx context.Context, f spool.Found, underWay map[attachment.ID]bool, report Report) error {
	if f.Stray != "" {
		report[Stray]++
		in.Logger.Warn("a file in the spool is none of ours; it is left alone", slog.String(logging.KeyPath, f.Stray))
		return nil
	}
	if underWay[f.ID] {
		return nil
	}
	if f.Area == spool.Staging {
		if in.Queue.Suspect() { // its intake may be what was damaged
			return in.resumeUnknown(ctx, f.ID, report)
		}
		report[AbandonedStaging]++
		return nil
	}
	e, err := in.Queue.Get(f.ID)
	if errors.Is(err, queue.ErrNotFound) {
		in.Logger.Error("a payload had no record; it is recorded again", slog.String(logging.KeyAttachment, string(f.ID)))
		return in.record(ctx, f, report)
	}
	if err != nil {
		return err
	}
	if e.Manifest == nil {
		return nil // a damaged record
	}
	delivered := e.Manifest.State == attachment.Reconciled
	if f.Sidecar && e.Manifest.Binding.Sidecar == nil {
		report[BindingUnfinished]++
		if err := in.finishBinding(ctx, e.Manifest); err != nil {
			return err
		}
	}
	switch {
	case f.Area == spool.Payloads && !f.Payload && !delivered:
		return nil // a payload that lies elsewhere: findMissing looks
	case f.Area == spool.Payloads && delivered:
		report[DeliveryUnfinished]++
		return in.Spool.Deliver(f.ID)
	case f.Area == spool.Delivered && !delivered && e.Manifest.State.Undelivered():
		report[DeliveredTooEarly]++
		return in.Spool.Undeliver(f.ID)
	}
	report[InPlace]++
	return nil
}

// record commits a payload that has no record, from its travelling manifest. The attachment ID stays the same, so a
// server that knows it already recognizes it.
func (in *Intake) record(ctx context.Context, f spool.Found, report Report) error {
	if f.Area == spool.Delivered || !f.Payload {
		report[Stray]++
		in.Logger.Warn("a delivered copy or a manifest has no record; it is left alone", slog.String(logging.KeyAttachment, string(f.ID)))
		return nil
	}
	ev, err := in.look(ctx, f.ID)
	if err != nil {
		return err
	}
	a := in.fromTravelling(f.ID, ev)
	if f.Sidecar && a.Manifest.Binding.Sidecar == nil {
		// Nothing says that it was used, so it still lies where it came from.
		if err := in.Spool.DropSidecar(f.ID); err != nil {
			return err
		}
	}
	if ev.travelling == nil {
		report[Unnamed]++
		if err := in.Spool.WriteManifest(travelling(a)); err != nil {
			return err
		}
	} else {
		report[Unrecorded]++
	}
	r, err := in.sentReceipt(a)
	if err != nil {
		return err
	}
	if r != nil {
		a.Manifest.Binding.Wait = 0 // it was sent, so it waits for nothing
	}
	if err := in.Spool.Settle(f.ID); err != nil {
		return err
	}
	if err := in.Queue.Adopt(ctx, a); err != nil || r == nil {
		return err
	}
	if err := in.Queue.Verified(ctx, f.ID, r.MediaID); err != nil {
		return err
	}
	return in.Queue.Sent(ctx, *r)
}

// sentReceipt returns the receipt of a payload that was sent without being delivered; nil without one, or where a person must
// look at it first.
func (in *Intake) sentReceipt(a queue.Adoption) (*receipt.Receipt, error) {
	if a.Problem != nil {
		return nil, nil
	}
	r, err := in.readReceipt(&a.Manifest)
	if err != nil || r == nil || r.Grade.Delivered() {
		return nil, err
	}
	return r, nil
}

// fromTravelling makes the adoption record of a payload found without one.
func (in *Intake) fromTravelling(id attachment.ID, ev evidence) queue.Adoption {
	if ev.travelling == nil {
		it := queue.Intake{ID: id, Way: attachment.CustodyMove, Filename: attachment.NameOf("unnamed-" + string(id))}
		it.Source.Evidence = attachment.EvidenceSettled
		a := in.build(it, ev.sum, ev.head, in.Now())
		a.Problem = &attachment.Problem{Code: attachment.NeedsManifestDamaged, Detail: "found without a record and without a readable manifest"}
		return a
	}
	m := ev.travelling.Manifest
	problem := m.Problem
	m.Delivery, m.Problem, m.Prepared, m.Seq = attachment.Delivery{ProposedMediaID: string(id)}, nil, false, 0
	m.State = attachment.Captured
	a := queue.Adoption{Manifest: m, Segments: ev.travelling.Segments, Problem: problem}
	if !ev.sum.Equal(attachment.Fingerprint{Length: m.Length, SHA256: m.SHA256}) {
		a.Problem = &attachment.Problem{Code: attachment.NeedsPayloadChanged, Detail: "found without a record, and changed"}
	}
	return a
}

// missingPage is the page size of findMissing.
const missingPage = 500

// findMissing looks for records whose payload is nowhere. An item in attention is there already and stays; one that is
// to be registered needs no payload any more.
func (in *Intake) findMissing(ctx context.Context, report Report) error {
	for _, c := range []attachment.Condition{
		attachment.ShownCaptured, attachment.ShownWaiting, attachment.ShownUploading, attachment.ShownPaused,
		attachment.ShownSent,
	} {
		for cursor := ""; ; {
			page, next, err := in.Queue.IDs(c, cursor, missingPage)
			if err != nil {
				return err
			}
			for _, id := range page {
				if err := in.checkThere(ctx, id, report); err != nil {
					return err
				}
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return nil
}

func (in *Intake) checkThere(ctx context.Context, id attachment.ID, report Report) error {
	_, found, err := in.Spool.Locate(id)
	if err != nil || found {
		return err
	}
	report[PayloadMissing]++
	return in.Queue.RaiseAttention(ctx, id, queue.Failure{
		Code: attachment.NeedsPayloadMissing, Message: "the payload was not there at start",
	})
}

// SweepStaging removes staging files that no intake names, once they have been seen so for the grace period. seen keeps
// when each was first seen, in running time, between calls; it belongs to the caller and is bounded by what is in
// staging.
func (in *Intake) SweepStaging(seen map[attachment.ID]int64, now, grace int64) error {
	present := map[attachment.ID]bool{}
	err := in.Spool.ScanStaging(func(f spool.Found) error {
		if f.ID == "" {
			return nil
		}
		_, named, err := in.Queue.Intake(f.ID)
		if err != nil || named {
			return err
		}
		present[f.ID] = true
		first, known := seen[f.ID]
		if !known {
			seen[f.ID] = now
			return nil
		}
		if now-first < grace || !in.hold(string(f.ID)) {
			return nil
		}
		defer in.letGo(string(f.ID))
		in.Logger.Info("abandoned staging file removed", slog.String(logging.KeyAttachment, string(f.ID)))
		return in.Spool.DropStaged(f.ID)
	})
	for id := range seen {
		if !present[id] {
			delete(seen, id)
		}
	}
	if durable.IsNotExist(err) {
		return nil // another goroutine cleared it first
	}
	return err
}
