package watch

import (
	"container/heap"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
)

// tree is one root: its loop, and what is remembered about it. The loop alone changes entries and directories; mu lets
// others read them and leave messages. It is not held while a file is looked at, so that a medium that hangs hides nothing.
type tree struct {
	root     Root
	names    nameRules
	times    times
	limits   limits
	rescan   time.Duration
	registry *registry
	fs       *durable.FS
	now      func() time.Duration // running time
	wall     func() time.Time
	log      *slog.Logger
	out      chan<- Candidate
	wake     chan struct{}
	pulse    *clock.Pulse
	probe    func(path string) (attachment.SourceIdentity, writers, error)
	medium   func(path string) durable.Medium

	// Only the loop uses these.
	stays     stays
	next      *entry    // probed, waits for room in the channel
	candidate Candidate // of next
	breathing int
	walking   uint32 // number of the walk
	lazy      int    // periodic walks since the last one that listed every directory
	scans     uint64 // number of the scan
	periodic  time.Duration
	walkEnd   time.Duration
	walkCost  time.Duration

	mu      sync.Mutex
	top     *node
	state   condition // of the root
	deaf    string    // why the root is not watched
	agenda  agenda
	queue   queue
	dirty   []*node
	offered map[string]*entry // by relative path
	answers map[string]Disposition
	// reconsidered are paths to offer once more; forgetStays: all that stay.
	reconsidered map[string]bool
	forgetStays  bool

	count  [classes]int
	wanted bool // a walk is to be made as soon as pace allows
	anew   bool // another medium may have come: the next walk begins with nothing
	full   bool // a file was not observed for lack of room
	left   bool // since the last walk began, something was forgotten that the next one will find
	stats  RootStats
	walk   walkCount
}

// condition is what stands in the way of a root, if anything.
type condition struct {
	code   attachment.Code
	detail string
	since  time.Time
}

// walkCount is what one walk counts.
type walkCount struct {
	dirs, unwatched, unchanged, left int
	why                              string // the reason of one that is not watched
	foreign                          string // a filesystem below the root on which others change files unseen
}

func newTree(opts Options, root Root, reg *registry, out chan<- Candidate, start time.Time) *tree {
	lim := limitsFor(len(opts.Roots))
	t := &tree{
		root: root, names: root.nameRules(), limits: lim, rescan: opts.Rescan, registry: reg,
		times: times{settle: root.Settle, quiet: max(root.Settle, quietWithoutLease), grace: opts.EmptyGrace},
		fs:    opts.FS, wall: opts.Now, log: opts.Logger.With(slog.String(logging.KeyWatch, root.Name)), out: out,
		// time.Since reads the monotonic clock: running time, whatever happens to the wall clock.
		now:  func() time.Duration { return time.Since(start) },
		wake: make(chan struct{}, 1), pulse: new(clock.Pulse), stays: newStays(lim.stays), top: newNode(nil, ""),
		offered: map[string]*entry{}, answers: map[string]Disposition{}, reconsidered: map[string]bool{},
	}
	t.probe, t.medium = t.probeFile, t.mediumOf
	t.state = condition{code: attachment.NotTakenUnavailable, detail: "not looked at yet", since: opts.Now()}
	return t
}

// run is the loop. Between two turns it waits for a message, for the earliest time at which anything is due, and for room
// in the channel while a candidate is ready: nothing is polled.
func (t *tree) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer t.pulse.Rest()
	for ctx.Err() == nil {
		t.pulse.Beat()
		t.turn(ctx)
		var out chan<- Candidate
		if t.next != nil {
			out = t.out
		}
		timer.Reset(t.wait())
		t.pulse.Rest()
		select {
		case <-ctx.Done():
		case <-t.wake:
		case <-timer.C:
		case out <- t.candidate:
			t.next = nil
		}
	}
}

func (t *tree) turn(ctx context.Context) {
	if t.walkDue() {
		t.walkAll(ctx)
	}
	t.breathe(ctx)
}

// breathe does everything that is due apart from a walk. A long listing calls it from within, so that a large directory
// keeps no file waiting that has settled or just arrived, even when it is itself listed because of an event.
func (t *tree) breathe(ctx context.Context) {
	t.pulse.Beat()
	if t.breathing >= maxBreathing {
		return
	}
	t.breathing++
	defer func() { t.breathing-- }()
	t.takeAnswers()
	t.scanDirty(ctx)
	t.lookAgain(ctx)
	t.offer(ctx)
}

// wait is how long nothing will be due.
func (t *tree) wait() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.periodic
	if t.wanted {
		at = min(at, t.walkAllowed())
	}
	for _, n := range t.dirty {
		at = min(at, n.nextScan())
	}
	if len(t.agenda) > 0 {
		at = min(at, t.agenda[0].due)
	}
	if t.queue.len() > 0 && t.next == nil {
		at = 0
	}
	return max(0, at-t.now())
}

// walkAllowed is when a walk that is wanted may begin: soon, but not one after the other.
func (t *tree) walkAllowed() time.Duration {
	if t.walking == 0 {
		return 0
	}
	return t.walkEnd + max(pace, paceFactor*t.walkCost)
}

func (t *tree) walkDue() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	return t.walking == 0 || now >= t.periodic || t.wanted && now >= t.walkAllowed()
}

func (t *tree) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// wantWalk asks for a walk.
func (t *tree) wantWalk() {
	t.mu.Lock()
	t.wanted = true
	t.mu.Unlock()
	t.signal()
}

// remounted asks for a walk that takes nothing for known: what was mounted here, or on the way here, is another now.
func (t *tree) remounted() {
	t.mu.Lock()
	t.wanted, t.anew = true, true
	t.mu.Unlock()
	t.signal()
}

// lostEvents makes everything dirty.
func (t *tree) lostEvents() {
	t.mu.Lock()
	if t.stats.Overflows++; t.stats.Overflows == 1 {
		t.log.Warn("file events were lost, everything is scanned; the status counts how often")
	}
	t.wanted = true
	t.mu.Unlock()
	t.signal()
}

// mark makes the directory of an event dirty, and the path of the event if it is a known directory: it may have been
// removed, replaced or given other permissions.
func (t *tree) mark(path string) {
	rel, ok := below(t.root.Path, path)
	if !ok {
		return
	}
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.top
	if rel != "" {
		slash := strings.LastIndexByte(rel, '/')
		if at = t.top.find(rel[:max(slash, 0)]); at == nil {
			return
		}
		t.markNode(at, now)
		at = at.kids[rel[slash+1:]]
	}
	if at != nil {
		t.markNode(at, now)
	}
	t.signal()
}

func (t *tree) markNode(n *node, now time.Duration) {
	n.marked = now
	t.enlist(n)
}

// enlist has a directory scanned as soon as its pace allows.
func (t *tree) enlist(n *node) {
	if !n.dirty && !n.gone {
		n.dirty = true
		t.dirty = append(t.dirty, n)
	}
}

// schedule puts an entry on the agenda, or moves it there.
func (t *tree) schedule(e *entry, due time.Duration) {
	e.due = due
	if e.index >= 0 {
		heap.Fix(&t.agenda, e.index)
		return
	}
	heap.Push(&t.agenda, e)
}

func (t *tree) unschedule(e *entry) {
	if e.index >= 0 {
		heap.Remove(&t.agenda, e.index)
	}
}
