package queue

import (
	"context"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// An attachment says which earlier one of its watch and parent has the same bytes: the first that stands for them. A damaged
// one does not, nor what a program submitted, nor another parent's. A record restored from what travels says the same.
func TestRepeats(t *testing.T) {
	f := open(t, t.TempDir()+"/queue.db")
	ctx := context.Background()
	card := func(m *attachment.Manifest) { m.Source.Watch = "card" }
	repeats := func(id, want attachment.ID) {
		t.Helper()
		e, err := f.Get(id)
		f.do("get", err)
		if e.Manifest.Repeats != want {
			t.Errorf("repeats %q, want %q", e.Manifest.Repeats, want)
		}
	}
	repeats(f.adopt("p", "same"), "") // submitted
	first := f.adopt("p", "same", card)
	second := f.adopt("p", "same", card)
	repeats(first, "")
	repeats(second, first)
	repeats(f.adopt("p2", "same", card), "")
	repeats(f.adopt("p", "size", card), "")
	f.do("attention", f.RaiseAttention(ctx, first, Failure{Code: attachment.NeedsPayloadChanged}))
	third := f.adopt("p", "same", card)
	repeats(third, second)
	f.mustCheck()

	e, err := f.Get(third)
	f.do("get", err)
	segments, err := f.Segments(third)
	f.do("segments", err)
	tr := &attachment.Travelling{Manifest: *e.Manifest.Clone(), Segments: segments}
	tr.Manifest.State, tr.Manifest.Repeats, tr.Manifest.Seq = attachment.Captured, "", 0
	f = corrupt(t, f, func(tx *bolt.Tx) error { return flip(tx, bManifests, []byte(third)) })
	f.do("restore", f.Restore(ctx, tr, nil))
	repeats(third, second)
	f.mustCheck()
}

// An attachment that is bound to another parent is found there by its bytes, and no longer where it was.
func TestContentsFollowTheParent(t *testing.T) {
	f := newFixture(t)
	id := f.adopt("p", "bytes", func(m *attachment.Manifest) { m.Source.Watch = "card" })
	e, err := f.Get(id)
	f.do("get", err)
	moved := e.Manifest.Clone()
	moved.Parent.LocalID = attachment.NameOf("q")
	f.do("reindex", f.st.Update(context.Background(), func(tx *store.Tx) error { return reindexContents(tx, e.Manifest, moved) }))
	for parent, want := range map[string]int{"p": 0, "q": 1} {
		_, found, err := f.Alike(Sighting{Watch: "card", Identity: attachment.SourceIdentity{Size: moved.Length}}, parent, moved.SHA256)
		if err != nil || len(found) != want {
			t.Errorf("%s: %d found, want %d, %v", parent, len(found), want, err)
		}
	}
	f.do("reindex", f.Reindex(context.Background())) // the manifest still says p
}
