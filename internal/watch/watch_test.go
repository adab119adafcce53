package watch

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// A source that stays is offered again when its bytes may have changed though it has the size, the time and the number of
// before: its change time tells.
func TestStaysIsOfferedWhenRewritten(t *testing.T) {
	h := build(t, Options{Source: newFakeSource()})
	write(t, h.path("a.jpg"), "x")
	info, err := os.Lstat(h.path("a.jpg"))
	must(t, err)
	tr, id := h.trees[0], identityOf(info)
	tr.stays.add("a.jpg", id, durable.ChangeTime(info), 0)
	<-time.After(20 * time.Millisecond) // more than the kernel's tick
	must(t, os.Chtimes(h.path("a.jpg"), info.ModTime(), info.ModTime()))
	again, err := os.Lstat(h.path("a.jpg"))
	must(t, err)
	if identityOf(again) != id || tr.stays.holds("a.jpg", id, durable.ChangeTime(again), 0) {
		t.Error("a rewritten file is taken for known")
	}
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
