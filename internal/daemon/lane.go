package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// maxRow is how many small or urgent attachments in a row a single worker prefers before it takes what is next in the
// order again: however many come, a large one moves on by a chunk for every so many.
const maxRow = 16

// traffic is what the workers carry. Of several workers one is never given an attachment that is neither small nor
// urgent; a large one that keeps a more urgent one from the only free worker steps aside between two chunks.
type traffic struct {
	workers int
	small   int64 // up to how many bytes are small

	mu      sync.Mutex
	carried map[attachment.ID]load
	// row counts what a single worker preferred since it last took something large.
	row int
	// asked is what waits for somebody to step aside; nil while nothing does.
	asked *load
	// passing: somebody stepped aside, so that what it was asked for goes next.
	passing bool
}

func newTraffic(workers int, small int64) *traffic {
	return &traffic{workers: workers, small: small, carried: map[attachment.ID]load{}}
}

// load is what counts of an attachment here.
type load struct {
	priority int
	small    bool
}

func (t *traffic) of(m *attachment.Manifest) load {
	return load{priority: m.Priority, small: m.Length <= t.small}
}

// bulk is what is neither small nor urgent.
func (l load) bulk() bool { return !l.small && l.priority == 0 }

// passes reports whether other steps aside for l. What is small is soon done and never does.
func (l load) passes(other load) bool {
	return !other.small && (l.priority > other.priority || l.small && other.bulk())
}

// lane says whether the next claim is for the small and urgent ones, and whether for those only.
func (t *traffic) lane() (quick, only bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bulk := 0
	for _, l := range t.carried {
		if l.bulk() {
			bulk++
		}
	}
	if t.workers > 1 && bulk >= t.workers-1 {
		return true, true
	}
	return t.passing || t.workers == 1 && t.row < maxRow, false
}

// begin notes that a worker has an attachment.
func (t *traffic) begin(m *attachment.Manifest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of(m)
	t.carried[m.ID] = l
	t.asked, t.passing = nil, false
	if t.row++; l.bulk() {
		t.row = 0
	}
}

func (t *traffic) end(id attachment.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.carried, id)
}

// ask has the first that is between two chunks step aside for what waits, unless a small one is under way, which is soon
// done; nil withdraws.
func (t *traffic) ask(waits *attachment.Manifest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = nil
	if waits == nil {
		return
	}
	for _, l := range t.carried {
		if l.small {
			return
		}
	}
	l := t.of(waits)
	t.asked = &l
}

// yields reports whether an attachment, between two chunks, is the one to step aside. It says so once.
func (t *traffic) yields(id attachment.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.carried[id]
	if !ok || t.asked == nil || !t.asked.passes(l) {
		return false
	}
	t.asked, t.passing = nil, true
	return true
}

// claim takes what is next for a free worker.
func (d *dispatcher) claim(ctx context.Context, name string, want queue.Want) (c *queue.Claim, next time.Time, err error) {
	quick, only := d.traffic.lane()
	if quick {
		small := want
		small.Quick = d.traffic.small
		if only {
			return d.queue.ClaimWanted(ctx, name, small)
		}
		// Where only suspects are small or urgent, others go first.
		if m, _, err := d.queue.Waiting(small); err == nil && m != nil && !d.suspect(m.ID) {
			if c, next, err = d.queue.ClaimWanted(ctx, name, small); c != nil || err != nil {
				return c, next, err
			}
		}
	}
	return d.queue.ClaimWanted(ctx, name, want)
}

// letPass looks, while no worker is free, for something that a larger one should step aside for. next is when the earliest
// of those that wait for a time may be tried.
func (d *dispatcher) letPass(want queue.Want) (next time.Time) {
	want.Quick = d.traffic.small
	m, next, err := d.queue.Waiting(want)
	if err != nil || m != nil && d.suspect(m.ID) {
		m = nil
	}
	d.traffic.ask(m)
	return next
}
