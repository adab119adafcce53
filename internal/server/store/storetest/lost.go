package storetest

import (
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// A registered attachment whose content is missing is reserved again by the next reservation or by an audit, with its
// receipt kept aside; the same registration then gives the same receipt, in the same place of the list.
func lostAfterRegistration(t *testing.T, s store.Store) {
	id := newID()
	first := reserve(t, s, reservation(t, id, facts(1, 10)))
	fill(t, s, first)
	parent := receipt.Parent{LocalID: "insp-1"}
	rec := register(t, s, first.Attachment, parent)
	place := attachment(t, s, "acme", id).Sequence
	by := store.Identity{Account: "acme", Device: "tablet-2"}
	again := func() (receipt.Receipt, error) {
		rec, fresh, err := s.Register(t.Context(), store.Registration{By: by, ID: id, Parent: parent, Now: start.Add(9 * time.Hour)})
		if fresh {
			t.Error("a second registration counts as fresh")
		}
		return rec, err
	}
	for generation := 2; generation < 4; generation++ {
		if generation == 3 { // found out by an operator this time
			a, ended, err := s.Audit(t.Context(), "acme", id, false)
			if err != nil || a.State != wire.StateReserved || a.Void != store.VoidLost || a.Receipt == nil || ended != nil {
				t.Fatalf("audit %+v, ended %+v, %v", a, ended, err)
			}
			_, err = again()
			wantErr(t, err, store.ErrNotVerified)
		}
		r := reservation(t, id, facts(1, 10))
		r.By, r.Facts.Filename, r.Facts.Parent.LocalID = by, "other.jpg", "insp-9"
		out := reserve(t, s, r)
		a := out.Attachment
		if out.Session == nil || out.Created || a.Generation != generation || a.State != wire.StateReserved || a.Receipt == nil {
			t.Fatalf("reserved again: %+v", out)
		}
		if a.Facts.Filename != "a.jpg" || a.Facts.Parent.LocalID != "insp-1" || a.Holder != "tablet-1" {
			t.Fatalf("what the receipt rests on changed: %+v", a)
		}
		_, err := again()
		wantErr(t, err, store.ErrNotVerified)
		fill(t, s, out)
		wrong := store.Registration{By: by, ID: id, Parent: receipt.Parent{LocalID: "insp-9"}, Now: start}
		_, _, err = s.Register(t.Context(), wrong)
		wantErr(t, err, store.ErrParent)
		got, err := again()
		must(t, err)
		equal(t, got, rec)
	}
	list, err := s.Registered(t.Context(), "acme", 0, 10)
	if err != nil || len(list) != 1 || list[0].Sequence != place || list[0].State != wire.StateRegistered {
		t.Fatalf("list %+v, %v", list, err)
	}
}

// A reservation whose look at the content is from before the attachment was registered takes nothing from it.
func lookFromBefore(t *testing.T, s store.Store) {
	id := newID()
	first := reserve(t, s, reservation(t, id, facts(1, 10)))
	fill(t, s, first)
	stale := reservation(t, id, facts(1, 10))
	for _, seen := range []wire.AttachmentState{"", wire.StateReserved} {
		stale.Seen = seen
		out, err := s.Reserve(t.Context(), stale)
		if err != nil || out.Session != nil || out.Attachment.State != wire.StateVerified || out.Attachment.Generation != 1 {
			t.Fatalf("seen %q, verified since: %+v, %v", seen, out, err)
		}
	}
	rec := register(t, s, first.Attachment, receipt.Parent{})
	for _, seen := range []wire.AttachmentState{"", wire.StateReserved, wire.StateVerified} {
		stale.Seen = seen
		out, err := s.Reserve(t.Context(), stale)
		if err != nil || out.Session != nil || out.Attachment.State != wire.StateRegistered {
			t.Fatalf("seen %q, registered since: %+v, %v", seen, out, err)
		}
		equal(t, *out.Attachment.Receipt, rec)
	}
}

// An audit that finds the content sound brings a receipt back without any bytes, and ends and names the session that took
// them; it registers nothing that never was.
func auditRestores(t *testing.T, s store.Store) {
	id := newID()
	first := reserve(t, s, reservation(t, id, facts(1, 10)))
	fill(t, s, first)
	if a, ended, err := s.Audit(t.Context(), "acme", id, true); err != nil || a.State != wire.StateVerified || ended != nil {
		t.Fatalf("audit before the registration: %+v, ended %+v, %v", a, ended, err)
	}
	rec := register(t, s, first.Attachment, receipt.Parent{})
	out := reserve(t, s, reservation(t, id, facts(1, 10)))
	must(t, s.Advance(t.Context(), "acme", out.Session.ID, 0, 4, start))
	if a, ended, err := s.Audit(t.Context(), "acme", id, false); err != nil || a.Session != out.Session.ID || ended != nil {
		t.Fatalf("an audit that changes nothing: %+v, ended %+v, %v", a, ended, err)
	}
	a, ended, err := s.Audit(t.Context(), "acme", id, true)
	if err != nil || a.State != wire.StateRegistered || a.Session != "" {
		t.Fatalf("audit %+v, %v", a, err)
	}
	if ended == nil || ended.ID != out.Session.ID || ended.Account != "acme" || ended.AttachmentID != id || ended.Offset != 4 {
		t.Fatalf("it ended %+v", ended)
	}
	equal(t, *a.Receipt, rec)
	wantErr(t, s.Advance(t.Context(), "acme", out.Session.ID, 4, 5, start), store.ErrGone)
	_, _, err = s.Audit(t.Context(), "acme", newID(), true)
	wantErr(t, err, store.ErrNotFound)
}

// A verified attachment whose content file is missing needs its bytes again; the session that brought them is void.
func lostContent(t *testing.T, s store.Store) {
	id := newID()
	first := reserve(t, s, reservation(t, id, facts(1, 10)))
	fill(t, s, first)
	there := reservation(t, id, facts(1, 10))
	there.Stored = true
	if out := reserve(t, s, there); out.Session != nil || out.Attachment.State != wire.StateVerified {
		t.Fatalf("verified attachment %+v", out)
	}
	again := reserve(t, s, reservation(t, id, facts(1, 10)))
	if again.Session == nil || again.Attachment.Generation != 2 || again.Attachment.State != wire.StateReserved {
		t.Fatalf("lost content %+v", again)
	}
	if old, err := s.Session(t.Context(), "acme", first.Session.ID); err != nil || old.State != store.SessionVoid {
		t.Fatalf("old session %+v, %v", old, err)
	}
}
