package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Recover brings spool and queue into step at start-up: every adoption under way is finished or undone, every payload
// gets a record, every record is held against its payload. It deletes nothing but copies whose source still stands. Call
// it after queue.Recover and before the first adoption.
func (in *Intake) Recover(ctx context.Context) (Report, error) {
	report := Report{}
	if err := in.Queue.ForgetUnsynced(ctx, in.Boot); err != nil {
		return report, err
	}
	if err := in.resume(ctx, report); err != nil {
		return report, err
	}
	if in.Queue.Suspect() {
		if err := in.restoreAll(ctx, report); err != nil {
			return report, err
		}
	}
	intakes, _, err := in.Queue.Intakes()
	if err != nil {
		return report, err
	}
	underWay := make(map[attachment.ID]bool, len(intakes))
	for _, it := range intakes {
		underWay[it.ID] = true
	}
	err = in.Spool.Scan(func(f spool.Found) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return in.itemError(f.ID, in.settleFound(ctx, f, underWay, report), report)
	})
	if err != nil {
		return report, err
	}
	return report, in.findMissing(ctx, report)
}

// Resume finishes or undoes adoptions that nobody works on: those whose files could not be given back or cleared when
// they failed.
func (in *Intake) Resume(ctx context.Context) error { return in.resume(ctx, Report{}) }

func (in *Intake) resume(ctx context.Context, report Report) error {
	intakes, damaged, err := in.Queue.Intakes()
	if err != nil {
		return err
	}
	for _, id := range damaged {
		in.Logger.Error("record of an adoption is damaged", slog.String(logging.KeyAttachment, string(id)))
		err := in.resumeUnknown(ctx, id, report)
		if err := in.itemError(id, err, report); err != nil {
			return err
		}
	}
	for _, it := range intakes {
		if !in.hold(string(it.ID)) {
			continue
		}
		situation, err := in.resumeOne(ctx, it)
		in.letGo(string(it.ID))
		if err != nil {
			if err := in.itemError(it.ID, fmt.Errorf("recover adoption %s (%s): %w", it.ID, situation, err), report); err != nil {
				return err
			}
			continue
		}
		report[situation]++
		if situation == SourceAwaited {
			continue
		}
		in.Logger.Warn("adoption recovered", slog.String(logging.KeyAttachment, string(it.ID)),
			slog.String("situation", string(situation)), slog.String(logging.KeyPath, it.Source.Path.Text))
	}
	return nil
}

// itemError keeps one item's trouble from being everybody's: it is named and left alone. What concerns the queue as a
// whole, or the end of the program, is returned.
func (in *Intake) itemError(id attachment.ID, err error, report Report) error {
	if err == nil || queueError(err) || errors.Is(err, context.Canceled) {
		return err
	}
	report[Unreadable]++
	in.Logger.Error("an item cannot be recovered; it is left alone", slog.String(logging.KeyAttachment, string(id)), slog.Any(logging.KeyErr, err))
	return nil
}

func queueError(err error) bool {
	for _, of := range []error{store.ErrNoSpace, store.ErrUnknownOutcome, store.ErrDamaged, store.ErrClosed, store.ErrAborted} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// resumeUnknown deals with bytes of which nothing is known but the ID: they may be an only copy, so a staged file is
// secured into attention. A secured payload is recorded by the scan, from the manifest that travels with it.
func (in *Intake) resumeUnknown(ctx context.Context, id attachment.ID, report Report) error {
	ev, err := in.look(ctx, id)
	if err != nil {
		return err
	}
	if !ev.found.Payload || ev.found.Area == spool.Payloads {
		return in.Queue.DropIntakes(ctx, id)
	}
	report[DamagedOnlyCopy]++
	it := queue.Intake{ID: id, Way: attachment.CustodyMove, Filename: attachment.NameOf("unnamed-" + string(id))}
	it.Source.Evidence = attachment.EvidenceSettled
	return in.finish(ctx, it, ev, DamagedOnlyCopy)
}

// evidence is what is on the disk of an adoption under way.
type evidence struct {
	found spool.Found
	sum   attachment.Fingerprint
	head  []byte
	// travelling is the manifest beside a secured payload; nil when there is none or it is damaged.
	travelling *attachment.Travelling
}

func (in *Intake) resumeOne(ctx context.Context, it queue.Intake) (Situation, error) {
	_, err := in.Queue.Get(it.ID)
	committed := err == nil
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		return "", err
	}
	ev, err := in.look(ctx, it.ID)
	if err != nil {
		return "", err
	}
	situation := classify(it, committed, ev.found, ev.whole(it), in.sourceStands(it))
	if situation == DamagedOnlyCopy && it.Way == attachment.CustodyCopy && time.Since(in.began) < in.SourcePatience {
		return SourceAwaited, nil
	}
	if twice, err := in.takenSince(ctx, it, ev.sum, committed); err != nil {
		return "", err
	} else if twice {
		situation = CopyRepeatable
	}
	switch situation {
	case StaleIntake:
		return situation, in.Queue.DropIntakes(ctx, it.ID)
	case NothingStaged, CopyRepeatable:
		if situation == NothingStaged && !in.sourceStands(it) {
			in.Logger.Warn("the source of an adoption is gone and nothing was staged", slog.String(logging.KeyPath, it.Source.Path.Text))
		}
		return situation, in.undo(ctx, it.ID)
	}
	return situation, in.finish(ctx, it, ev, situation)
}

// takenSince reports whether the source of an unfinished copy was taken by another adoption meanwhile, with the same bytes:
// committing this one would deliver it twice.
func (in *Intake) takenSince(ctx context.Context, it queue.Intake, sum attachment.Fingerprint, committed bool) (bool, error) {
	if committed || it.Way != attachment.CustodyCopy || it.Source.Watch == "" {
		return false, nil
	}
	heir, err := in.heir(it, sum.SHA256)
	if err != nil || heir == nil || heir.SHA256 != sum.SHA256 {
		return false, err
	}
	if heir.Condition() == attachment.ShownDelivered {
		return true, nil
	}
	theirs, err := in.look(ctx, heir.ID)
	return theirs.found.Area == spool.Payloads && theirs.sum.SHA256 == sum.SHA256, err
}

// heir is the attachment that another adoption made of an intake's source; nil without one. The ledger knows it as long as the
// source stands. One that was removed since is found by the bytes, and is the same source by its path and identity.
func (in *Intake) heir(it queue.Intake, sum attachment.Digest) (*attachment.Manifest, error) {
	s := queue.SightingOf(it.Source)
	row, known, err := in.Queue.Known(s)
	if err != nil {
		return nil, err
	}
	if known && row.ID != it.ID {
		e, err := in.Queue.Get(row.ID)
		if errors.Is(err, queue.ErrNotFound) {
			return nil, nil
		}
		return e.Manifest, err
	}
	_, alike, err := in.Queue.Alike(s, it.Parent.LocalID.Exact(), sum)
	for _, m := range alike {
		if m.ID != it.ID && m.Source.Identity == it.Source.Identity && m.Source.RelPath.Exact() == s.RelPath && queue.Kept(m) {
			return m, err
		}
	}
	return nil, err
}

// look finds the bytes of an adoption and reads them.
func (in *Intake) look(ctx context.Context, id attachment.ID) (ev evidence, err error) {
	ev.found = spool.Found{ID: id, Area: spool.Payloads}
	var f *durable.File
	for _, area := range []spool.Area{spool.Payloads, spool.Staging} {
		f, err = in.FS.OpenRead(in.Spool.Path(area, id))
		if err == nil {
			ev.found.Area, ev.found.Payload = area, true
			break
		}
		if !durable.IsNotExist(err) {
			return ev, err
		}
	}
	if !ev.found.Payload {
		return ev, nil
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var head headWriter
	h := attachment.NewHasher()
	if _, err := spool.CopyHashing(ctx, &head, f, h, nil); err != nil {
		return ev, err
	}
	ev.sum, ev.head = h.Sum(), head.head
	ev.travelling, err = in.Spool.ReadManifest(spool.Payloads, id)
	if durable.IsNotExist(err) || errors.Is(err, attachment.ErrBadManifest) {
		err = nil
	}
	return ev, err
}

// whole reports whether the bytes are exactly those that were to be taken: by the fingerprint of the intake or of the
// travelling manifest, or, for a submission that was staged, by the declared length.
func (ev *evidence) whole(it queue.Intake) bool {
	switch {
	case !ev.found.Payload:
		return false
	case it.Fingerprint != nil:
		return ev.sum.Equal(*it.Fingerprint)
	case ev.travelling != nil && ev.found.Area == spool.Payloads:
		m := ev.travelling.Manifest
		return ev.sum.Equal(attachment.Fingerprint{Length: m.Length, SHA256: m.SHA256})
	}
	return it.Way == attachment.CustodySubmit && ev.sum.Length == it.Declared
}

// undo clears a copy that can be made again, and the intake last.
func (in *Intake) undo(ctx context.Context, id attachment.ID) error {
	if err := in.Spool.DropStaged(id); err != nil {
		return err
	}
	if err := in.Spool.DropUncommitted(id); err != nil {
		return err
	}
	return in.Queue.DropIntakes(ctx, id)
}

// finish secures the only copy and commits it, into attention where a person must look.
func (in *Intake) finish(ctx context.Context, it queue.Intake, ev evidence, situation Situation) error {
	modified := time.Time{}
	if ns := it.Source.Identity.MTimeNS; ns != 0 {
		modified = time.Unix(0, ns)
	}
	a := in.build(it, ev.sum, ev.head, modified)
	switch situation {
	case DamagedOnlyCopy:
		a.Problem = &attachment.Problem{Code: attachment.NeedsDamagedEarly, Detail: "found so after a restart"}
	case Unanswered:
		a.Problem = &attachment.Problem{Code: attachment.NeedsNoAnswer}
	}
	if ev.found.Area == spool.Staging {
		if err := in.syncStaged(it.ID); err != nil {
			return err
		}
	}
	if err := in.Spool.WriteManifest(travelling(a)); err != nil {
		return err
	}
	secure := in.Spool.Settle
	if ev.found.Area == spool.Staging {
		secure = in.Spool.Secure
	}
	if err := secure(it.ID); err != nil {
		return err
	}
	return in.Queue.Adopt(ctx, a)
}

// syncStaged makes the bytes of a staged file durable: the crash may have come before that.
func (in *Intake) syncStaged(id attachment.ID) error {
	f, err := in.Spool.OpenStaged(id)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
