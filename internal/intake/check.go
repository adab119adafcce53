package intake

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// Broken names one kind of broken invariant.
type Broken string

// The kinds of findings of Check.
const (
	BrokenQueue       Broken = "queue"             // an index, counter or journal row does not agree with the records
	BrokenRecord      Broken = "record_damaged"    // the record cannot be read
	BrokenMissing     Broken = "payload_missing"   // undelivered, and no payload
	BrokenChanged     Broken = "payload_changed"   // the payload is not what was captured
	BrokenManifest    Broken = "manifest_damaged"  // the manifest beside the payload cannot be read or says something else
	BrokenSidecar     Broken = "sidecar_damaged"   // the sidecar that bound it is not beside it, or says something else
	BrokenReceipt     Broken = "receipt_missing"   // delivered or sent, and the receipt's file is not there
	BrokenPlace       Broken = "wrong_place"       // delivered and still in the spool, or the reverse
	BrokenUnrecorded  Broken = "unrecorded"        // a payload without a record
	BrokenStray       Broken = "stray"             // a file that is none of ours
	BrokenAbandoned   Broken = "abandoned_staging" // staged bytes without an adoption under way
	BrokenIntakeValue Broken = "intake_damaged"    // the record of an adoption under way cannot be read
)

// remedies say what to do about each kind.
var remedies = map[Broken]string{
	BrokenQueue:       "fieldgwctl check --repair makes the indexes anew",
	BrokenRecord:      "fieldgwctl check --repair restores it from the manifest beside the payload",
	BrokenMissing:     "look for the file or restore it from a backup; fieldgwctl check --repair marks it",
	BrokenChanged:     "check the storage medium and restore the file; fieldgwctl check --repair marks it",
	BrokenManifest:    "fieldgwctl check --repair writes it anew",
	BrokenSidecar:     "nothing depends on it any more; what it said is in the record",
	BrokenReceipt:     "fieldgwctl check --repair writes it anew",
	BrokenPlace:       "fieldgwctl check --repair moves it",
	BrokenUnrecorded:  "fieldgwctl check --repair records it",
	BrokenStray:       "look at it; nothing is done to it",
	BrokenAbandoned:   "nothing; it is removed after the grace period",
	BrokenIntakeValue: "restart fieldgwd; what was staged is then secured",
}

// Finding is one broken invariant with what to do about it.
type Finding struct {
	Kind   Broken
	ID     attachment.ID
	Detail string
	Remedy string
}

// MaxFindings bounds a report.
const MaxFindings = 1000

// CheckOptions say how far a check goes.
type CheckOptions struct {
	// Deep reads every payload and compares its digest.
	Deep bool
	// Settle is how long to wait before an item that seems broken is looked at again: while the daemon works, a payload is
	// on its way for a moment. 0 does not wait.
	Settle time.Duration
}

// Check holds queue and spool against each other and against their own invariants. It changes nothing.
func (in *Intake) Check(ctx context.Context, o CheckOptions) ([]Finding, error) {
	c := &check{in: in, o: o}
	found, err := in.Queue.Check(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		c.add(BrokenQueue, f.ID, f.Detail)
	}
	_, damaged, err := in.Queue.Intakes()
	if err != nil {
		return nil, err
	}
	for _, id := range damaged {
		c.add(BrokenIntakeValue, id, "")
	}
	if err := c.records(ctx); err != nil {
		return nil, err
	}
	if err := c.files(ctx); err != nil {
		return nil, err
	}
	return c.confirm(ctx)
}

type check struct {
	in       *Intake
	o        CheckOptions
	findings []Finding
}

func (c *check) add(kind Broken, id attachment.ID, detail string) {
	c.addWith(kind, id, detail, remedies[kind])
}

func (c *check) addWith(kind Broken, id attachment.ID, detail, remedy string) {
	if len(c.findings) < MaxFindings {
		c.findings = append(c.findings, Finding{Kind: kind, ID: id, Detail: detail, Remedy: remedy})
	}
}

// records holds every record against the spool.
func (c *check) records(ctx context.Context) error {
	for cursor := ""; ; {
		page, next, err := c.in.Queue.List(queue.Query{Cursor: cursor, Limit: queue.MaxPage})
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.record(ctx, e); err != nil {
				return err
			}
		}
		if cursor = next; next == "" {
			return nil
		}
	}
}

func (c *check) record(ctx context.Context, e queue.Entry) error {
	m := e.Manifest
	if m == nil {
		return c.unreadable(e)
	}
	area, found, err := c.in.Spool.Locate(m.ID)
	if err != nil {
		return err
	}
	delivered := m.State == attachment.Reconciled
	switch {
	case m.State == attachment.Released || m.State == attachment.Cancelled:
		return nil
	case !found && m.Delivery.Verified && !m.Sent():
		return nil
	case !found:
		c.add(BrokenMissing, m.ID, "")
		return nil
	case delivered != (area == spool.Delivered):
		c.add(BrokenPlace, m.ID, "lies in "+string(area)+" and is "+string(m.Condition()))
	}
	if delivered || m.Sent() {
		if _, err := c.in.Spool.ReadReceipt(m.ID); durable.IsNotExist(err) {
			c.add(BrokenReceipt, m.ID, "")
		} else if err != nil {
			return err
		}
	}
	if err := c.travelling(area, m); err != nil {
		return err
	}
	return c.payload(ctx, m)
}

// unreadable reports a record that cannot be read, in place of what the queue's own check says of it.
func (c *check) unreadable(e queue.Entry) error {
	c.findings = slices.DeleteFunc(c.findings, func(f Finding) bool { return f.Kind == BrokenQueue && f.ID == e.ID && e.ID != "" })
	t, err := c.in.travelling(e.ID)
	if err == nil && t == nil {
		c.addWith(BrokenRecord, e.ID, e.Err.Error(), "nothing here can restore it; its bytes are kept: look for a copy of its .manifest file")
		return nil
	}
	c.add(BrokenRecord, e.ID, e.Err.Error())
	return err
}

func (c *check) travelling(area spool.Area, m *attachment.Manifest) error {
	t, err := c.in.Spool.ReadManifest(area, m.ID)
	switch {
	case durable.IsNotExist(err), errors.Is(err, attachment.ErrBadManifest):
		c.add(BrokenManifest, m.ID, err.Error())
	case err != nil:
		return err
	case t.Manifest.SHA256 != m.SHA256 || t.Manifest.Length != m.Length || t.Manifest.Parent.LocalID.Exact() != m.Parent.LocalID.Exact():
		c.add(BrokenManifest, m.ID, "it speaks of other content or of another parent than the record")
	}
	return c.sidecar(m)
}

func (c *check) sidecar(m *attachment.Manifest) error {
	if m.Binding.Sidecar == nil {
		return nil
	}
	kept, err := c.in.Spool.ReadSidecar(m.ID)
	switch {
	case durable.IsNotExist(err):
		c.add(BrokenSidecar, m.ID, "it is missing")
	case err != nil:
		return err
	case sha256.Sum256(kept) != m.Binding.Sidecar.SHA256:
		c.add(BrokenSidecar, m.ID, "it was changed")
	}
	return nil
}

func (c *check) payload(ctx context.Context, m *attachment.Manifest) error {
	segments, err := c.in.Queue.Segments(m.ID)
	if err != nil {
		return err
	}
	p, err := c.in.Spool.OpenPayload(m.ID, attachment.Fingerprint{Length: m.Length, SHA256: m.SHA256, Segments: segments})
	if err == nil && c.o.Deep {
		err = p.Check(ctx, 0, m.Length)
	}
	if p != nil {
		err = errors.Join(err, p.Close())
	}
	switch {
	case errors.Is(err, spool.ErrChanged):
		c.add(BrokenChanged, m.ID, err.Error())
	case errors.Is(err, spool.ErrMissing):
		c.add(BrokenMissing, m.ID, "")
	case err != nil:
		return err
	}
	return nil
}

// files looks for what no record names.
func (c *check) files(ctx context.Context) error {
	return c.in.Spool.Scan(func(f spool.Found) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if f.Stray != "" {
			c.add(BrokenStray, "", f.Stray)
			return nil
		}
		if _, found, err := c.in.Queue.Intake(f.ID); err != nil || found {
			return err
		}
		if f.Area == spool.Staging {
			c.add(BrokenAbandoned, f.ID, c.in.Spool.Path(spool.Staging, f.ID))
			return nil
		}
		_, err := c.in.Queue.Get(f.ID)
		if errors.Is(err, queue.ErrNotFound) {
			c.add(BrokenUnrecorded, f.ID, c.in.Spool.Path(f.Area, f.ID))
			return nil
		}
		return err
	})
}

// confirm looks at every item again that seemed broken, after a while, and keeps what still is.
func (c *check) confirm(ctx context.Context) ([]Finding, error) {
	if c.o.Settle == 0 || len(c.findings) == 0 {
		return c.findings, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(c.o.Settle):
	}
	again := &check{in: c.in, o: CheckOptions{Deep: c.o.Deep}}
	looked := map[attachment.ID]bool{}
	for _, f := range c.findings {
		switch {
		case f.Kind == BrokenQueue || f.Kind == BrokenStray || f.Kind == BrokenIntakeValue || f.Kind == BrokenRecord:
			again.findings = append(again.findings, f)
		case f.Kind == BrokenUnrecorded || f.Kind == BrokenAbandoned:
			there, err := c.in.FS.Exists(f.Detail)
			if err != nil {
				return nil, err
			}
			_, gerr := c.in.Queue.Get(f.ID)
			if there && errors.Is(gerr, queue.ErrNotFound) {
				again.findings = append(again.findings, f)
			}
		case !looked[f.ID]:
			looked[f.ID] = true
			e, err := c.in.Queue.Get(f.ID)
			if err == nil {
				err = again.record(ctx, e)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return again.findings, nil
}

// Repair mends what can be mended without losing anything: it makes indexes anew, restores records from what travels,
// writes manifests and receipts that are missing, moves payloads to where they belong, records payloads that have no
// record, and marks for a person what only a person can mend. It deletes nothing. It returns how many findings it acted
// on.
func (in *Intake) Repair(ctx context.Context, findings []Finding) (acted int, err error) {
	reindexed := false
	for _, f := range findings {
		if err := ctx.Err(); err != nil {
			return acted, err
		}
		if f.Kind == BrokenQueue && reindexed {
			acted++
			continue
		}
		done, err := in.repair(ctx, f)
		if err != nil {
			return acted, err
		}
		reindexed = reindexed || f.Kind == BrokenQueue
		if done {
			acted++
		}
	}
	return acted, nil
}

func (in *Intake) repair(ctx context.Context, f Finding) (bool, error) {
	switch f.Kind {
	case BrokenQueue:
		return true, in.restoreAll(ctx, Report{})
	case BrokenRecord:
		return in.restoreOne(ctx, f.ID)
	case BrokenUnrecorded:
		report := Report{}
		err := in.record(ctx, spool.Found{ID: f.ID, Area: spool.Payloads, Payload: true}, report)
		return report[Stray] == 0, err
	case BrokenStray, BrokenAbandoned, BrokenIntakeValue, BrokenSidecar:
		return false, nil
	}
	e, err := in.Queue.Get(f.ID)
	if err != nil || e.Manifest == nil {
		return false, err
	}
	switch m := e.Manifest; f.Kind {
	case BrokenManifest:
		segments, err := in.Queue.Segments(m.ID)
		if err != nil || len(segments) != attachment.SegmentCount(m.Length) {
			return false, err
		}
		return true, in.Spool.RewriteManifest(&attachment.Travelling{Manifest: *m, Segments: segments})
	case BrokenReceipt:
		return in.rewriteReceipt(m.ID)
	case BrokenPlace:
		if m.State == attachment.Reconciled {
			return true, in.Spool.Deliver(m.ID)
		}
		return true, in.Spool.Undeliver(m.ID)
	case BrokenMissing:
		return in.mark(ctx, m, attachment.NeedsPayloadMissing)
	case BrokenChanged:
		return in.mark(ctx, m, attachment.NeedsPayloadChanged)
	}
	return false, nil
}
