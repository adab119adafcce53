package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
)

// A queue that has reached its permitted size refuses each way of custody by that name, and gives the source back: room on the
// volume would not help.
func TestQueueReachesItsSize(t *testing.T) {
	for _, move := range []bool{true, false} {
		s := newSite(t)
		sp, err := spool.Open(durable.OS(), s.dir)
		if err != nil {
			t.Fatal(err)
		}
		st, err := store.Open(filepath.Join(s.dir, "queue.db"), queue.Schema(), store.Options{MaxSize: 256 << 10})
		if err != nil {
			t.Fatal(err)
		}
		q := queue.New(st, queue.Options{})
		p := &process{Intake: New(Options{FS: durable.OS(), Spool: sp, Queue: q, Logger: slog.New(slog.DiscardHandler)}), s: s, st: st}
		taken := 0
		for err == nil && taken < 1000 {
			path := s.write(fmt.Sprintf("%d.jpg", taken), "evidence")
			if _, err = p.Adopt(context.Background(), s.request(path, move)); err == nil {
				taken++
			} else if !exists(path) {
				t.Errorf("move %v: the source is gone", move)
			}
		}
		var nt *NotTakenError
		if !errors.As(err, &nt) || nt.Code != attachment.NotTakenQueueFull || taken < 10 {
			t.Errorf("move %v: %d taken, then %v", move, taken, err)
		}
		if got := p.contents(); len(got) != min(taken, 100) {
			t.Errorf("move %v: %d payloads of %d", move, len(got), taken)
		}
		p.stop()
	}
}
