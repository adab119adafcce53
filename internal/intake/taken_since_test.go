package intake

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// Wherever a copy was broken off, when the source was taken once more meanwhile and is gone at the next start, there is one
// attachment of it to deliver and not two. Half a copy is kept for a person and never delivered.
func TestCopyTakenSince(t *testing.T) {
	t.Run("removed by somebody", func(t *testing.T) { copyTakenSince(t, false) })
	t.Run("moved by the second adoption", func(t *testing.T) { copyTakenSince(t, true) })
}

func copyTakenSince(t *testing.T, move bool) {
	gone := errors.New("process died")
	for n, reached := 0, true; reached; n++ {
		s := newSite(t)
		path := s.write("a.jpg", sweepContent)
		if _, err := spool.Open(durable.OS(), s.dir); err != nil {
			t.Fatal(err)
		}
		count := 0
		p := s.start(durable.Hooked(func(durable.Call) error {
			count++
			if count > n {
				return gone
			}
			return nil
		}))
		ctx, cancel := context.WithCancel(context.Background())
		_, err := p.Adopt(ctx, s.request(path, false))
		cancel()
		reached = err != nil
		p.stop()

		p = s.start(durable.OS()) // what is left of the first copy is not looked at yet, as on a card that comes late
		if _, err := p.Adopt(context.Background(), s.request(path, move)); err != nil {
			t.Fatal(err)
		}
		p.stop()
		if err := os.Remove(path); err != nil && !(move && os.IsNotExist(err)) {
			t.Fatal(err)
		}
		p = s.restart()
		whole := 0
		for id, content := range p.contents() {
			e, err := p.Queue.Get(id)
			if err != nil {
				t.Fatal(err)
			}
			if content == sweepContent {
				whole++
			} else if e.Manifest.Problem == nil || e.Manifest.Problem.Code != attachment.NeedsDamagedEarly {
				t.Errorf("died before operation %d: %q is to be delivered as %+v", n, content, e.Manifest)
			}
		}
		if whole != 1 {
			t.Errorf("died before operation %d: %d whole attachments", n, whole)
		}
		p.stop()
	}
}
