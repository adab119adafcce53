// Package storetest is the suite that every implementation of store.Store must pass.
//
// It owns the meaning of the contract in examples: replays, generations, the one media item of a content, receipts that
// stay the same, and the walls between accounts. Call Run from a test of the implementation.
package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Run opens a fresh, empty store for each part of the suite and tests it. Open registers its own clean-up.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, part := range []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"ReserveReplays", reserveReplays},
		{"ReserveRefuses", reserveRefuses},
		{"OneContentOneItem", oneContentOneItem},
		{"NoBytesNeeded", noBytesNeeded},
		{"OffsetsOnlyGrow", offsetsOnlyGrow},
		{"VoidOpensGeneration", voidOpensGeneration},
		{"LostContent", lostContent},
		{"LostAfterRegistration", lostAfterRegistration},
		{"LookFromBefore", lookFromBefore},
		{"AuditRestores", auditRestores},
		{"IdleSessionsMakeRoom", idleSessionsMakeRoom},
		{"SessionsExpire", sessionsExpire},
		{"CreatedIsRegistered", createdIsRegistered},
		{"CreatedIsRepeated", createdIsRepeated},
		{"VerifiedNeedsAllBytes", verifiedNeedsAllBytes},
		{"ReceiptStays", receiptStays},
		{"RegisterRefuses", registerRefuses},
		{"TakeoverIsNoted", takeoverIsNoted},
		{"ListIsRegisteredOnly", listIsRegisteredOnly},
		{"AccountsAreApart", accountsAreApart},
		{"Tokens", tokens},
		{"ConcurrentReserve", concurrentReserve},
		{"ConcurrentAdvance", concurrentAdvance},
		{"OpenSessions", openSessions},
		{"AttachmentsPages", attachmentsPages},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, open(t)) })
	}
}

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// digest is a well-formed SHA-256 that tells n.
func digest(n int) string { return fmt.Sprintf("%064x", n) }

func facts(n int, length int64) wire.Reserve {
	return wire.Reserve{
		Length: length, SHA256: digest(n), Role: wire.RoleOriginal, MediaType: "image/jpeg", Filename: "a.jpg",
		CapturedAt: start, Parent: receipt.Parent{LocalID: "insp-1"},
	}
}

func reservation(t *testing.T, id string, f wire.Reserve) store.Reservation {
	t.Helper()
	session, err := store.NewSessionID()
	media, merr := store.NewMediaID()
	must(t, errors.Join(err, merr))
	return store.Reservation{
		By: store.Identity{Account: "acme", Device: "tablet-1"}, ID: id, Facts: f, Now: start, Room: 1 << 40,
		MaxSessions: 100, NewSession: session, NewMedia: media,
	}
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// reserve reserves after a look at the attachment as it is now.
func reserve(t *testing.T, s store.Store, r store.Reservation) store.Reserved {
	t.Helper()
	if a, err := s.Attachment(t.Context(), r.By.Account, r.ID); err == nil {
		r.Seen = a.State
	}
	out, err := s.Reserve(t.Context(), r)
	if err != nil {
		t.Fatalf("reserve %s: %v", r.ID, err)
	}
	return out
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill confirms all bytes of a session and verifies its attachment.
func fill(t *testing.T, s store.Store, out store.Reserved) {
	t.Helper()
	a := out.Attachment
	if a.Facts.Length > out.Session.Offset {
		must(t, s.Advance(t.Context(), a.Account, out.Session.ID, out.Session.Offset, a.Facts.Length, start))
	}
	must(t, s.Verified(t.Context(), a.Account, a.ID, a.Generation, start))
}

func register(t *testing.T, s store.Store, a store.Attachment, parent receipt.Parent) receipt.Receipt {
	t.Helper()
	rec, _, err := s.Register(t.Context(), store.Registration{
		By: store.Identity{Account: a.Account, Device: a.Device}, ID: a.ID, Parent: parent, Now: start.Add(time.Hour),
	})
	must(t, err)
	return rec
}

func attachment(t *testing.T, s store.Store, account, id string) store.Attachment {
	t.Helper()
	a, err := s.Attachment(t.Context(), account, id)
	must(t, err)
	return a
}

// A repeated reservation finds the session and its offset again; facts outside the identity follow the device.
func reserveReplays(t *testing.T, s store.Store) {
	id := newID()
	first := reserve(t, s, reservation(t, id, facts(1, 10)))
	if !first.Created || first.Session == nil || first.Session.Offset != 0 || first.Attachment.Generation != 1 {
		t.Fatalf("first: %+v", first)
	}
	must(t, s.Advance(t.Context(), "acme", first.Session.ID, 0, 4, start))
	f := facts(1, 10)
	f.Filename, f.Parent.ServerID = "renamed.jpg", "S-1"
	again := reserve(t, s, reservation(t, id, f))
	if again.Created || again.Session.ID != first.Session.ID || again.Session.Offset != 4 ||
		again.Attachment.MediaID != first.Attachment.MediaID {
		t.Fatalf("replay: %+v, first was %+v", again, first)
	}
	if a := attachment(t, s, "acme", id); a.Facts.Filename != "renamed.jpg" || a.Facts.Parent.ServerID != "S-1" {
		t.Fatalf("facts did not follow: %+v", a.Facts)
	}
}

// Another length, digest or role under a known ID is a conflict; no room and too many sessions are refused; nothing of
// a refused reservation stays.
func reserveRefuses(t *testing.T, s store.Store) {
	id := newID()
	reserve(t, s, reservation(t, id, facts(1, 10)))
	longer, other, preview := facts(1, 11), facts(2, 10), facts(1, 10)
	preview.Role, preview.Of = wire.RolePreview, newID()
	for _, f := range []wire.Reserve{longer, other, preview} {
		_, err := s.Reserve(t.Context(), reservation(t, id, f))
		wantErr(t, err, store.ErrConflict)
	}
	if a := attachment(t, s, "acme", id); a.Facts.Length != 10 || a.Facts.Role != wire.RoleOriginal {
		t.Fatalf("a conflict changed the record: %+v", a)
	}
	full := reservation(t, newID(), facts(3, 10))
	full.Room = 9
	_, err := s.Reserve(t.Context(), full)
	wantErr(t, err, store.ErrFull)
	many := reservation(t, newID(), facts(4, 10))
	many.MaxSessions = 1
	_, err = s.Reserve(t.Context(), many)
	wantErr(t, err, store.ErrTooManySessions)
	for _, r := range []store.Reservation{full, many} {
		_, err = s.Attachment(t.Context(), "acme", r.ID)
		wantErr(t, err, store.ErrNotFound)
	}
}

// Two IDs of one content share a media item, each with a session of its own while nothing is registered. A proposed
// media ID counts if it is a free UUID.
func oneContentOneItem(t *testing.T, s store.Store) {
	f := facts(1, 10)
	f.ProposedMediaID = newID()
	one := reserve(t, s, reservation(t, newID(), f))
	if one.Attachment.MediaID != f.ProposedMediaID {
		t.Fatalf("media ID is %s, proposed was %s", one.Attachment.MediaID, f.ProposedMediaID)
	}
	two := reserve(t, s, reservation(t, newID(), facts(1, 10)))
	if two.Attachment.MediaID != one.Attachment.MediaID || two.Session == nil || two.Session.ID == one.Session.ID {
		t.Fatalf("one %+v, two %+v", one, two)
	}
	taken := facts(2, 10)
	taken.ProposedMediaID = f.ProposedMediaID
	if out := reserve(t, s, reservation(t, newID(), taken)); out.Attachment.MediaID == f.ProposedMediaID {
		t.Fatal("two contents have one media ID")
	}
	text := facts(3, 10)
	text.ProposedMediaID = "holiday"
	if out := reserve(t, s, reservation(t, newID(), text)); !store.IsUUID(out.Attachment.MediaID) {
		t.Fatalf("media ID %q", out.Attachment.MediaID)
	}
}

// Only a registered content whose file is there saves the bytes of another attachment.
func noBytesNeeded(t *testing.T, s store.Store) {
	one := reserve(t, s, reservation(t, newID(), facts(1, 10)))
	fill(t, s, one)
	stored := reservation(t, newID(), facts(1, 10))
	stored.Stored = true
	if out := reserve(t, s, stored); out.Session == nil {
		t.Fatal("bytes were waived for content that is verified and not registered")
	}
	register(t, s, one.Attachment, receipt.Parent{})
	missing := reservation(t, newID(), facts(1, 10))
	if out := reserve(t, s, missing); out.Session == nil {
		t.Fatal("bytes were waived though the file is missing")
	}
	otherLength := reservation(t, newID(), facts(1, 11))
	otherLength.Stored = true
	if out := reserve(t, s, otherLength); out.Session == nil {
		t.Fatal("bytes were waived for another length")
	}
	known := reservation(t, newID(), facts(1, 10))
	known.Stored = true
	out := reserve(t, s, known)
	if out.Session != nil || out.Attachment.State != wire.StateVerified || out.Attachment.Generation != 1 {
		t.Fatalf("known content: %+v", out)
	}
	rec := register(t, s, out.Attachment, receipt.Parent{LocalID: "insp-2"})
	if rec.MediaID != one.Attachment.MediaID || rec.AttachmentID != known.ID {
		t.Fatalf("receipt %+v", rec)
	}
	list, err := s.Registered(t.Context(), "acme", 0, 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d registrations, %v", len(list), err)
	}
}

// Receipts are the same at each repetition; only an unknown server ID is filled in, once.
func receiptStays(t *testing.T, s store.Store) {
	out := reserve(t, s, reservation(t, newID(), facts(1, 10)))
	fill(t, s, out)
	parent := receipt.Parent{LocalID: "insp-1", LocalIDRaw: []byte{0xff}}
	first := register(t, s, out.Attachment, parent)
	if first.Grade != receipt.RegisteredDurable || !strings.Contains(first.Server, s.Epoch()) || first.Length != 10 || first.Takeover != nil {
		t.Fatalf("receipt %+v", first)
	}
	again := func(parent receipt.Parent) (receipt.Receipt, error) {
		rec, fresh, err := s.Register(t.Context(), store.Registration{
			By: store.Identity{Account: "acme", Device: "tablet-9"}, ID: out.Attachment.ID, Parent: parent, Now: start.Add(9 * time.Hour),
		})
		if fresh {
			t.Fatal("a repetition counts as fresh")
		}
		return rec, err
	}
	rec, err := again(parent)
	must(t, err)
	equal(t, rec, first)
	withServer := parent
	withServer.ServerID = "S-1"
	rec, err = again(withServer)
	must(t, err)
	first.Parent.ServerID = "S-1"
	equal(t, rec, first)
	rec, err = again(parent)
	must(t, err)
	equal(t, rec, first)
	for _, wrong := range []receipt.Parent{
		{LocalID: "insp-2", LocalIDRaw: []byte{0xff}}, {}, {LocalID: "insp-1"},
		{LocalID: "insp-1", LocalIDRaw: []byte{0xff}, ServerID: "S-2"},
	} {
		_, err := again(wrong)
		wantErr(t, err, store.ErrParent)
	}
	f := facts(1, 10)
	f.Parent = receipt.Parent{LocalID: "late"}
	there := reservation(t, out.Attachment.ID, f)
	there.Stored = true
	replay := reserve(t, s, there)
	if replay.Session != nil || replay.Attachment.Facts.Parent.LocalID != "insp-1" {
		t.Fatalf("a registered attachment changed: %+v", replay.Attachment)
	}
	equal(t, *replay.Attachment.Receipt, first)
}

func equal(t *testing.T, got, want receipt.Receipt) {
	t.Helper()
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Fatalf("receipt\n%+v, want\n%+v", got, want)
	}
}

// Nothing is registered before it is verified.
func registerRefuses(t *testing.T, s store.Store) {
	try := func(id string) error {
		_, _, err := s.Register(t.Context(), store.Registration{By: store.Identity{Account: "acme", Device: "d"}, ID: id, Now: start})
		return err
	}
	wantErr(t, try(newID()), store.ErrNotFound)
	out := reserve(t, s, reservation(t, newID(), facts(1, 10)))
	wantErr(t, try(out.Attachment.ID), store.ErrNotVerified)
	must(t, s.Void(t.Context(), "acme", out.Attachment.ID, 1, store.VoidDigest))
	wantErr(t, try(out.Attachment.ID), store.ErrDigest)
	out = reserve(t, s, reservation(t, newID(), facts(2, 10)))
	must(t, s.Void(t.Context(), "acme", out.Attachment.ID, 1, store.VoidLost))
	wantErr(t, try(out.Attachment.ID), store.ErrGone)
}

// The receipt names the device that finished what another one began, also when it only registers.
func takeoverIsNoted(t *testing.T, s store.Store) {
	out := reserve(t, s, reservation(t, newID(), facts(1, 10)))
	second := reservation(t, out.Attachment.ID, facts(1, 10))
	second.By.Device, second.Now = "tablet-2", start.Add(time.Minute)
	taken := reserve(t, s, second)
	if taken.Session.ID != out.Session.ID {
		t.Fatal("a takeover lost the session")
	}
	fill(t, s, taken)
	rec, _, err := s.Register(t.Context(), store.Registration{By: second.By, ID: second.ID, Now: start.Add(time.Hour)})
	must(t, err)
	if rec.Takeover == nil || rec.Takeover.Device != "tablet-2" || !rec.Takeover.At.Equal(second.Now) {
		t.Fatalf("takeover %+v", rec.Takeover)
	}
}
