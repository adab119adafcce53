package store

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// spoil replaces a row by bytes that are no JSON.
func spoil(t *testing.T, e *Embedded, bucket, account, id string) {
	t.Helper()
	err := e.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.Bucket(bucket).Put(key(account, id), []byte("{damaged"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func testReservation(id string) Reservation {
	return Reservation{
		By: Identity{Account: "acme", Device: "d"}, ID: id, Room: 1 << 20, MaxSessions: 10, Now: time.Unix(1, 0), NewSession: "s-" + id, NewMedia: "m-" + id,
		Facts: wire.Reserve{Length: 3, SHA256: "digest of " + id, Role: wire.RoleOriginal},
	}
}

// A damaged row harms its own attachment or token and nothing else: it is named in lists, its session is replaced by the
// next reservation, and everything beside it works.
func TestDamageIsLocal(t *testing.T) {
	e, err := OpenEmbedded(filepath.Join(t.TempDir(), "server.db"), durable.OS(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if findings, err := e.db.Check(t.Context()); err != nil || len(findings) != 0 {
			t.Errorf("check: %v, %v", findings, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	reserve := func(r Reservation) (Reserved, error) { return e.Reserve(ctx, r) }
	for _, id := range []string{"a", "b", "c"} {
		if _, err := reserve(testReservation(id)); err != nil {
			t.Fatal(err)
		}
	}

	spoil(t, e, bucketAttachments, "acme", "a")
	if _, err := e.Attachment(ctx, "acme", "a"); !errors.Is(err, ErrDamaged) {
		t.Errorf("damaged attachment: %v", err)
	}
	if _, err := reserve(testReservation("a")); !errors.Is(err, ErrDamaged) {
		t.Errorf("reserve over a damaged attachment: %v", err)
	}
	if all, err := e.Attachments(ctx, "acme", "", true, 10); err != nil || len(all) != 3 || all[0].ID != "a" || all[0].State != "" {
		t.Errorf("list: %+v, %v", all, err)
	}

	spoil(t, e, bucketSessions, "acme", "s-b")
	damaged := 0
	err = e.OpenSessions(ctx, func(s Session, damage error) error {
		if damage != nil {
			damaged++
			if s.ID != "s-b" || !errors.Is(damage, ErrDamaged) {
				t.Errorf("damage %v at %+v", damage, s)
			}
		}
		return nil
	})
	if err != nil || damaged != 1 {
		t.Errorf("%d damaged sessions, %v", damaged, err)
	}
	again := testReservation("b")
	again.NewSession = "s-b2"
	out, err := reserve(again)
	if err != nil || out.Session == nil || out.Session.ID != "s-b2" || out.Attachment.Generation != 2 {
		t.Errorf("reserve over a damaged session: %+v, %v", out, err)
	}
	if s, err := e.Session(ctx, "acme", "s-b"); err != nil || s.State != SessionVoid {
		t.Errorf("damaged session became %+v, %v", s, err)
	}

	for _, step := range []error{
		e.Advance(ctx, "acme", "s-c", 0, 3, time.Time{}), e.Verified(ctx, "acme", "c", 1, time.Time{}),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if _, _, err := e.Register(ctx, Registration{By: Identity{Account: "acme", Device: "d"}, ID: "c", Parent: receipt.Parent{}}); err != nil {
		t.Fatal(err)
	}
	spoil(t, e, bucketAttachments, "acme", "c")
	if all, err := e.Registered(ctx, "acme", 0, 10); err != nil || len(all) != 1 || all[0].ID != "c" || all[0].Receipt != nil {
		t.Errorf("registered: %+v, %v", all, err)
	}

	if all, err := e.Registered(ctx, "acme", 0, 10); err != nil || all[0].Sequence != 1 {
		t.Errorf("a damaged row lost its place: %+v, %v", all, err)
	}
	spoil(t, e, bucketRegistered, "acme", sequenceKey(1))
	if all, err := e.Registered(ctx, "acme", 0, 10); err != nil || len(all) != 1 || all[0].Receipt != nil || all[0].Sequence != 1 {
		t.Errorf("a damaged index row lost its place: %+v, %v", all, err)
	}

	full := testReservation("d")
	full.MaxSessions, full.NewSession, full.Now = 2, "s-d", time.Now()
	spoil(t, e, bucketSessions, "acme", "s-b2")
	if out, err := reserve(full); err != nil || out.Expired == nil || out.Expired.ID != "s-b2" {
		t.Errorf("a damaged session keeps its place: %+v, %v", out, err)
	}

	spoil(t, e, bucketTokens, "acme", string(HashToken("x")))
	all, err := e.Tokens(ctx)
	if err != nil || len(all) != 1 || all[0].ID != HashToken("x").ID() || all[0].Account != "acme" {
		t.Errorf("tokens: %+v, %v", all, err)
	}
	if _, err := e.Token(ctx, "acme", HashToken("x")); !errors.Is(err, ErrDamaged) {
		t.Errorf("damaged token: %v", err)
	}
}
