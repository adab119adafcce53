package watch

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

func sidecarHarness(t *testing.T) *harness {
	root := filepath.Join(t.TempDir(), "capture")
	mkdir(t, root)
	return build(t, Options{Roots: []Root{{Name: "w", Path: root, Recursive: true, Settle: 20 * time.Millisecond, Sidecars: true}}, Rescan: time.Hour})
}

// A path that the taker knows, holds back or has in its hands is offered once more when it asks for that.
func TestReconsider(t *testing.T) {
	h := sidecarHarness(t)
	write(t, h.path("tour/a.jpg.json"), "{}")
	h.start()
	c := h.receive()
	if !c.Sidecar || c.RelPath != "tour/a.jpg.json" {
		t.Fatalf("%+v", c)
	}
	h.Done(c, Disposition{Kind: Stays})
	h.eventually("known", func() bool { return len(h.reasons()) == 0 })
	h.Reconsider("w", "tour/a.jpg.json") // it stays
	c = h.receive()
	h.Done(c, Disposition{Kind: Again, Code: attachment.NotTakenSidecarAlone, Retry: time.Hour})
	h.eventually("held", func() bool { return h.reasons()["tour/a.jpg.json"] == attachment.NotTakenSidecarAlone })
	h.Reconsider("w", "tour/a.jpg.json") // it is held back
	c = h.receive()
	h.Reconsider("w", "tour/a.jpg.json") // it is in the taker's hands, whose answer is old by then
	h.Reconsider("w", "tour/never.json")
	h.Reconsider("w", "gone/never.json")
	h.Reconsider("unknown", "a")
	h.Done(c, Disposition{Kind: Stays})
	c = h.receive()
	h.Done(c, Disposition{Kind: Stays})
	write(t, h.path("b.jpg"), "x")
	if c = h.receive(); c.Sidecar || c.RelPath != "b.jpg" {
		t.Errorf("offered again without being asked: %+v", c)
	}
	h.Done(c, Disposition{Kind: Stays})
}

// More paths than are remembered have everything looked at.
func TestReconsiderTooMany(t *testing.T) {
	h := sidecarHarness(t)
	write(t, h.path("a.jpg.json"), "{}")
	h.start()
	h.Done(h.receive(), Disposition{Kind: Stays})
	h.eventually("known", func() bool { return len(h.reasons()) == 0 })
	tree := h.tree("w")
	tree.mu.Lock()
	for i := range maxReconsider {
		tree.reconsidered[fmt.Sprint("never-", i)] = true
	}
	tree.mu.Unlock()
	h.Reconsider("w", "a.jpg.json")
	if c := h.receive(); c.RelPath != "a.jpg.json" {
		t.Errorf("%+v", c)
	}
}
