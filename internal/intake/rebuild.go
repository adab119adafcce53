package intake

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// damagedPage is how many damaged records are looked at before the next page is read.
const damagedPage = 64

// restoreAll mends all damaged values: those of single attachments, and everything that follows from the manifests.
func (in *Intake) restoreAll(ctx context.Context, report Report) error {
	if err := in.restoreDamaged(ctx, report); err != nil {
		return err
	}
	return in.Queue.Reindex(ctx)
}

// restoreDamaged makes records that cannot be read again from the manifests that travel with their payloads.
func (in *Intake) restoreDamaged(ctx context.Context, report Report) error {
	var after attachment.ID
	for {
		page, err := in.Queue.Damaged(after, damagedPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, id := range page {
			after = id
			restored, err := in.restoreOne(ctx, id)
			if err != nil {
				return err
			}
			if !restored {
				report[RecordDamaged]++
				in.Logger.Error("a record is damaged and nothing travels that could restore it", slog.String(logging.KeyAttachment, string(id)))
				if err := in.Queue.Park(ctx, id); err != nil {
					return err
				}
				continue
			}
			report[RecordRestored]++
		}
	}
}

func (in *Intake) restoreOne(ctx context.Context, id attachment.ID) (bool, error) {
	t, err := in.travelling(id)
	if err != nil || t == nil {
		return false, err
	}
	r, err := in.readReceipt(&t.Manifest)
	if err != nil {
		return false, err
	}
	err = in.Queue.Restore(ctx, t, r)
	if errors.Is(err, queue.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// travelling returns the manifest that travels with an attachment; nil when none can be read.
func (in *Intake) travelling(id attachment.ID) (*attachment.Travelling, error) {
	for _, area := range []spool.Area{spool.Payloads, spool.Delivered} {
		t, err := in.Spool.ReadManifest(area, id)
		if durable.IsNotExist(err) || errors.Is(err, attachment.ErrBadManifest) {
			continue
		}
		return t, err
	}
	return nil, nil
}

// readReceipt returns the receipt file of an attachment, of whatever grade, when it really speaks of it; nil when there is none that does. One
// that cannot be read now is an error: it is not absent, and what it proves must not be taken for undelivered.
func (in *Intake) readReceipt(m *attachment.Manifest) (*receipt.Receipt, error) {
	data, err := in.Spool.ReadReceipt(m.ID)
	switch {
	case durable.IsNotExist(err), errors.Is(err, durable.ErrNotRegular), errors.Is(err, durable.ErrTooLarge):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read receipt %s: %w", m.ID, err)
	}
	var r receipt.Receipt
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, nil
	}
	want := receipt.Facts{
		AttachmentID: string(m.ID), Length: m.Length, SHA256: m.SHA256.String(),
		Parent: receipt.Parent{LocalID: m.Parent.LocalID.Text, LocalIDRaw: m.Parent.LocalID.Raw},
	}
	if err := receipt.Check(r, want); err != nil {
		return nil, nil
	}
	return &r, nil
}

// kept is one payload that a rebuild found.
type kept struct {
	spool.Found
	adopted time.Time
}

// Rebuild fills an empty queue from what lies outside of it: payloads with their travelling manifests, delivered copies
// with their receipts, and whatever is in staging. IDs stay the same, so the server recognizes what it has. Nothing is
// deleted. The order of capture is that of the manifests' times, the best that is left.
func (in *Intake) Rebuild(ctx context.Context) (Report, error) {
	report := Report{}
	var found []kept
	err := in.Spool.Scan(func(f spool.Found) error {
		switch {
		case f.Stray != "" || !f.Payload:
			report[Stray]++
		case f.Area == spool.Staging:
			found = append(found, kept{Found: f})
		default:
			at, err := in.adoptedAt(f)
			if err != nil {
				return err
			}
			found = append(found, kept{f, at})
		}
		return ctx.Err()
	})
	if err != nil {
		return report, err
	}
	slices.SortStableFunc(found, func(a, b kept) int {
		return cmp.Or(a.adopted.Compare(b.adopted), cmp.Compare(a.ID, b.ID))
	})
	for _, k := range found {
		if err := ctx.Err(); err != nil {
			return report, err
		}
		if err := in.rebuildOne(ctx, k.Found, report); err != nil {
			return report, err
		}
	}
	return report, in.Queue.RestoreSubmissions(ctx)
}

// adoptedAt is the time in the manifest that travels with a payload; zero without a readable one.
func (in *Intake) adoptedAt(f spool.Found) (time.Time, error) {
	t, err := in.Spool.ReadManifest(f.Area, f.ID)
	switch {
	case err == nil:
		return t.Manifest.AdoptedAt, nil
	case durable.IsNotExist(err), errors.Is(err, attachment.ErrBadManifest):
		return time.Time{}, nil
	}
	return time.Time{}, err
}

func (in *Intake) rebuildOne(ctx context.Context, f spool.Found, report Report) error {
	switch f.Area {
	case spool.Staging:
		// Its intake is lost, and a move may have left the only copy here.
		return in.resumeUnknown(ctx, f.ID, report)
	case spool.Delivered:
		delivered, err := in.rebuildDelivered(ctx, f.ID)
		if err != nil {
			return err
		}
		if delivered {
			report[RebuiltDelivered]++
			return nil
		}
		if err := in.undeliver(f.ID); err != nil {
			return err
		}
		f.Area = spool.Payloads
	}
	return in.record(ctx, f, report)
}

// rebuildDelivered records a delivered copy whose receipt is there, fits, and is delivery. One that a person's setting let count is
// sent until the setting is looked at again.
func (in *Intake) rebuildDelivered(ctx context.Context, id attachment.ID) (bool, error) {
	t, err := in.Spool.ReadManifest(spool.Delivered, id)
	if durable.IsNotExist(err) || errors.Is(err, attachment.ErrBadManifest) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r, err := in.readReceipt(&t.Manifest)
	if err != nil || r == nil || !r.Grade.Delivered() {
		return false, err
	}
	a := in.fromTravelling(id, evidence{
		travelling: t, sum: attachment.Fingerprint{Length: t.Manifest.Length, SHA256: t.Manifest.SHA256},
	})
	a.Manifest.Binding.Wait, a.Problem = 0, nil
	if err := in.Queue.Adopt(ctx, a); err != nil {
		return false, err
	}
	if err := in.Queue.Verified(ctx, id, r.MediaID); err != nil {
		return false, err
	}
	return true, in.Queue.Registered(ctx, *r)
}

// undeliver moves a delivered copy whose delivery cannot be proven back to the spool; one without a manifest gets a new one
// there.
func (in *Intake) undeliver(id attachment.ID) error {
	err := in.Spool.Undeliver(id)
	if errors.Is(err, spool.ErrMissing) {
		return nil // the payload moved, and there was no manifest to move
	}
	return err
}
