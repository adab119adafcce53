package uplink_test

import (
	"flag"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

var (
	discard = slog.New(slog.DiscardHandler)
	seeds   = flag.Int("uplink.seeds", 60, "how many random links are tried")
	seed    = flag.Uint64("uplink.seed", 0, "try this one random link only")
)

// window watches from the server's side how far the device sends beyond what it has recorded.
type window struct {
	t        *testing.T
	mu       sync.Mutex
	recorded int64
	received int64 // bytes, each time that it arrived
}

func (w *window) arrived(_ string, from, to int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.received += to - from
	if to > w.recorded+chunk {
		w.t.Errorf("byte %d arrived, recorded are %d: more than a chunk of %d is under way", to, w.recorded, chunk)
	}
}

func (w *window) committed(offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorded = offset
}

// Whatever a link does, with the process killed and started in between: never more than one chunk is sent beyond the last
// recorded offset, no byte is confirmed twice or stored twice, each cut costs a chunk at most, and the file arrives.
func TestRandomLinks(t *testing.T) {
	first := rand.Uint64() >> 16
	if *seed != 0 {
		first, *seeds = *seed, 1
	}
	for i := range uint64(*seeds) {
		s := first + i
		ok := t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomLink(t, s) })
		})
		if !ok {
			t.Fatalf("again: go test ./internal/uplink -run TestRandomLinks -uplink.seed=%d", s)
		}
	}
}

// randomTalk is how a server may confirm while an append lasts.
func randomTalk(rnd *rand.Rand) uplinktest.Interim {
	every := 1 + rnd.Int64N(2*chunk)
	return []uplinktest.Interim{
		nil,
		uplinktest.Truly,
		uplinktest.Truly,
		uplinktest.InSteps(every),
		func(stored int64) []int64 { return []int64{stored, stored / 2, stored} },
		func(stored int64) []int64 { return []int64{stored + 1<<40, stored} },
	}[rnd.IntN(6)]
}

func randomLink(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	size := 1 + rnd.IntN(12*chunk)
	rig := uplinktest.Start(t)
	if rnd.IntN(3) > 0 {
		rig.Server.Offer(wire.DialectTus, wire.DialectRUFH)
		rig.Server.SetInterim(randomTalk(rnd))
	}
	d := newDelivery(t, rig, uplinktest.Content(seed, size))
	w := &window{t: t}
	rig.Server.OnReceived(w.arrived)
	d.rec.OnCommit(w.committed)
	cuts := 0
	rig.Network.Plan(func(int) uplinktest.Link {
		link := uplinktest.Good()
		if cuts == 60 {
			return link // it must end some time
		}
		cuts++
		switch rnd.IntN(8) {
		case 0: // good
			return link
		case 1, 2: // within a header or a small answer
			link.Up = rnd.Int64N(600)
		case 3:
			link.Down = rnd.Int64N(600)
		case 4: // at a boundary of the body
			link.Up = 700 + int64(rnd.IntN(3))*chunk + rnd.Int64N(3) - 1
		default:
			link.Up = rnd.Int64N(3 * chunk)
		}
		link.Stall = rnd.IntN(6) == 0
		return link
	})
	for run := 0; ; run++ {
		err := d.deliver(t.Context(), t)
		if err == nil {
			break
		}
		if class := remote.ClassOf(err); class != remote.ItemTransient && class != remote.ChannelTransient {
			t.Fatalf("class %s: %v", class, err)
		}
		if run == 200 {
			t.Fatalf("does not arrive: %v", err)
		}
	}
	d.mustBeDelivered(t)
	seen := d.rec.Seen()
	if w.received != int64(size) {
		t.Errorf("%d bytes were stored for %d", w.received, size)
	}
	if limit := int64(size) + int64(cuts)*chunk; seen.Moved > limit || seen.Losses != 0 {
		t.Errorf("%d bytes left for %d and %d cuts; recorded %+v", seen.Moved, size, cuts, seen)
	}
}
