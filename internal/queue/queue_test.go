package queue

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/store"
)

// fixture is a queue in a temporary file. Its full check runs when the test ends.
type fixture struct {
	*Queue
	t    *testing.T
	path string
	st   *store.Store
}

func open(t *testing.T, path string) *fixture {
	t.Helper()
	st, err := store.Open(path, Schema(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{Queue: New(st, Options{}), t: t, path: path, st: st}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := open(t, filepath.Join(t.TempDir(), "queue.db"))
	t.Cleanup(func() {
		f.mustCheck()
		if err := f.st.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) mustCheck() {
	f.t.Helper()
	findings, err := f.Check(context.Background())
	if err != nil {
		f.t.Errorf("check: %v", err)
	}
	for _, x := range findings {
		f.t.Errorf("check: %s %s", x.ID, x.Detail)
	}
}

// reopen is a restart: the process is gone, the file stays.
func (f *fixture) reopen() {
	f.t.Helper()
	if err := f.st.Close(); err != nil {
		f.t.Fatal(err)
	}
	g := open(f.t, f.path)
	f.Queue, f.st = g.Queue, g.st
	if err := f.Recover(context.Background()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) adopt(parent, name string, edit ...func(*attachment.Manifest)) attachment.ID {
	f.t.Helper()
	id, err := attachment.NewID()
	if err != nil {
		f.t.Fatal(err)
	}
	h := attachment.NewHasher()
	if _, err := h.Write([]byte(name)); err != nil {
		f.t.Fatal(err)
	}
	sum := h.Sum()
	m := attachment.Manifest{
		Version: 1, ID: id, Filename: attachment.NameOf(name), MediaType: "image/jpeg", Length: sum.Length,
		HashAlgorithm: attachment.HashAlgorithm, SHA256: sum.SHA256, AdoptedAt: time.Now(), Role: attachment.RoleOriginal,
		Custody: attachment.CustodyMove, Structure: attachment.StructureUnchecked,
	}
	if parent != "" {
		m.Parent.LocalID = attachment.NameOf(parent)
	}
	for _, e := range edit {
		e(&m)
	}
	if m.Length != sum.Length {
		sum.Segments = make([]attachment.Digest, attachment.SegmentCount(m.Length))
	}
	if err := f.Adopt(context.Background(), Adoption{Manifest: m, Segments: sum.Segments}); err != nil {
		f.t.Fatal(err)
	}
	return id
}

func (f *fixture) state(id attachment.ID) attachment.State {
	f.t.Helper()
	e, err := f.Get(id)
	if err != nil {
		f.t.Fatal(err)
	}
	return e.Manifest.State
}

func (f *fixture) claim() *Claim {
	f.t.Helper()
	c, _, err := f.ClaimDue(context.Background(), "w")
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *fixture) do(what string, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("%s: %v", what, err)
	}
}

var session = attachment.Session{ID: "s1", URL: "/v1/uploads/s1", Generation: 1}

func (f *fixture) receiptOf(id attachment.ID) receipt.Receipt {
	e, err := f.Get(id)
	f.do("get", err)
	return receipt.Receipt{
		AttachmentID: string(id), MediaID: "m1", Length: e.Manifest.Length, SHA256: e.Manifest.SHA256.String(),
		Grade: receipt.RegisteredDurable, RegisteredAt: time.Now(),
	}
}

// deliver takes a claimed attachment through the whole life.
func (f *fixture) deliver(c *Claim) {
	f.t.Helper()
	ctx, id := context.Background(), c.Manifest.ID
	f.do("session", f.SessionOpened(ctx, id, session, "fieldgw", "m1", 0))
	f.do("offset", f.CommitOffset(ctx, id, "s1", c.Manifest.Length))
	f.do("verified", f.Verified(ctx, id, "m1"))
	f.do("registered", f.Registered(ctx, f.receiptOf(id)))
}

// An attachment goes from adoption to delivered, and is never shown as delivered before its receipt is recorded.
func TestLifeOfAnAttachment(t *testing.T) {
	f := newFixture(t)
	id := f.adopt("insp-7", "a.jpg")
	ctx := context.Background()
	c := f.claim()
	if c == nil || c.Manifest.ID != id || len(c.Segments) != 1 {
		t.Fatalf("claim: %+v", c)
	}
	steps := []func() error{
		func() error { return f.SessionOpened(ctx, id, session, "fieldgw", "m1", 0) },
		func() error { return f.CommitOffset(ctx, id, "s1", c.Manifest.Length) },
		func() error { return f.Verified(ctx, id, "m1") },
		func() error { return f.Registered(ctx, f.receiptOf(id)) },
	}
	for i, step := range steps {
		e, err := f.Get(id)
		f.do("get", err)
		if e.Manifest.Condition() == attachment.ShownDelivered {
			t.Fatalf("delivered before step %d", i)
		}
		f.do(fmt.Sprint("step ", i), step())
		f.mustCheck()
	}
	e, err := f.Get(id)
	f.do("get", err)
	if e.Manifest.Condition() != attachment.ShownDelivered || e.Manifest.Delivery.Attempts != 1 || e.Claimed {
		t.Errorf("at the end: %+v", e)
	}
	counts, err := f.Counts()
	if err != nil || counts[attachment.ShownDelivered] != (Count{1, 5}) || len(counts) != 1 {
		t.Errorf("counts %v, %v", counts, err)
	}
	if r, err := f.Receipt(id); err != nil || r == nil || r.MediaID != "m1" {
		t.Errorf("receipt %v, %v", r, err)
	}
	rows, err := f.History(id, 100)
	if err != nil || len(rows) != 5 {
		t.Errorf("journal has %d rows, %v", len(rows), err)
	}
}

// A receipt of a grade that is not delivery delivers nothing, whatever the caller believes: the attachment is sent, is not tried
// again by itself, and a person may try it again or accept what may be accepted.
func TestLowerGradeIsNotDelivered(t *testing.T) {
	f := newFixture(t)
	ctx := context.Background()
	id := f.adopt("", "a.jpg")
	f.claim()
	f.do("verified", f.Verified(ctx, id, "m"))
	r := f.receiptOf(id)
	registered := func(r receipt.Receipt) error { return f.Registered(ctx, r) }
	sent := func(r receipt.Receipt) error { return f.Sent(ctx, r) }
	accepted := func(r receipt.Receipt) error { return f.Accepted(ctx, r, "a setting") }
	for grade, refused := range map[receipt.Grade][]func(receipt.Receipt) error{
		receipt.LengthOnly: {registered, accepted}, receipt.VerifiedDigest: {registered},
		receipt.Registered: {sent, accepted}, receipt.RegisteredDurable: {sent, accepted},
	} {
		r.Grade = grade
		for i, record := range refused {
			if err := record(r); !errors.Is(err, receipt.ErrMismatch) {
				t.Errorf("%s, %d: got %v", grade, i, err)
			}
		}
	}
	if s := f.state(id); s != attachment.Uploaded {
		t.Errorf("state %s", s)
	}
	r.Grade = receipt.VerifiedDigest
	f.do("sent", f.Sent(ctx, r))
	e, err := f.Get(id)
	if err != nil || e.Manifest.Condition() != attachment.ShownSent || e.Claimed || f.claim() != nil {
		t.Errorf("sent: %+v, %v", e, err)
	}
	if at, err := f.LastDelivery(); err != nil || !at.IsZero() {
		t.Errorf("delivered at %s, %v", at, err)
	}
	f.mustCheck()
	f.do("retry", f.Retry(ctx, id, "uid 7", ""))
	if c := f.claim(); c == nil || !c.Manifest.Delivery.Verified || c.Manifest.Condition() != attachment.ShownUploaded {
		t.Errorf("after a retry: %+v", c)
	}
	f.do("sent again", f.Sent(ctx, r))
	f.do("accepted", f.Accepted(ctx, r, "a setting"))
	if e, err := f.Get(id); err != nil || e.Manifest.Condition() != attachment.ShownDelivered {
		t.Errorf("accepted: %+v, %v", e, err)
	}
	f.mustCheck()
}

// After a restart an interrupted upload is ready again with its session and offset, and no claim stands.
func TestRestartKeepsSessionAndOffset(t *testing.T) {
	f := newFixture(t)
	id := f.adopt("p", "a-long-name.jpg")
	f.claim()
	ctx := context.Background()
	f.do("session", f.SessionOpened(ctx, id, session, "fieldgw", "m1", 0))
	f.do("offset", f.CommitOffset(ctx, id, "s1", 7))
	if c := f.claim(); c != nil {
		t.Fatalf("claimed twice: %s", c.Manifest.ID)
	}
	f.reopen()
	c := f.claim()
	if c == nil || c.Confirmed != 7 || c.Manifest.Delivery.Session != session || c.Manifest.State != attachment.Ready {
		t.Fatalf("after restart: %+v", c)
	}
	f.deliver(c)
}

// Offsets of another session, backwards, or beyond the payload are refused.
func TestCommitOffsetGuards(t *testing.T) {
	f := newFixture(t)
	id := f.adopt("", "0123456789")
	f.claim()
	ctx := context.Background()
	if err := f.CommitOffset(ctx, id, "", 1); !errors.Is(err, ErrStaleSession) {
		t.Errorf("without session: %v", err)
	}
	f.do("session", f.SessionOpened(ctx, id, session, "d", "m", 0))
	f.do("offset", f.CommitOffset(ctx, id, "s1", 5))
	for offset, want := range map[int64]error{4: ErrOffset, 11: ErrOffset, 10: nil} {
		if err := f.CommitOffset(ctx, id, "s1", offset); !errors.Is(err, want) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	if err := f.CommitOffset(ctx, id, "s0", 10); !errors.Is(err, ErrStaleSession) {
		t.Errorf("stale session: %v", err)
	}
	f.do("lost", f.Lost(ctx, id, "", "gone"))
	e, err := f.Get(id)
	if err != nil || e.Confirmed != 0 || e.Manifest.Delivery.Session.ID != "" || e.Manifest.State != attachment.Ready {
		t.Errorf("after loss: %+v, %v", e, err)
	}
}

// Priority goes first, then capture order; a failed item waits its delay and lets the others pass; a paused one is not
// offered; attention frees the lane.
func TestDueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		first, second := f.adopt("p", "1"), f.adopt("p", "2")
		urgent := f.adopt("p", "3", func(m *attachment.Manifest) { m.Priority = 5 })
		paused, refused := f.adopt("p", "4"), f.adopt("p", "5")
		ctx := context.Background()
		if changed, err := f.Pause(ctx, paused, "uid 7", "wait"); err != nil || !changed {
			t.Fatal(changed, err)
		}
		if changed, err := f.Pause(ctx, paused, "uid 7", "wait"); err != nil || changed {
			t.Fatal("paused twice", changed, err)
		}
		for _, want := range []attachment.ID{urgent, first} {
			if c := f.claim(); c.Manifest.ID != want {
				t.Fatalf("got %s, want %s", c.Manifest.Filename.Text, want)
			}
		}
		var asked []int
		f.do("fail", f.Failed(ctx, first, Failure{Code: attachment.HoldServerError, Message: "500", Status: 500}, func(n int) time.Duration {
			asked = append(asked, n)
			return time.Minute
		}))
		if len(asked) != 1 || asked[0] != 1 {
			t.Errorf("delay asked with %v", asked)
		}
		if c := f.claim(); c.Manifest.ID != second {
			t.Fatalf("got %s", c.Manifest.Filename.Text)
		}
		if c := f.claim(); c.Manifest.ID != refused {
			t.Fatalf("got %s", c.Manifest.Filename.Text)
		}
		f.do("attention", f.RaiseAttention(ctx, refused, Failure{Code: attachment.NeedsSizeLimit, Message: "too big"}))
		c, next, err := f.ClaimDue(ctx, "w")
		if c != nil || err != nil || time.Until(next) > time.Minute || !next.After(time.Now()) {
			t.Fatalf("claim %v, next %s, %v", c, next, err)
		}
		<-time.After(time.Until(next))
		if c := f.claim(); c == nil || c.Manifest.ID != first || c.Manifest.Delivery.Failures != 1 {
			t.Fatalf("after the wait: %+v", c)
		}
		if _, err := f.Resume(ctx, paused, "uid 7", ""); err != nil {
			t.Fatal(err)
		}
		if c := f.claim(); c == nil || c.Manifest.ID != paused {
			t.Fatal("resumed item is not offered")
		}
		f.do("retry", f.Retry(ctx, refused, "uid 7", "limit raised"))
		if c := f.claim(); c == nil || c.Manifest.ID != refused || c.Manifest.Problem != nil {
			t.Fatalf("retried item: %+v", c)
		}
		if err := f.Retry(ctx, refused, "", ""); err != nil {
			t.Errorf("retry of a ready item: %v", err)
		}
	})
}

// A wall clock set back does not stretch a wait, neither across a restart nor while running.
func TestClockSetBack(t *testing.T) {
	f := newFixture(t)
	id := f.adopt("", "x")
	f.claim()
	ctx := context.Background()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	f.now = func() time.Time { return now }
	f.do("fail", f.Failed(ctx, id, Failure{Code: attachment.HoldServerError}, func(int) time.Duration { return time.Minute }))
	now = time.Unix(3600, 0)
	f.do("clamp", f.ClampWaits(ctx))
	if c := f.claim(); c != nil {
		t.Fatal("the wait was forgotten")
	}
	now = now.Add(time.Minute)
	if c := f.claim(); c == nil {
		t.Fatal("still waits for 2026")
	}
}

// Pausing stops the worker that has the item; the pause itself survives.
func TestPauseInterruptsWorker(t *testing.T) {
	f := newFixture(t)
	id := f.adopt("", "x")
	c := f.claim()
	ctx := context.Background()
	f.do("session", f.SessionOpened(ctx, id, session, "d", "m", 0))
	if _, err := f.Pause(ctx, id, "uid 1", "r"); err != nil {
		t.Fatal(err)
	}
	<-c.Context().Done()
	if !errors.Is(context.Cause(c.Context()), ErrPaused) {
		t.Errorf("cause %v", context.Cause(c.Context()))
	}
	f.do("interrupted", f.Interrupted(ctx, id, attachment.HoldPaused, ""))
	f.reopen()
	if c := f.claim(); c != nil {
		t.Error("a paused item was offered after a restart")
	}
	page, _, err := f.List(Query{Condition: attachment.ShownPaused, Limit: 10})
	if err != nil || len(page) != 1 || page[0].ID != id {
		t.Errorf("%v %v", page, err)
	}
}

// A submission's files are committed together; repeating it, or adopting an ID again, changes nothing.
func TestSubmissionIsOneTransaction(t *testing.T) {
	f := newFixture(t)
	ctx := context.Background()
	a, b := f.adopt("p", "one"), f.adopt("p", "two")
	e, err := f.Get(a)
	f.do("get", err)
	fresh := *e.Manifest
	if fresh.ID, err = attachment.NewID(); err != nil {
		t.Fatal(err)
	}
	segs, err := f.Segments(a)
	f.do("segments", err)
	bad := fresh
	bad.ID = "not-an-id"
	err = f.Submit(ctx, "sub-1", []Adoption{{Manifest: fresh, Segments: segs}, {Manifest: bad, Segments: segs}})
	if !errors.Is(err, attachment.ErrBadManifest) {
		t.Fatalf("got %v", err)
	}
	if _, err := f.Get(fresh.ID); !errors.Is(err, ErrNotFound) {
		t.Fatalf("half a submission was committed: %v", err)
	}
	for range 2 {
		f.do("submit", f.Submit(ctx, "sub-1", []Adoption{{Manifest: fresh, Segments: segs}}))
	}
	ids, found, err := f.Submission("sub-1")
	if err != nil || !found || len(ids) != 1 || ids[0] != fresh.ID {
		t.Errorf("%v %v %v", ids, found, err)
	}
	p, found, err := f.ParentOf("p")
	if err != nil || !found || p.Conditions[attachment.ShownWaiting].Items != 3 {
		t.Errorf("%+v %v %v", p, found, err)
	}
	got, err := f.Resolve(string(b[len(b)-8:]), 5)
	if err != nil || len(got) != 1 || got[0] != b {
		t.Errorf("resolve by tail: %v %v", got, err)
	}
	if got, err := f.Resolve(string(b), 5); err != nil || len(got) != 1 || got[0] != b {
		t.Errorf("resolve whole: %v %v", got, err)
	}
}

// A source that stays in place is recognized after a restart; one that was moved, or removed later, is not.
func TestLedger(t *testing.T) {
	f := newFixture(t)
	ctx := context.Background()
	src := attachment.Source{Watch: "cam", RelPath: attachment.NameOf("a/\xff.jpg"), Identity: attachment.SourceIdentity{Inode: 5, Size: 1, MTimeNS: 9}}
	kept := f.adopt("a", "x", func(m *attachment.Manifest) { m.Custody, m.Source = attachment.CustodyCopy, src })
	f.reopen()
	other := SightingOf(src)
	other.Identity.Device, other.Identity.Inode = 77, 78
	if known, found, err := f.Known(other); err != nil || !found || known != (Known{ID: kept, Inode: 5}) {
		t.Errorf("%+v %v %v", known, found, err)
	}
	other.Medium = "uuid:other"
	if _, found, err := f.Known(other); err != nil || found {
		t.Errorf("known on another card: %v", err)
	}
	f.do("released", f.SourceReleased(ctx, kept))
	if _, found, err := f.Known(SightingOf(src)); err != nil || found {
		t.Errorf("a released source is still known: %v", err)
	}
	f.adopt("a", "y", func(m *attachment.Manifest) { m.Source = src })
	if _, found, err := f.Known(SightingOf(src)); err != nil || found {
		t.Errorf("a moved source is known: %v", err)
	}
	pending := f.adopt("a", "z", func(m *attachment.Manifest) {
		m.Custody, m.Source = attachment.CustodyCopy, src
		m.Source.ReleasePending = true
	})
	if page, err := f.Unreleased("", 10); err != nil || len(page) != 1 || page[0].ID != pending {
		t.Errorf("%v %v", page, err)
	}
	f.do("kept", f.SourceKept(ctx, pending, "no lease"))
	if page, err := f.Unreleased("", 10); err != nil || len(page) != 0 {
		t.Errorf("%v %v", page, err)
	}
}

// Listing pages through everything once, in capture order, filtered or not.
func TestListPages(t *testing.T) {
	f := newFixture(t)
	var want []attachment.ID
	for i := range 23 {
		want = append(want, f.adopt([]string{"p", "p\x01"}[i%2], fmt.Sprint(i)))
	}
	for _, query := range []Query{{}, {Condition: attachment.ShownWaiting}, {Parent: "p"}} {
		var got []attachment.ID
		query.Limit = 4
		for {
			page, next, err := f.List(query)
			f.do("list", err)
			for _, e := range page {
				got = append(got, e.ID)
			}
			if query.Cursor = next; next == "" {
				break
			}
		}
		expect := len(want)
		if query.Parent != "" {
			expect = 12
		}
		if len(got) != expect || got[0] != want[0] || (query.Parent == "" && got[22] != want[22]) {
			t.Errorf("%+v: %d entries", query, len(got))
		}
	}
	if _, _, err := f.List(Query{Cursor: "zz"}); !errors.Is(err, ErrBadCursor) {
		t.Errorf("bad cursor: %v", err)
	}
	parents, next, err := f.Parents("", 1)
	if err != nil || len(parents) != 1 || next == "" {
		t.Fatalf("%v %q %v", parents, next, err)
	}
	if parents, next, err = f.Parents(next, 10); err != nil || len(parents) != 1 || next != "" {
		t.Errorf("%v %q %v", parents, next, err)
	}
}

// A standing decision survives a restart, is journaled once, and can be lifted once.
func TestDecision(t *testing.T) {
	f := newFixture(t)
	ctx := context.Background()
	var seen []attachment.Event
	cancel := f.Subscribe(func(t Transition) { seen = append(seen, t.Event) })
	d := Decision{Name: DecisionPauseChannel, By: "uid 0", At: time.Now()}
	f.do("put", f.PutDecision(ctx, d))
	f.do("put", f.PutDecision(ctx, d))
	cancel()
	f.reopen()
	if _, found, err := f.StandingDecision(d.Name); err != nil || !found {
		t.Fatal(found, err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := f.LiftDecision(ctx, d.Name, "uid 0", ""); err != nil || changed != want {
			t.Error(changed, err)
		}
	}
	if len(seen) != 1 || seen[0] != EventChannelPaused {
		t.Errorf("published %v", seen)
	}
	f.do("channel", f.PutChannel(ctx, "uplink", map[string]int{"failures": 3}))
	var state map[string]int
	if found, err := f.Channel("uplink", &state); err != nil || !found || state["failures"] != 3 {
		t.Error(found, err, state)
	}
}

// The stale-checkpoint interval stays within its limits.
func TestStaleAfter(t *testing.T) {
	for _, c := range []struct {
		length int64
		rate   float64
		want   time.Duration
	}{{1, 0, staleMax}, {1, 1e6, staleMin}, {300e6, 1e6, 5 * time.Minute}, {1 << 40, 1, staleMax}} {
		if got := StaleAfter(c.length, c.rate); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// A bound attachment that is recorded anew, as a rebuild does, has its sidecar known where that lies.
func TestAdoptedBoundKnowsItsSidecar(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "queue.db"))
	id := f.adopt("INS-7", "a.jpg", func(m *attachment.Manifest) {
		m.Source.Watch, m.Source.RelPath = "card", attachment.NameOf("a.jpg")
		m.Custody = attachment.CustodyCopy
		m.Binding = attachment.Binding{Rule: attachment.BindSidecar, Wait: time.Minute, Sidecar: &attachment.Sidecar{
			Path: attachment.NameOf("/card/a.jpg.json"), RelPath: attachment.NameOf("a.jpg.json"),
		}}
	})
	if got, _, known, err := f.SidecarAt("card", "a.jpg.json"); err != nil || !known || got != id {
		t.Errorf("%s, %t, %v", got, known, err)
	}
}
