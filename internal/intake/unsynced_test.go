package intake

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// A source that fails to sync is taken by a copy of what can be read of it and never by moving it, later attempts included:
// the kernel tells of the lost write once, and the next sync of the same blocks would succeed.
func TestSourceThatFailsToSync(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "first")
	failed, broken := 0, false
	p := s.start(durable.Hooked(func(c durable.Call) error {
		switch {
		case c.Op == durable.OpSync && c.Path == path:
			failed++
			return unix.EIO
		case broken && c.Op == durable.OpCreate:
			return unix.EIO
		}
		return nil
	}))
	defer p.stop()
	broken = true // the copy fails as well, and the source stays
	if _, err := p.Adopt(context.Background(), s.request(path, true)); err == nil {
		t.Error("taken although neither source nor copy could be made durable")
	}
	broken = false
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
