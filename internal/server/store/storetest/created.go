package storetest

import (
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// creation is a reservation of a client that knows neither length nor digest.
func creation(t *testing.T, id string) store.Reservation {
	t.Helper()
	f := facts(0, store.UnknownLength)
	f.SHA256 = ""
	r := reservation(t, id, f)
	r.Create, r.Metadata = true, "filename YQ=="
	return r
}

// A created upload learns its length once and its digest from the server, and is registered by its verification.
func createdIsRegistered(t *testing.T, s store.Store) {
	id := newID()
	out := reserve(t, s, creation(t, id))
	session := out.Session.ID
	if !out.Created || !out.Session.Created || out.Session.Length != store.UnknownLength || out.Session.Metadata == "" ||
		out.Attachment.MediaID != "" {
		t.Fatalf("%+v, session %+v", out, out.Session)
	}
	must(t, s.Advance(t.Context(), "acme", session, 0, 10, start))
	wantErr(t, s.Measured(t.Context(), "acme", id, 1, store.Content{Length: 10, SHA256: digest(1)}, newID()), store.ErrNotVerified)
	wantErr(t, s.Verified(t.Context(), "acme", id, 1, start), store.ErrNotVerified)
	set := func(account string, length, room int64) error {
		_, err := s.SetLength(t.Context(), account, session, length, room)
		return err
	}
	wantErr(t, set("zeta", 10, 100), store.ErrNotFound)
	wantErr(t, set("acme", 9, 100), store.ErrConflict)
	wantErr(t, set("acme", 20, 9), store.ErrFull)
	must(t, set("acme", 10, 0))
	must(t, set("acme", 10, 0))
	wantErr(t, set("acme", 11, 100), store.ErrConflict)
	wantErr(t, s.Advance(t.Context(), "acme", session, 10, 11, start), store.ErrOffset)
	found := store.Content{Length: 10, SHA256: digest(1)}
	wantErr(t, s.Measured(t.Context(), "acme", id, 2, found, newID()), store.ErrGone)
	must(t, s.Measured(t.Context(), "acme", id, 1, found, newID()))
	must(t, s.Measured(t.Context(), "acme", id, 1, store.Content{Length: 10, SHA256: digest(2)}, newID()))
	a := attachment(t, s, "acme", id)
	if a.Facts.SHA256 != digest(1) || a.Facts.Length != 10 || a.MediaID == "" || a.State != wire.StateReserved {
		t.Fatalf("%+v", a)
	}
	must(t, s.Verified(t.Context(), "acme", id, 1, start.Add(time.Minute)))
	a = attachment(t, s, "acme", id)
	if a.State != wire.StateRegistered || a.Receipt == nil || a.Receipt.Parent.LocalID != "insp-1" || a.Receipt.SHA256 != digest(1) ||
		a.Receipt.MediaID != a.MediaID || !a.Receipt.RegisteredAt.Equal(start.Add(time.Minute)) || a.Sequence == 0 {
		t.Fatalf("%+v", a)
	}
	list, err := s.Registered(t.Context(), "acme", 0, 10)
	if err != nil || len(list) != 1 {
		t.Fatalf("listed %v, %v", list, err)
	}
	same := reservation(t, newID(), facts(1, 10))
	if other := reserve(t, s, same); other.Attachment.MediaID != a.MediaID {
		t.Error("one content has two media items")
	}
	again := creation(t, id)
	again.Stored = true
	if out = reserve(t, s, again); out.Session == nil || out.Session.ID != session || out.Session.State != store.SessionComplete {
		t.Fatalf("repeated: %+v, session %+v", out, out.Session)
	}
}

// A repetition may say what was left open, and may not contradict; whoever repeats last says who registers.
func createdIsRepeated(t *testing.T, s store.Store) {
	id := newID()
	first := reserve(t, s, creation(t, id))
	must(t, s.Advance(t.Context(), "acme", first.Session.ID, 0, 4, start))
	renamed := creation(t, id)
	renamed.Facts.Filename = "b.jpg"
	short := reservation(t, id, facts(1, 3))
	for _, r := range []store.Reservation{renamed, short} {
		_, err := s.Reserve(t.Context(), r)
		wantErr(t, err, store.ErrConflict)
	}
	full := reservation(t, id, facts(1, 10))
	full.Room = 5
	_, err := s.Reserve(t.Context(), full)
	wantErr(t, err, store.ErrFull)
	device := reserve(t, s, reservation(t, id, facts(1, 10)))
	if device.Session.ID != first.Session.ID || device.Session.Length != 10 || device.Session.Created || device.Attachment.MediaID == "" {
		t.Fatalf("%+v, session %+v", device, device.Session)
	}
	longer := creation(t, id)
	longer.Facts.Length = 11
	_, err = s.Reserve(t.Context(), longer)
	wantErr(t, err, store.ErrConflict)
	fill(t, s, device)
	if a := attachment(t, s, "acme", id); a.State != wire.StateVerified {
		t.Fatalf("the device's attachment is %s", a.State)
	}
	register(t, s, device.Attachment, receipt.Parent{})

	back := reserve(t, s, reservation(t, newID(), facts(2, 10)))
	taken := creation(t, back.Attachment.ID)
	if out := reserve(t, s, taken); out.Session.ID != back.Session.ID || !out.Session.Created || out.Attachment.Facts.SHA256 != digest(2) {
		t.Fatalf("%+v, session %+v", out, out.Session)
	}
	fill(t, s, back)
	if a := attachment(t, s, "acme", back.Attachment.ID); a.State != wire.StateRegistered {
		t.Fatalf("the client's attachment is %s", a.State)
	}
	waived := reservation(t, newID(), facts(2, 10))
	waived.Stored = true
	out := reserve(t, s, waived)
	shown := creation(t, out.Attachment.ID)
	shown.Stored = true
	if got := reserve(t, s, shown); out.Session != nil || got.Session == nil || !got.Session.Whole() || got.Session.State != store.SessionComplete {
		t.Fatalf("%+v, session %+v", got, got.Session)
	}
}

// A session expires that nothing was appended to since a time, unless it has all its bytes or is busy.
func sessionsExpire(t *testing.T, s store.Store) {
	at := func(n int, offset int64) store.Reserved {
		out := reserve(t, s, reservation(t, newID(), facts(n, 10)))
		if offset > 0 {
			must(t, s.Advance(t.Context(), "acme", out.Session.ID, 0, offset, start.Add(time.Duration(n)*time.Minute)))
		}
		return out
	}
	old, whole, fresh := at(1, 4), at(2, 10), at(3, 4)
	limit := start.Add(3 * time.Minute)
	expire := func(out store.Reserved, busy bool) bool {
		t.Helper()
		done, err := s.Expire(t.Context(), "acme", out.Session.ID, limit, func(string) bool { return busy })
		must(t, err)
		return done
	}
	if expire(old, true) || expire(whole, false) || expire(fresh, false) {
		t.Error("a session expired that is busy, whole or in use")
	}
	if !expire(old, false) || expire(old, false) {
		t.Error("the old session did not expire, or twice")
	}
	if a := attachment(t, s, "acme", old.Attachment.ID); a.Void != store.VoidExpired || a.Session != "" || a.State != wire.StateReserved {
		t.Errorf("its attachment %+v", a)
	}
	if again := reserve(t, s, reservation(t, old.Attachment.ID, facts(1, 10))); again.Attachment.Generation != 2 {
		t.Errorf("%+v", again)
	}
	_, err := s.Expire(t.Context(), "zeta", old.Session.ID, limit, func(string) bool { return false })
	wantErr(t, err, store.ErrNotFound)
	_, err = s.SetLength(t.Context(), "acme", old.Session.ID, 10, 100)
	wantErr(t, err, store.ErrGone)
}
