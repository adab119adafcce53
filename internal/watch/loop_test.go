package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// While nobody reads, no more than the channel's room and one are offered; the rest waits and says so, and all come out.
func TestUnreadCandidatesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		var names []string
		for i := range 200 {
			names = append(names, fmt.Sprintf("%03d.jpg", i))
			write(t, h.path(names[i]), "x")
		}
		h.start()
		pass(5 * time.Minute)
		if n := h.Stats().Roots[0].Offered; n != handOver+1 {
			t.Errorf("%d offered", n)
		}
		// Those that wait and change are not offered as they were: one in the queue, and the one that is next.
		tr := h.trees[0]
		next := func() string {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			return tr.candidate.RelPath
		}
		for _, name := range names {
			tr.mu.Lock()
			out := tr.offered[name] != nil && tr.offered[name] != tr.next
			tr.mu.Unlock()
			if !out {
				appendTo(t, h.path(name), "more")
			}
		}
		h.Rescan("")
		pass(3 * time.Second)
		gone := next()
		must(t, os.Remove(h.path(gone)))
		names = slices.DeleteFunc(names, func(n string) bool { return n == gone })
		pass(35 * time.Second)
		for _, code := range h.reasons() {
			if code != attachment.HoldQueued {
				t.Errorf("a settled file waits because of %q", code)
			}
		}
		changed := 0
		for _, c := range h.expect(names...) {
			if c.Identity.Size == 5 {
				changed++
			}
		}
		if changed != len(names)-handOver {
			t.Errorf("%d offered as they are now, want %d", changed, len(names)-handOver)
		}
	})
}

// The queue of files that nobody reads does not grow with every change and every new file of the same name, and nothing
// falls out of it.
func TestQueueStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source})
		var names []string
		for i := range 150 {
			names = append(names, fmt.Sprintf("%03d.jpg", i))
			write(t, h.path(names[i]), "x")
		}
		look := func(d time.Duration) {
			source.events <- Event{Path: h.path("x")}
			pass(d)
		}
		h.start()
		pass(3 * time.Second)
		// The file that is next stays as it is: as long as it does, nothing leaves the queue.
		h.trees[0].mu.Lock()
		next := h.trees[0].next.name
		h.trees[0].mu.Unlock()
		change := func(names []string, how func(name string)) {
			for _, name := range names {
				if name != next {
					how(name)
				}
			}
		}
		for range 40 {
			change(names[100:], func(name string) { must(t, os.Remove(h.path(name))) })
			look(time.Second)
			change(names[100:], func(name string) { write(t, h.path(name), "y") })
			look(time.Second)
			change(names[:100], func(name string) { appendTo(t, h.path(name), "z") })
			look(1500 * time.Millisecond) // the new ones have settled, the changed ones not yet
		}
		pass(5 * time.Second)
		h.trees[0].mu.Lock()
		if n, limit := h.trees[0].queue.len(), 2*len(names)+breath+1; n <= len(names) || n > limit {
			t.Errorf("%d in the queue", n)
		}
		h.trees[0].mu.Unlock()
		seen := map[string]bool{}
		for _, c := range h.waiting() {
			seen[c.RelPath] = true
		}
		if len(seen) != len(names) {
			t.Errorf("%d of %d came out", len(seen), len(names))
		}
	})
}

// With room for few observations everything still comes out in the end, and held files do not keep others out.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		h.trees[0].limits.fresh, h.trees[0].limits.held, h.trees[0].limits.listed = 10, 5, 3
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("%03d.jpg", i))
			write(t, h.path(names[i]), "x")
			if i < 20 {
				write(t, h.path(fmt.Sprintf("empty-%d", i)), "")
				write(t, h.path(fmt.Sprintf("temporary-%d.part", i)), "x")
			}
		}
		h.start()
		seen := map[string]bool{}
		for round := 0; len(seen) < len(names); round++ {
			if round > 1000 {
				t.Fatalf("only %d of %d after an hour of fake time", len(seen), len(names))
			}
			pass(5 * time.Second)
			for _, c := range h.waiting() {
				if seen[c.RelPath] {
					t.Fatalf("%q twice", c.RelPath)
				}
				seen[c.RelPath] = !c.Empty
				must(t, os.Remove(c.Path))
				h.Done(c, Disposition{Kind: Taken})
			}
			if s := h.Stats().Roots[0]; s.Observed > 15 || s.Listed > 3 {
				t.Fatalf("limits exceeded: %+v", s)
			}
		}
		if s := h.Stats().Roots[0]; s.Left == 0 || s.FoundByRescan != 0 {
			t.Errorf("nothing left, or what was left counted as missed: %+v", s)
		}
	})
}

// Patterns and a flat watch leave out what they should, silently.
func TestPatternsAndFlatWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		for _, name := range []string{"a.jpg", "b.pdf", "skip.jpg", "sub/c.jpg"} {
			write(t, filepath.Join(root, name), "x")
		}
		h := build(t, Options{Source: newFakeSource(), Roots: []Root{
			{Name: "flat", Path: root, Include: []string{"*.jpg"}, Exclude: []string{"skip*"}},
			{Name: "inner", Path: filepath.Join(root, "sub"), Recursive: true},
		}}).start()
		pass(3 * time.Second)
		got := h.expect("a.jpg", "c.jpg")
		if got[0].Watch != "flat" || got[1].Watch != "inner" {
			t.Errorf("got %+v", got)
		}
		for _, c := range got {
			h.Done(c, Disposition{Kind: Stays})
		}
		synctest.Wait()
		if len(h.reasons()) != 0 {
			t.Errorf("not taken: %v", h.reasons())
		}
	})
}

// Events and overflows in quick succession cost a bounded number of scans.
func TestBusyDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		var scans atomic.Int64
		fsys := durable.Hooked(func(durable.Call) error { scans.Add(1); return nil })
		h := build(t, Options{Source: source, FS: fsys}).start()
		pass(time.Second)
		scans.Store(0)
		for range 1000 {
			source.events <- Event{Path: h.path("x")}
			pass(10 * time.Millisecond)
		}
		if n := scans.Load(); n < 50 || n > 101 {
			t.Errorf("%d scans for 1000 events in 10 s", n)
		}
		scans.Store(0)
		for range 1000 {
			source.errors <- ErrOverflow
			pass(10 * time.Millisecond)
		}
		if n := scans.Load(); n < 50 || n > 102 {
			t.Errorf("%d scans for 1000 overflows in 10 s", n)
		}
	})
}

// A listing ends when another scan, in between, found its directory gone: what stands at the path now is not this one's.
func TestListingOfGoneDirectory(t *testing.T) {
	h := build(t, Options{Source: newFakeSource()})
	write(t, h.path("a.jpg"), "x")
	entries, err := os.ReadDir(h.root)
	must(t, err)
	s := &scanner{tree: h.trees[0], ctx: t.Context()}
	n := newNode(nil, "")
	n.gone = true
	if err := s.visit(n, h.root, entries[0], 1); !errors.Is(err, errGone) || n.files != nil {
		t.Errorf("visit: %v, %v", err, n.files)
	}
}

// Nothing is touched between rescans while nothing settles: an idle watcher does not poll.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var touched atomic.Int64
		fsys := durable.Hooked(func(durable.Call) error { touched.Add(1); return nil })
		h := build(t, Options{Source: newFakeSource(), FS: fsys})
		write(t, h.path("i-1/a.jpg"), "x")
		h.start()
		pass(3 * time.Second)
		h.Done(h.expect("i-1/a.jpg")[0], Disposition{Kind: Stays})
		pass(time.Second)
		touched.Store(0)
		pass(10 * time.Minute)
		if got, want := touched.Load(), int64(20*2); got < want-2 || got > want+2 {
			t.Errorf("%d directories were listed in 10 minutes, want the %d of the rescans", got, want)
		}
	})
}

// Wrong options are all named at once, nothing runs, and Run runs once.
func TestOptions(t *testing.T) {
	_, err := New(Options{Rescan: -1, Roots: []Root{
		{Name: "", Path: "relative"}, {Name: "a", Path: "/a/../b", Settle: -1}, {Name: "a", Path: "/c", Include: []string{"["}},
	}})
	if !errors.Is(err, ErrOptions) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"interval", "relative", "/a/../b", "settle", "not unique", "pattern"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q is not named in %v", want, err)
		}
	}
	h := build(t, Options{Source: newFakeSource()}).start()
	h.eventually("scanned", func() bool { return h.Stats().Roots[0].Available })
	if err := h.Run(t.Context()); !errors.Is(err, ErrRunning) {
		t.Errorf("second Run: %v", err)
	}
	h.stop()
	if _, open := <-h.Candidates(); open {
		t.Error("the channel of candidates stays open")
	}
}
