package intake

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// A source that fails to sync is taken by a copy of what can be read of it and never by moving it, later attempts and
// processes included: the kernel tells of the lost write once, and the next sync of the same blocks would succeed.
func TestSourceThatFailsToSync(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "first")
	failed, broken := 0, false
	fsys := durable.Hooked(func(c durable.Call) error {
		switch {
		case c.Op == durable.OpSync && c.Path == path:
			failed++
			return unix.EIO
		case broken && c.Op == durable.OpCreate:
			return unix.EIO
		}
		return nil
	})
	p := s.start(fsys)
	broken = true // the copy fails as well, and the source stays
	if _, err := p.Adopt(context.Background(), s.request(path, true)); err == nil {
		t.Error("taken although neither source nor copy could be made durable")
	}
	broken = false
	p.stop()
	p = s.start(fsys)
	defer p.stop()
	if _, err := p.Recover(context.Background()); err != nil {
		t.Fatal(err)
	}
	r, err := p.Adopt(context.Background(), s.request(path, true))
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Queue.Get(r.ID)
	if err != nil || e.Manifest.Custody != attachment.CustodyCopy {
		t.Errorf("%+v, %v", e.Manifest, err)
	}
	if got := p.contents(); len(got) != 1 || got[r.ID] != "first" {
		t.Errorf("%q", got)
	}
	if failed != 1 {
		t.Errorf("synced %d times, and the second time cannot be believed", failed)
	}
	if exists(path) {
		t.Error("the source was not released after the copy")
	}
}

// A boot reads the source from the medium again: from then on a sync of it can be believed.
func TestBootRestoresTrust(t *testing.T) {
	s := newSite(t)
	file := s.request(s.write("a.jpg", "first"), true).Identity
	p := s.start(durable.OS())
	defer p.stop()
	ctx := context.Background()
	if err := p.Queue.PutUnsynced(ctx, file, "boot-1"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		boot string
		want bool
	}{{"boot-1", true}, {"", true}, {"boot-2", false}} {
		p.Boot = c.boot
		if _, err := p.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Queue.Unsynced(file); err != nil || got != c.want {
			t.Errorf("boot %q: unsynced %t, %v", c.boot, got, err)
		}
	}
}

// A clone that fails with an I/O error has had the kernel write the source's pages, and has used up the one report of their
// loss: the source is copied from then on, never cloned again and never moved.
func TestCloneThatFailsToRead(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "first")
	clones, broken := 0, false
	p := s.start(durable.Hooked(func(c durable.Call) error {
		switch {
		case c.Op == durable.OpClone:
			clones++
			return unix.EIO
		case broken && c.Op == durable.OpWrite:
			return unix.EIO
		}
		return nil
	}))
	defer p.stop()
	broken = true // the copy fails as well, and the source stays
	if _, err := p.Adopt(context.Background(), s.request(path, false)); err == nil {
		t.Error("taken although it could be neither cloned nor copied")
	}
	broken = false
	r, err := p.Adopt(context.Background(), s.request(path, true))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := p.Queue.Get(r.ID); err != nil || e.Manifest.Custody != attachment.CustodyCopy {
		t.Errorf("%+v, %v", e.Manifest, err)
	}
	if got := p.contents(); len(got) != 1 || got[r.ID] != "first" {
		t.Errorf("%q", got)
	}
	if clones != 1 {
		t.Errorf("%d clones were tried", clones)
	}
	if exists(path) {
		t.Error("the source was not released after the copy")
	}
}
