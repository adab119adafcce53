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

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// pass lets fake time go by and everything that it makes due happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// waiting returns the candidates that are in the channel now, in the order of their paths.
func (h *harness) waiting() []Candidate {
	var all []Candidate
	for {
		synctest.Wait()
		select {
		case c := <-h.Candidates():
			all = append(all, c)
			continue
		default:
		}
		slices.SortFunc(all, func(a, b Candidate) int { return strings.Compare(a.RelPath, b.RelPath) })
		return all
	}
}

func (h *harness) expect(rels ...string) []Candidate {
	h.t.Helper()
	got := h.waiting()
	var names []string
	for _, c := range got {
		names = append(names, c.RelPath)
	}
	if !slices.Equal(names, rels) {
		h.t.Fatalf("candidates %q, want %q; not taken: %v", names, rels, h.reasons())
	}
	return got
}

func (h *harness) expectReason(rel string, want attachment.Code) {
	h.t.Helper()
	synctest.Wait()
	if got := h.reasons()[rel]; got != want {
		h.t.Fatalf("%q is not taken because of %q, want %q", rel, got, want)
	}
}

// Without a single event the rescan finds every file, also in new directories, and counts what events should have told.
func TestRescanFindsWhatEventsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source})
		write(t, h.path("before.jpg"), "x")
		h.start()
		pass(3 * time.Second)
		c := h.expect("before.jpg")[0]
		want := Candidate{
			Watch: "w", Root: h.root, Path: h.path("before.jpg"), RelPath: "before.jpg", Identity: c.Identity,
			Evidence: attachment.EvidenceLease,
		}
		if c != want || c.Identity.Size != 1 {
			t.Fatalf("got %+v, want %+v", c, want)
		}
		h.Done(c, Disposition{Kind: Stays})

		write(t, h.path("later.jpg"), "x")
		write(t, h.path("inspection-7/cam/deep.jpg"), "x")
		pass(20 * time.Second)
		h.expect()
		pass(20 * time.Second)
		got := h.expect("inspection-7/cam/deep.jpg", "later.jpg")
		if got[0].ParentDir != "inspection-7" || got[1].ParentDir != "" {
			t.Errorf("parents %q and %q", got[0].ParentDir, got[1].ParentDir)
		}
		s := h.Stats().Roots[0]
		if s.FoundByRescan != 2 || !s.Available || s.Dirs != 3 || s.Watches != 3 || s.Known != 1 {
			t.Errorf("stats %+v", s)
		}
		if got := source.watches(); len(got) != 3 {
			t.Errorf("watched: %q", got)
		}
	})
}

// A file that an event announced is not counted as missed, even when a rescan is what finds it.
func TestAnnouncedFilesAreNotCountedAsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source}).start()
		pass(time.Second)
		write(t, h.path("a.jpg"), "x")
		h.Rescan("w")
		synctest.Wait()
		source.events <- Event{Path: h.path("a.jpg")}
		pass(3 * time.Second)
		h.expect("a.jpg")
		if n := h.Stats().Roots[0].FoundByRescan; n != 0 {
			t.Errorf("%d counted as missed", n)
		}
	})
}

// An event has the directory looked at within its pace, and a new directory is entered at once and completely.
func TestEventsMarkDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source}).start()
		pass(time.Second)
		write(t, h.path("i-1/a/b/c.jpg"), "x")
		source.events <- Event{Path: h.path("i-1")}
		source.events <- Event{Path: "/elsewhere/x"}
		source.events <- Event{Path: h.path("unknown/dir/x")}
		pass(3 * time.Second)
		h.expect("i-1/a/b/c.jpg")
		write(t, h.path("i-1/a/b/d.jpg"), "x")
		source.events <- Event{Path: h.path("i-1/a/b/d.jpg")}
		pass(3 * time.Second)
		h.expect("i-1/a/b/d.jpg")
	})
}

// Lost events have everything scanned without waiting for the periodic rescan.
func TestOverflowScansEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source}).start()
		pass(time.Second)
		write(t, h.path("a.jpg"), "x")
		source.errors <- fmt.Errorf("%w: queue", ErrOverflow)
		pass(3 * time.Second)
		h.expect("a.jpg")
		if n := h.Stats().Roots[0].Overflows; n != 1 {
			t.Errorf("%d overflows", n)
		}
	})
}

// A program that closes and reopens a file to append, with pauses shorter than settle, is waited for: the file is
// offered once, with its final length.
func TestAppendReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source}).start()
		pass(time.Second)
		write(t, h.path("track.las"), "x")
		for range 20 {
			source.events <- Event{Path: h.path("track.las")}
			pass(1500 * time.Millisecond)
			h.expectReason("track.las", attachment.NotTakenSettling)
			appendTo(t, h.path("track.las"), "more")
		}
		pass(1500 * time.Millisecond)
		h.expect()
		pass(1500 * time.Millisecond)
		if c := h.expect("track.las")[0]; c.Identity.Size != 81 {
			t.Errorf("offered with %d bytes", c.Identity.Size)
		}
	})
}

// Modification times far in the past and in the future, and a wall clock that jumps, change nothing.
func TestClockDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wall := time.Date(1970, 1, 1, 0, 0, 1, 0, time.UTC)
		h := build(t, Options{Source: newFakeSource(), Now: func() time.Time { wall = wall.Add(-time.Hour); return wall }})
		for name, mtime := range map[string]time.Time{"old": time.Unix(1, 0), "future": time.Date(2105, 1, 1, 0, 0, 0, 0, time.UTC)} {
			write(t, h.path(name), "x")
			must(t, os.Chtimes(h.path(name), mtime, mtime))
		}
		h.start()
		pass(1900 * time.Millisecond)
		h.expect()
		pass(200 * time.Millisecond)
		h.expect("future", "old")
	})
}

// An empty file is listed for the whole grace and then offered as empty; filled in time it is an ordinary file.
func TestEmptyFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		write(t, h.path("stays-empty.jpg"), "")
		write(t, h.path("filled.jpg"), "")
		h.start()
		pass(5 * time.Second)
		h.expect()
		h.expectReason("stays-empty.jpg", attachment.NotTakenEmpty)
		write(t, h.path("filled.jpg"), "x")
		pass(40 * time.Second)
		if c := h.expect("filled.jpg")[0]; c.Empty {
			t.Error("a filled file is offered as empty")
		}
		pass(9 * time.Minute)
		h.expect()
		pass(time.Minute)
		if c := h.expect("stays-empty.jpg")[0]; !c.Empty {
			t.Error("the empty file is not marked")
		}
	})
}

// A source that stays in place is offered once, however often it is scanned, until it changes; what is removed is
// forgotten, so that the memory for such files is not used up.
func TestStaysIsNotOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		write(t, h.path("a.jpg"), "x")
		write(t, h.path("b.jpg"), "x")
		h.start()
		pass(3 * time.Second)
		for _, c := range h.expect("a.jpg", "b.jpg") {
			h.Done(c, Disposition{Kind: Stays})
		}
		pass(10 * time.Minute)
		h.expect()
		appendTo(t, h.path("a.jpg"), "more")
		must(t, os.Remove(h.path("b.jpg")))
		pass(40 * time.Second)
		h.Done(h.expect("a.jpg")[0], Disposition{Kind: Stays})
		pass(5 * time.Minute)
		h.expect()
		if s := h.Stats().Roots[0]; s.Known != 1 || s.Observed != 0 {
			t.Errorf("stats %+v", s)
		}
		if len(h.reasons()) != 0 {
			t.Errorf("not taken: %v", h.reasons())
		}
	})
}

// Beyond the limit of files that stay, they are offered again and no others are lost.
func TestStaysLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		h.trees[0].stays.limit = 1
		write(t, h.path("a.jpg"), "x")
		write(t, h.path("b.jpg"), "x")
		h.start()
		pass(3 * time.Second)
		for _, c := range h.expect("a.jpg", "b.jpg") {
			h.Done(c, Disposition{Kind: Stays})
		}
		pass(time.Minute)
		if got := h.waiting(); len(got) != 1 {
			t.Fatalf("%d offered again, want the one there was no room for", len(got))
		}
		if n := h.Stats().Roots[0].FoundByRescan; n != 0 {
			t.Errorf("%d counted as missed by events", n)
		}
	})
}

// A file that was not taken shows the taker's reason and is offered again after the time named, or once it changed and
// settled.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		write(t, h.path("a.jpg"), "x")
		h.start()
		pass(3 * time.Second)
		c := h.expect("a.jpg")[0]
		h.expectReason("a.jpg", attachment.HoldQueued)
		again := Disposition{Kind: Again, Code: attachment.NotTakenStorage, Detail: "3 bytes free", Retry: 5 * time.Minute}
		h.Done(c, again)
		h.Done(c, Disposition{Kind: Stays}) // not out any more: ignored
		pass(4*time.Minute + 50*time.Second)
		h.expect()
		h.expectReason("a.jpg", attachment.NotTakenStorage)
		if h.detail("a.jpg") != "3 bytes free" {
			t.Errorf("detail %q", h.detail("a.jpg"))
		}
		pass(20 * time.Second)
		c = h.expect("a.jpg")[0]
		h.expectReason("a.jpg", attachment.NotTakenStorage) // stands until the file is taken
		h.Done(c, again)
		synctest.Wait()
		appendTo(t, h.path("a.jpg"), "more")
		pass(40 * time.Second)
		former := c
		c = h.expect("a.jpg")[0]
		if c.Identity.Size != 5 {
			t.Errorf("size %d", c.Identity.Size)
		}
		h.Done(former, Disposition{Kind: Stays}) // about the file as it was: ignored
		h.Done(c, Disposition{Kind: Taken})
		must(t, os.Remove(c.Path))
		pass(time.Second)
		if n := h.Stats().Roots[0].Known; n != 0 {
			t.Errorf("%d known", n)
		}
		pass(time.Minute)
		h.expect()
		if len(h.reasons()) != 0 {
			t.Errorf("not taken: %v", h.reasons())
		}
	})
}

// A file that changes while it is with the taker is settled and offered anew, whatever the answer.
func TestChangedWhileOffered(t *testing.T) {
	for _, kind := range []Kind{Taken, Stays, Again} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newFakeSource()
				h := build(t, Options{Source: source})
				write(t, h.path("a.jpg"), "x")
				h.start()
				pass(3 * time.Second)
				c := h.expect("a.jpg")[0]
				appendTo(t, c.Path, "more")
				source.events <- Event{Path: c.Path}
				pass(time.Second)
				h.Done(c, Disposition{Kind: kind, Retry: time.Hour})
				pass(time.Second)
				h.expect()
				pass(3 * time.Second)
				if c := h.expect("a.jpg")[0]; c.Identity.Size != 5 {
					t.Errorf("size %d", c.Identity.Size)
				}
			})
		})
	}
}

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
		if n, limit := len(h.trees[0].queue), 2*len(names)+breath+1; n <= len(names) || n > limit {
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

// Where nothing tells whether a file is open, it is watched for longer and the candidate says what it rests on.
func TestWithoutLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		tr := h.trees[0]
		tr.probe = func(path string) (attachment.SourceIdentity, writers, error) {
			id, _, err := tr.probeFile(path)
			return id, writersUnknown, err
		}
		write(t, h.path("a.jpg"), "x")
		h.start()
		pass(2900 * time.Millisecond)
		h.expect()
		h.expectReason("a.jpg", attachment.NotTakenSettling)
		pass(200 * time.Millisecond)
		if c := h.expect("a.jpg")[0]; c.Evidence != attachment.EvidenceSettled {
			t.Errorf("evidence %q", c.Evidence)
		}
	})
}

// A directory that the kernel gives no watch for is named with the sysctl to raise, its files are found by the rescan,
// and it is watched as soon as that is possible. "No space left on device" is never said.
func TestWatchLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"watches":   {unix.ENOSPC, "fs.inotify.max_user_watches"},
		"instances": {unix.EMFILE, "fs.inotify.max_user_instances"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newFakeSource()
				refused := true
				source.refuse = func(dir string) error {
					if refused && filepath.Base(dir) == "many" {
						return tc.err
					}
					return nil
				}
				h := build(t, Options{Source: source})
				write(t, h.path("many/a.jpg"), "x")
				h.start()
				pass(3 * time.Second)
				h.Done(h.expect("many/a.jpg")[0], Disposition{Kind: Stays})
				h.expectReason("many", attachment.NotTakenNotWatched)
				if d := h.detail("many"); !strings.Contains(d, tc.says) || strings.Contains(d, "space") {
					t.Errorf("detail %q", d)
				}
				write(t, h.path("many/b.jpg"), "x")
				source.events <- Event{Path: h.path("x")} // of the directory above: no reason to look into this one
				pass(5 * time.Second)
				h.expect()
				pass(30 * time.Second)
				h.expect("many/b.jpg")
				s := h.Stats().Roots[0]
				if s.NotWatched != 1 || s.Watches != 1 || s.FoundByRescan != 0 || !s.Available {
					t.Errorf("stats %+v", s)
				}
				source.mu.Lock()
				refused = false
				source.mu.Unlock()
				pass(time.Minute)
				if s := h.Stats().Roots[0]; s.NotWatched != 0 || s.Watches != 2 || h.reasons()["many"] != "" {
					t.Errorf("after raising the limit: %+v, %v", s, h.reasons())
				}
			})
		})
	}
}

// A source of events that ends leaves a watcher that scans from time to time and says so.
func TestSourceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source}).start()
		pass(time.Second)
		close(source.events)
		pass(time.Second)
		s := h.Stats().Roots[0]
		if !s.Available || s.Reason != attachment.NotTakenNotWatched || s.Watches != 0 {
			t.Errorf("stats %+v", s)
		}
		write(t, h.path("i-1/a.jpg"), "x")
		pass(40 * time.Second)
		h.expect("i-1/a.jpg")
		h.expectReason("", attachment.NotTakenNotWatched)
	})
}

// A root that is missing, a link or a file is unavailable and not empty; it is watched and scanned once it is back, also
// when another directory stands there.
func TestUnavailableRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source})
		write(t, h.path("i-1/a.jpg"), "x")
		h.start()
		pass(3 * time.Second)
		c := h.expect("i-1/a.jpg")[0]
		must(t, os.Rename(h.root, h.root+".away"))
		source.events <- Event{Path: h.root}
		pass(time.Second)
		h.expectReason("", attachment.NotTakenUnavailable)
		if s := h.Stats().Roots[0]; s.Available || s.Watches != 0 || len(source.watches()) != 0 {
			t.Errorf("stats %+v, watches %q", s, source.watches())
		}
		h.Done(c, Disposition{Kind: Again, Code: attachment.NotTakenUnreadable})
		must(t, os.Symlink(h.root+".away", h.root))
		pass(40 * time.Second)
		h.expect()
		if d := h.detail(""); !strings.Contains(d, "symbolic link") {
			t.Errorf("detail %q", d)
		}
		must(t, os.Remove(h.root))
		write(t, h.root, "a file")
		pass(40 * time.Second)
		if d := h.detail(""); !strings.Contains(d, "not a directory") {
			t.Errorf("detail %q", d)
		}
		must(t, os.Remove(h.root))
		write(t, h.path("i-2/b.jpg"), "x")
		pass(40 * time.Second)
		h.expect("i-2/b.jpg")
		if got, want := source.watches(), []string{h.root, h.path("i-2")}; !slices.Equal(got, want) {
			t.Errorf("watches %q", got)
		}
		if got := h.reasons(); len(got) != 1 || got["i-2/b.jpg"] != attachment.HoldQueued {
			t.Errorf("not taken: %v", got)
		}
	})
}

// What cannot become a candidate is listed with its reason and disappears from the list with its path.
func TestListedPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source})
		must(t, unix.Mkfifo(h.path("pipe"), 0o600))
		must(t, os.Symlink("/etc", h.path("link")))
		must(t, os.Symlink("nowhere", h.path("dangling")))
		write(t, h.path("a.jpg.part"), "12345")
		write(t, h.path(".rsync-partial/b.jpg"), "x")
		write(t, h.path(".fieldgw-release-1"), "x")
		h.start()
		pass(time.Minute)
		h.expect()
		want := map[string]attachment.Code{
			"pipe": attachment.NotTakenSpecial, "link": attachment.NotTakenSpecial, "dangling": attachment.NotTakenSpecial,
			"a.jpg.part": attachment.NotTakenTemporary, ".rsync-partial": attachment.NotTakenTemporary,
		}
		if got := h.reasons(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("not taken: %v, want %v", got, want)
		}
		must(t, os.Rename(h.path("a.jpg.part"), h.path("a.jpg")))
		must(t, os.Remove(h.path("pipe")))
		must(t, os.Remove(h.path("link")))
		mkdir(t, h.path("link"))
		write(t, h.path("pipe"), "x")
		source.events <- Event{Path: h.path("a.jpg")}
		pass(3 * time.Second)
		h.expect("a.jpg", "pipe")
		if got := h.reasons(); got["link"] != "" || got["a.jpg.part"] != "" {
			t.Errorf("not taken: %v", got)
		}
	})
}

// A directory on the way that is replaced by a link leads nowhere: nothing outside of the root is offered.
func TestLinkedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		write(t, h.path("i-1/a.jpg"), "x")
		h.start()
		pass(time.Second)
		must(t, os.Rename(h.path("i-1"), h.root+".outside"))
		must(t, os.Symlink(h.root+".outside", h.path("i-1")))
		pass(5 * time.Minute)
		h.expect()
		h.expectReason("i-1", attachment.NotTakenSpecial)
	})
}

// Directories are entered down to a limit, and what is below is named; a path that is too long for open(2) is as well.
func TestDeepTrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		h.trees[0].limits.depth = 3
		h.trees[0].limits.path = len(h.root) + 100
		write(t, h.path("1/2/3/in.jpg"), "x")
		write(t, h.path("1/2/3/4/out.jpg"), "x")
		long := strings.Repeat("n", 120)
		write(t, h.path(long), "x")
		write(t, h.path("d"+long+"/x"), "x")
		h.start()
		pass(3 * time.Second)
		h.expect("1/2/3/in.jpg")
		for _, rel := range []string{"1/2/3/4", long, "d" + long} {
			h.expectReason(rel, attachment.NotTakenTooDeep)
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

// A directory that cannot be read to its end concludes nothing, is named, and recovers.
func TestUnreadableMedium(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Pointer[string]
		fsys := durable.Hooked(func(c durable.Call) error {
			if suffix := broken.Load(); suffix != nil && strings.HasSuffix(c.Path, *suffix) {
				return unix.EIO
			}
			return nil
		})
		h := build(t, Options{Source: newFakeSource(), FS: fsys})
		write(t, h.path("i-1/a.jpg"), "x")
		write(t, h.path("b.jpg"), "x")
		broken.Store(new("i-1"))
		h.start()
		pass(3 * time.Second)
		h.Done(h.expect("b.jpg")[0], Disposition{Kind: Stays})
		h.expectReason("i-1", attachment.NotTakenUnreadable)
		broken.Store(new("a.jpg"))
		pass(40 * time.Second)
		h.expect()
		h.expectReason("i-1/a.jpg", attachment.NotTakenUnreadable)
		broken.Store(nil)
		pass(40 * time.Second)
		h.expect("i-1/a.jpg")
		broken.Store(new("capture"))
		pass(40 * time.Second)
		h.expectReason("", attachment.NotTakenUnreadable)
		broken.Store(nil)
		pass(40 * time.Second)
		if s := h.Stats().Roots[0]; !s.Available || s.Reason != "" {
			t.Errorf("stats %+v", s)
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

// A directory that is renamed is watched under its new name, whatever the order in which the old and the new are found,
// and so is one that takes the place of another.
func TestWatchesFollowRenames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source})
		mkdir(t, h.path("m/sub"))
		h.start()
		pass(time.Second)
		for _, to := range []string{"a", "z", "b", "y"} {
			from := h.Stats().Roots[0].Dirs
			entries, err := os.ReadDir(h.root)
			must(t, err)
			must(t, os.Rename(h.path(entries[0].Name()), h.path(to)))
			source.events <- Event{Path: h.path(to)}
			pass(time.Second)
			want := []string{h.root, h.path(to), h.path(to + "/sub")}
			if got := source.watches(); !slices.Equal(got, want) || from != 3 {
				t.Fatalf("watches %q, want %q", got, want)
			}
		}
		away := h.root + ".away"
		must(t, os.Rename(h.path("y"), away))
		mkdir(t, h.path("y/sub"))
		h.Rescan("")
		pass(time.Second)
		must(t, os.Rename(away, h.path("a")))
		h.Rescan("")
		pass(time.Second)
		want := []string{h.root, h.path("a"), h.path("a/sub"), h.path("y"), h.path("y/sub")}
		if got := source.watches(); !slices.Equal(got, want) {
			t.Fatalf("watches %q, want %q", got, want)
		}
		must(t, os.RemoveAll(h.path("a")))
		must(t, os.Remove(h.path("y/sub")))
		h.Rescan("")
		pass(time.Second)
		want = []string{h.root, h.path("y")}
		if got := source.watches(); !slices.Equal(got, want) || h.Stats().Roots[0].Watches != 2 {
			t.Fatalf("watches %q, want %q", got, want)
		}
		h.registry.mu.Lock()
		defer h.registry.mu.Unlock()
		if r := h.registry; len(r.paths) != len(want) || len(r.inodes) != len(want) {
			t.Errorf("%d directories under %d paths are known, want %d", len(r.paths), len(r.inodes), len(want))
		}
	})
}

// A file that takes the place of one that is with the taker, in a directory that took the place of its directory, is
// seen as soon as the answer comes.
func TestDirectoryReplacedWhileOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source})
		write(t, h.path("i-1/a.jpg"), "x")
		h.start()
		pass(3 * time.Second)
		c := h.expect("i-1/a.jpg")[0]
		must(t, os.Rename(h.path("i-1"), h.root+".away"))
		source.events <- Event{Path: h.path("i-1")}
		pass(time.Second)
		write(t, h.path("i-1/a.jpg"), "other")
		source.events <- Event{Path: h.path("i-1")}
		pass(time.Second)
		h.Done(c, Disposition{Kind: Taken})
		pass(3 * time.Second)
		if c := h.expect("i-1/a.jpg")[0]; c.Identity.Size != 5 {
			t.Errorf("got %+v", c)
		}
	})
}

// Without any inotify instance everything is found by the rescan, the reason names the sysctl, and events are used as
// soon as there are some.
func TestNoInotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		tries := 0
		h := build(t, Options{})
		h.inotify = func() (EventSource, error) {
			if tries++; tries < 3 {
				return nil, fmt.Errorf("initialize inotify: %w", unix.EMFILE)
			}
			return source, nil
		}
		write(t, h.path("i-1/a.jpg"), "x")
		h.start()
		pass(3 * time.Second)
		h.Done(h.expect("i-1/a.jpg")[0], Disposition{Kind: Stays})
		h.expectReason("", attachment.NotTakenNotWatched)
		if d := h.detail(""); !strings.Contains(d, "fs.inotify.max_user_instances") {
			t.Errorf("detail %q", d)
		}
		write(t, h.path("i-1/b.jpg"), "x")
		pass(35 * time.Second)
		h.Done(h.expect("i-1/b.jpg")[0], Disposition{Kind: Stays})
		pass(35 * time.Second)
		if s := h.Stats().Roots[0]; s.Watches != 2 || s.Reason != "" || s.FoundByRescan != 0 {
			t.Errorf("stats %+v", s)
		}
		write(t, h.path("i-1/c.jpg"), "x")
		source.events <- Event{Path: h.path("i-1/c.jpg")}
		pass(3 * time.Second)
		h.expect("i-1/c.jpg")
	})
}

// A watcher that starts before its card is there finds what is on it once it comes.
func TestRootComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := filepath.Join(t.TempDir(), "card")
		h := build(t, Options{Source: newFakeSource(), Roots: []Root{{Name: "w", Path: root, Recursive: true}}}).start()
		pass(10 * time.Minute)
		h.expectReason("", attachment.NotTakenUnavailable)
		write(t, h.path("DCIM/100/a.jpg"), "x")
		pass(35 * time.Second)
		h.expect("DCIM/100/a.jpg")
	})
}

// The watcher's own limit leaves directories unwatched and named, and their files to the rescan.
func TestOwnWatchLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		h.registry.limit = 3
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprintf("i-%d/a.jpg", i))
			write(t, h.path(want[i]), "x")
		}
		h.start()
		pass(3 * time.Second)
		h.expect(want...)
		if s := h.Stats().Roots[0]; s.Watches != 3 || s.NotWatched != 8 || s.Listed != 8 {
			t.Errorf("stats %+v", s)
		}
	})
}
