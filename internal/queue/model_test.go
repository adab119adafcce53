package queue

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/test/seeds"
)

var (
	modelSeeds = flag.Int("queue.seeds", 60, "how many random histories the queue is held against its model")
	modelSteps = flag.Int("queue.steps", 200, "operations in each history")
	modelSeed  = flag.Uint64("queue.seed", 0, "run this one history only")
)

// Random histories of operations, refusals, pauses of the process and clock steps leave exactly what a simple model in
// memory says, in every way the queue can be read; a refused operation changes nothing; the full check finds nothing.
func TestQueueModel(t *testing.T) {
	seeds.Each(t, *modelSeeds, *modelSeed, func(t *testing.T, dir string, seed uint64) {
		defer func() {
			if t.Failed() {
				t.Logf("again: go test ./internal/queue -run TestQueueModel -queue.seed=%d -queue.steps=%d", seed, *modelSteps)
			}
		}()
		runModel(t, dir, seed)
	})
}

// item is what the model knows of one attachment.
type item struct {
	m         attachment.Manifest
	segments  []attachment.Digest
	confirmed int64
	failure   *Failure
	receipt   *receipt.Receipt
	journal   []string
	claim     *Claim // of this process
}

// world is the queue under test and its model.
type world struct {
	t    *testing.T
	rnd  *rand.Rand
	path string
	st   *store.Store
	q    *Queue
	skew time.Duration // of the wall clock

	items       map[attachment.ID]*item
	order       []attachment.ID
	rows        uint64
	ledger      map[Sighting]Known // without device and inode in the key
	submissions map[string][]attachment.ID
	intakes     map[attachment.ID]Intake
	decisions   map[string]Decision
	sidecars    map[string]attachment.ID // by path: what each bound last, while it lies there
	delivered   time.Time
	channel     int
	published   uint64 // the last transition that was published
	trace       []string
}

func runModel(t *testing.T, dir string, seed uint64) {
	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), path: filepath.Join(dir, "queue.db"),
		items: map[attachment.ID]*item{}, ledger: map[Sighting]Known{}, submissions: map[string][]attachment.ID{},
		intakes: map[attachment.ID]Intake{}, decisions: map[string]Decision{},
		sidecars: map[string]attachment.ID{},
	}
	defer func() {
		if t.Failed() {
			t.Logf("the last operations:\n%s", w.lastSteps())
		}
	}()
	w.open()
	defer func() {
		if err := w.st.Close(); err != nil {
			t.Error(err)
		}
	}()
	for step := range *modelSteps {
		w.step()
		if step%20 == 19 {
			w.compareAll()
		}
		if step%25 == 24 {
			w.check()
		}
		if t.Failed() {
			return
		}
	}
	w.compareAll()
	for _, id := range w.order {
		w.compareOne(id)
	}
	w.check()
}

func (w *world) lastSteps() (text string) {
	for _, line := range w.trace[max(0, len(w.trace)-25):] {
		text += line + "\n"
	}
	return text
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) now() time.Time { return time.Now().Add(w.skew).UTC().Round(0) }

func (w *world) open() {
	st, err := store.Open(w.path, Schema(), store.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.st, w.q = st, New(st, Options{Now: w.now})
	w.q.Subscribe(func(tr Transition) {
		if tr.Seq != w.published+1 {
			w.t.Errorf("transition %d was published after %d", tr.Seq, w.published)
		}
		w.published = tr.Seq
	})
}

func (w *world) check() {
	w.t.Helper()
	findings, err := w.q.Check(w.t.Context())
	if err != nil {
		w.t.Errorf("check: %v", err)
	}
	for _, f := range findings {
		w.t.Errorf("check: %s %s", f.ID, f.Detail)
	}
}

// apply is the model's mutator: it moves the state, writes the journal and drops a problem that is over.
func (w *world) apply(id attachment.ID, event attachment.Event, reason attachment.Code, detail, by string, edit func(*attachment.Manifest)) error {
	it := w.items[id]
	if it == nil {
		return ErrNotFound
	}
	m := it.m.Clone()
	if edit != nil {
		edit(m)
	}
	from := m.State
	to, err := attachment.Next(from, event, m.Facts())
	if err != nil {
		return err
	}
	m.State = to
	switch {
	case to != attachment.Attention && to != attachment.Review:
		m.Problem = nil
	case m.Problem == nil:
		m.Problem = &attachment.Problem{Code: reason, Since: w.now(), Detail: detail}
	}
	if err := m.Validate(); err != nil {
		return err
	}
	it.m = *m
	w.row(it, event, from, to, reason, detail, by)
	return nil
}

func (w *world) row(it *item, event attachment.Event, from, to attachment.State, reason attachment.Code, detail, by string) {
	w.rows++
	if it != nil {
		detail = detail[:min(len(detail), maxDetail)]
		it.journal = append(it.journal, fmt.Sprintf("%s %s>%s %q %q %q %s", event, from, to, reason, detail, by, w.now()))
	}
}

// settle compares what the queue answered with what the model expects, and the attachment afterwards.
func (w *world) settle(id attachment.ID, got, want error) {
	w.t.Helper()
	switch {
	case (got == nil) != (want == nil):
		w.t.Errorf("%s: the queue says %v, the model %v", id, got, want)
	case want != nil && !errors.Is(got, want) && !sameTransitionError(got, want):
		w.t.Errorf("%s: refused with %v, want %v", id, got, want)
	}
	if w.items[id] != nil {
		w.compareOne(id)
	}
	if w.published != w.rows {
		w.t.Errorf("%d rows were published, the model has %d", w.published, w.rows)
	}
}

func sameTransitionError(got, want error) bool {
	a, ok := errors.AsType[*attachment.TransitionError](got)
	b, also := errors.AsType[*attachment.TransitionError](want)
	return ok && also && *a == *b || errors.Is(got, attachment.ErrBadManifest) && errors.Is(want, attachment.ErrBadManifest)
}

// endClaim is what the end of a claim means to its worker.
func (w *world) endClaim(it *item) {
	if it.claim != nil && it.claim.Context().Err() == nil {
		w.t.Errorf("%s: the claim has ended and its context has not", it.m.ID)
	}
	it.claim = nil
}

// crash is the end of the process without notice: what the file holds is all that is left.
func (w *world) crash() {
	w.note("crash")
	if err := w.st.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.open()
	if err := w.q.Recover(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	for _, id := range w.order {
		it := w.items[id]
		it.claim = nil
		if it.m.State == attachment.Uploading {
			if err := w.apply(id, attachment.EventInterrupted, "", "the daemon was stopped", "", nil); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.clamp()
}

// clamp is what becomes of waits that the clock stretched.
func (w *world) clamp() {
	for _, id := range w.order {
		it := w.items[id]
		latest := w.now().Add(it.m.Delivery.Wait)
		if !it.m.Due() || millis(it.m.Delivery.NotBefore) <= millis(w.now()) || !it.m.Delivery.NotBefore.After(latest) {
			continue
		}
		if err := w.apply(id, attachment.EventRescheduled, "", "the clock was set back", "",
			func(m *attachment.Manifest) { m.Delivery.NotBefore = latest }); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.published != w.rows {
		w.t.Errorf("%d rows were published, the model has %d", w.published, w.rows)
	}
}

// due is the order in which the dispatcher is to be served: what may be tried now and is wanted, what is avoided last. next
// is when the first of the others is.
func (w *world) due(want Want) (ready []attachment.ID, next time.Time) {
	for _, id := range w.order {
		it := w.items[id]
		switch at := millis(it.m.Delivery.NotBefore); {
		case !it.m.Due():
		case want.Front && it.m.Priority < attachment.PriorityFront:
		case want.Quick > 0 && it.m.Priority == 0 && it.m.Length > want.Quick:
		case at > millis(w.now()):
			if next.IsZero() || at < next.UnixMilli() {
				next = time.UnixMilli(at).UTC()
			}
		case want.Fresh && (it.m.Delivery.Attempts > 0 || it.m.Delivery.Failures > 0 || want.Avoid != nil && want.Avoid(id)):
		case it.claim == nil:
			ready = append(ready, id)
		}
	}
	slices.SortStableFunc(ready, func(a, b attachment.ID) int {
		x, y := w.items[a].m, w.items[b].m
		if want.Avoid != nil && want.Avoid(a) != want.Avoid(b) {
			return map[bool]int{false: -1, true: 1}[want.Avoid(a)]
		}
		if x.Priority != y.Priority {
			return y.Priority - x.Priority
		}
		return cmp.Compare(millis(x.Delivery.NotBefore), millis(y.Delivery.NotBefore))
	})
	return ready, next
}

// millis is the precision of waits; no time before 1970 is waited for.
func millis(t time.Time) int64 { return max(0, t.UnixMilli()) }
