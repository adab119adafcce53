package storetest

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// An offset moves from the confirmed value to a larger one within the length, and in no other way.
func offsetsOnlyGrow(t *testing.T, s store.Store) {
	out := reserve(t, s, reservation(t, newID(), facts(1, 10)))
	id := out.Session.ID
	must(t, s.Advance(t.Context(), "acme", id, 0, 4, start))
	for _, step := range [][2]int64{{0, 4}, {4, 4}, {4, 3}, {4, 11}, {5, 6}} {
		wantErr(t, s.Advance(t.Context(), "acme", id, step[0], step[1], start), store.ErrOffset)
	}
	got, err := s.Session(t.Context(), "acme", id)
	if err != nil || got.Offset != 4 || got.State != store.SessionOpen {
		t.Fatalf("session %+v, %v", got, err)
	}
	wantErr(t, s.Advance(t.Context(), "acme", "other", 0, 1, start), store.ErrNotFound)
}

// After a void session the next reservation opens another one, a generation later; the old one stays void, and late
// results for it change nothing.
func voidOpensGeneration(t *testing.T, s store.Store) {
	id := newID()
	old := reserve(t, s, reservation(t, id, facts(1, 10)))
	must(t, s.Advance(t.Context(), "acme", old.Session.ID, 0, 10, start))
	must(t, s.Void(t.Context(), "acme", id, 1, store.VoidDigest))
	must(t, s.Void(t.Context(), "acme", id, 1, store.VoidLost))
	if a := attachment(t, s, "acme", id); a.Void != store.VoidDigest || a.Session != "" || a.State != wire.StateReserved {
		t.Fatalf("void attachment %+v", a)
	}
	wantErr(t, s.Verified(t.Context(), "acme", id, 1, start), store.ErrDigest)
	next := reserve(t, s, reservation(t, id, facts(1, 10)))
	if next.Session == nil || next.Session.ID == old.Session.ID || next.Session.Offset != 0 ||
		next.Attachment.Generation != 2 || next.Attachment.Void != "" {
		t.Fatalf("next generation %+v", next)
	}
	must(t, s.Void(t.Context(), "acme", id, 1, store.VoidLost))
	wantErr(t, s.Verified(t.Context(), "acme", id, 1, start), store.ErrGone)
	wantErr(t, s.Advance(t.Context(), "acme", old.Session.ID, 10, 10, start), store.ErrGone)
	if got, err := s.Session(t.Context(), "acme", old.Session.ID); err != nil || got.State != store.SessionVoid {
		t.Fatalf("old session %+v, %v", got, err)
	}
	fill(t, s, next)
	register(t, s, next.Attachment, receipt.Parent{})
	wantErr(t, s.Void(t.Context(), "acme", id, 2, store.VoidLost), store.ErrState)
}

// At the largest number of sessions the one without an append for the longest time makes room, if that is long enough and
// it is not busy; its attachment is void until reserved again.
func idleSessionsMakeRoom(t *testing.T, s store.Store) {
	const limit = 3
	var held []store.Reserved
	at := func(n int, now time.Time) store.Reservation {
		r := reservation(t, newID(), facts(n, 10))
		r.Now, r.MaxSessions = now, limit
		return r
	}
	for n := range limit {
		held = append(held, reserve(t, s, at(n, start.Add(time.Duration(n)*time.Minute))))
	}
	// The oldest one moved last.
	moved := start.Add(30 * time.Minute)
	must(t, s.Advance(t.Context(), "acme", held[0].Session.ID, 0, 4, moved))
	_, err := s.Reserve(t.Context(), at(10, start.Add(time.Minute+store.IdleSession)))
	wantErr(t, err, store.ErrTooManySessions)
	late := at(11, start.Add(3*time.Minute+store.IdleSession))
	late.Busy = func(id string) bool { return id == held[1].Session.ID }
	out := reserve(t, s, late)
	if out.Expired == nil || out.Expired.ID != held[2].Session.ID || out.Session == nil {
		t.Fatalf("%+v, expired %+v", out, out.Expired)
	}
	if a := attachment(t, s, "acme", held[2].Attachment.ID); a.Void != store.VoidExpired || a.Session != "" || a.State != wire.StateReserved {
		t.Fatalf("its attachment %+v", a)
	}
	wantErr(t, s.Advance(t.Context(), "acme", held[2].Session.ID, 0, 1, start), store.ErrGone)
	late = at(12, moved.Add(time.Second+store.IdleSession))
	if out = reserve(t, s, late); out.Expired == nil || out.Expired.ID != held[1].Session.ID {
		t.Fatalf("second, expired %+v", out.Expired)
	}
	late = at(13, moved.Add(time.Second+store.IdleSession))
	if out = reserve(t, s, late); out.Expired == nil || out.Expired.ID != held[0].Session.ID || out.Expired.Offset != 4 {
		t.Fatalf("third, expired %+v", out.Expired)
	}
	_, err = s.Reserve(t.Context(), at(14, moved.Add(time.Second+store.IdleSession)))
	wantErr(t, err, store.ErrTooManySessions)
	again := reservation(t, held[2].Attachment.ID, facts(2, 10))
	again.Now = moved
	if out = reserve(t, s, again); out.Session == nil || out.Attachment.Generation != 2 || out.Attachment.Void != "" {
		t.Fatalf("reserved again %+v", out)
	}
}

// Verification is recorded once, at the full length of the present generation only.
func verifiedNeedsAllBytes(t *testing.T, s store.Store) {
	id := newID()
	out := reserve(t, s, reservation(t, id, facts(1, 10)))
	must(t, s.Advance(t.Context(), "acme", out.Session.ID, 0, 9, start))
	wantErr(t, s.Verified(t.Context(), "acme", id, 1, start), store.ErrNotVerified)
	wantErr(t, s.Verified(t.Context(), "acme", newID(), 1, start), store.ErrNotFound)
	wantErr(t, s.Verified(t.Context(), "acme", id, 2, start), store.ErrGone)
	must(t, s.Advance(t.Context(), "acme", out.Session.ID, 9, 10, start))
	must(t, s.Verified(t.Context(), "acme", id, 1, start))
	must(t, s.Verified(t.Context(), "acme", id, 1, start))
	got, err := s.Session(t.Context(), "acme", out.Session.ID)
	if err != nil || got.State != store.SessionComplete || got.Offset != 10 {
		t.Fatalf("session %+v, %v", got, err)
	}
	empty := reserve(t, s, reservation(t, newID(), facts(2, 0)))
	fill(t, s, empty)
}

// Only registered attachments are listed, in the order of their registration, page by page.
func listIsRegisteredOnly(t *testing.T, s store.Store) {
	var want []string
	for n := range 5 {
		out := reserve(t, s, reservation(t, newID(), facts(n, 10)))
		if n%2 == 0 {
			fill(t, s, out)
			register(t, s, out.Attachment, receipt.Parent{})
			want = append(want, out.Attachment.ID)
		}
	}
	var got []string
	after := uint64(0)
	for {
		page, err := s.Registered(t.Context(), "acme", after, 2)
		must(t, err)
		if len(page) == 0 {
			break
		}
		for _, a := range page {
			if a.Sequence <= after {
				t.Fatalf("sequence %d after %d", a.Sequence, after)
			}
			after = a.Sequence
			got = append(got, a.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("listed %v, want %v", got, want)
	}
}

// Nothing of one account is found from another, and one ID or content may be in both. Prefixes are no exception.
func accountsAreApart(t *testing.T, s store.Store) {
	id := newID()
	ours := reserve(t, s, reservation(t, id, facts(1, 10)))
	fill(t, s, ours)
	register(t, s, ours.Attachment, receipt.Parent{})
	for _, account := range []string{"acm", "acme-2", "zeta"} {
		_, err := s.Attachment(t.Context(), account, id)
		wantErr(t, err, store.ErrNotFound)
		_, err = s.Session(t.Context(), account, ours.Session.ID)
		wantErr(t, err, store.ErrNotFound)
		wantErr(t, s.Void(t.Context(), account, id, 1, store.VoidLost), store.ErrNotFound)
		list, err := s.Registered(t.Context(), account, 0, 10)
		if err != nil || len(list) != 0 {
			t.Fatalf("account %s lists %v, %v", account, list, err)
		}
		theirs := reservation(t, id, facts(1, 10))
		theirs.By.Account, theirs.Stored = account, true
		out := reserve(t, s, theirs)
		if !out.Created || out.Session == nil || out.Attachment.MediaID == ours.Attachment.MediaID {
			t.Fatalf("account %s got %+v", account, out)
		}
	}
}

// A token is found by its hash within its account only; revoking it keeps it listed, with its first end.
func tokens(t *testing.T, s store.Store) {
	expires := start.Add(time.Hour)
	hash := store.HashToken("secret text")
	token := store.Token{ID: hash.ID(), Account: "acme", Device: "d", Hash: hash, CreatedAt: start, ExpiresAt: &expires}
	must(t, s.CreateToken(t.Context(), token))
	wantErr(t, s.CreateToken(t.Context(), token), store.ErrExists)
	got, err := s.Token(t.Context(), "acme", hash)
	if err != nil || got.Device != "d" || !got.Valid(start) || got.Valid(expires) {
		t.Fatalf("token %+v, %v", got, err)
	}
	_, err = s.Token(t.Context(), "zeta", hash)
	wantErr(t, err, store.ErrNotFound)
	_, err = s.Token(t.Context(), "acme", store.HashToken("another text"))
	wantErr(t, err, store.ErrNotFound)
	for _, at := range []time.Time{start, start.Add(time.Minute)} {
		revoked, err := s.RevokeToken(t.Context(), token.ID, at)
		if err != nil || !revoked.RevokedAt.Equal(start) || revoked.Valid(start) {
			t.Fatalf("revoked %+v, %v", revoked, err)
		}
	}
	_, err = s.RevokeToken(t.Context(), "none", start)
	wantErr(t, err, store.ErrNotFound)
	all, err := s.Tokens(t.Context())
	if err != nil || len(all) != 1 || all[0].RevokedAt == nil {
		t.Fatalf("tokens %+v, %v", all, err)
	}
}

// However many reserve one ID at once, one creates it, and all get one session and one media item.
func concurrentReserve(t *testing.T, s store.Store) {
	const callers = 64
	id := newID()
	out := make([]store.Reserved, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			r := reservation(t, id, facts(1, 10))
			r.By.Device = []string{"tablet-1", "tablet-2", "tablet-3"}[i%3]
			var err error
			if out[i], err = s.Reserve(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	created := 0
	for _, o := range out {
		if o.Created {
			created++
		}
		if o.Session == nil || o.Session.ID != out[0].Session.ID || o.Attachment.MediaID != out[0].Attachment.MediaID {
			t.Fatalf("got %+v and %+v", o, out[0])
		}
	}
	if created != 1 {
		t.Fatalf("%d callers created it", created)
	}
}

// Of several who confirm from one offset, one succeeds.
func concurrentAdvance(t *testing.T, s store.Store) {
	out := reserve(t, s, reservation(t, newID(), facts(1, 100)))
	results := make([]error, 16)
	var group sync.WaitGroup
	for i := range results {
		group.Go(func() { results[i] = s.Advance(t.Context(), "acme", out.Session.ID, 0, int64(i+1), start) })
	}
	group.Wait()
	won := int64(0)
	for i, err := range results {
		switch {
		case err == nil && won == 0:
			won = int64(i + 1)
		case err == nil:
			t.Fatal("two succeeded")
		default:
			wantErr(t, err, store.ErrOffset)
		}
	}
	if got, err := s.Session(t.Context(), "acme", out.Session.ID); err != nil || got.Offset != won {
		t.Fatalf("offset %d, winner %d, %v", got.Offset, won, err)
	}
}

// Exactly the open sessions are visited, over page borders, while visit changes them.
func openSessions(t *testing.T, s store.Store) {
	const sessions = 600
	want := map[string]bool{}
	for n := range sessions {
		r := reservation(t, newID(), facts(n, 10))
		r.MaxSessions = sessions + 1
		out := reserve(t, s, r)
		switch n % 3 {
		case 0:
			fill(t, s, out)
		case 1:
			must(t, s.Void(t.Context(), "acme", out.Attachment.ID, 1, store.VoidLost))
		default:
			want[out.Session.ID] = true
		}
	}
	must(t, s.OpenSessions(t.Context(), func(got store.Session, damage error) error {
		if damage != nil || !want[got.ID] {
			t.Errorf("visited %+v, %v", got, damage)
		}
		delete(want, got.ID)
		return s.Void(t.Context(), got.Account, got.AttachmentID, got.Generation, store.VoidLost)
	}))
	if len(want) > 0 {
		t.Errorf("%d open sessions were not visited", len(want))
	}
	ended := errors.New("ended")
	reserve(t, s, reservation(t, newID(), facts(sessions, 10)))
	wantErr(t, s.OpenSessions(t.Context(), func(store.Session, error) error { return ended }), ended)
}

// All attachments of all accounts or of one are listed in pages, whatever their state.
func attachmentsPages(t *testing.T, s store.Store) {
	total := map[string]int{"": 0}
	for n := range 7 {
		r := reservation(t, newID(), facts(n, 10))
		r.By.Account = []string{"acme", "acme-2"}[n%2]
		reserve(t, s, r)
		total[r.By.Account]++
		total[""]++
	}
	for account, want := range total {
		got, at, id := 0, account, ""
		for {
			page, err := s.Attachments(t.Context(), at, id, account != "", 2)
			must(t, err)
			if len(page) == 0 {
				break
			}
			got += len(page)
			at, id = page[len(page)-1].Account, page[len(page)-1].ID
		}
		if got != want {
			t.Errorf("account %q: %d attachments, want %d", account, got, want)
		}
	}
}
