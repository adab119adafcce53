package watch

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// Where times are coarse, a file must be unchanged for far longer than they stand still, also with a lease.
func TestCoarseTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		h.trees[0].medium = func(string) durable.Medium { return durable.Medium{Name: "FAT", CoarseTimes: true} }
		write(t, h.path("DCIM/a.jpg"), "x")
		h.start()
		pass(9900 * time.Millisecond)
		h.expect()
		h.expectReason("DCIM/a.jpg", attachment.NotTakenSettling)
		pass(200 * time.Millisecond)
		h.expect("DCIM/a.jpg")
	})
}

// A filesystem on which others change files unseen has the root scanned every few seconds, and so does the configuration;
// the reason is told and is no error.
func TestPolledRoot(t *testing.T) {
	foreign := durable.Medium{Name: "NFS", Foreign: true}
	for name, tc := range map[string]struct {
		poll bool
		root durable.Medium
		says string
	}{
		"nobody tells": {false, foreign, "NFS does not tell what others change on it"},
		"configured":   {true, durable.Medium{Name: "ext4", DirTimes: true}, "as configured"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := Root{Name: "w", Path: t.TempDir(), Recursive: true, Poll: tc.poll}
				h := build(t, Options{Source: newFakeSource(), Roots: []Root{root}})
				h.trees[0].medium = func(string) durable.Medium { return tc.root }
				h.start()
				pass(time.Minute)
				for _, name := range []string{"a.jpg", "b.jpg"} {
					write(t, h.path(name), "x")
					pass(pollInterval + 3*time.Second)
					h.Done(h.expect(name)[0], Disposition{Kind: Stays})
				}
				if s := h.Stats().Roots[0]; s.Polled != tc.says || s.Reason != "" || !s.Available || s.Unchanged != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

// stir changes a directory until its change time shows it: coarse clocks may stand still for a moment.
func stir(t *testing.T, dir string) {
	t.Helper()
	before, err := os.Lstat(dir)
	must(t, err)
	for range 1_000_000 {
		write(t, dir+"/stir.tmp", "")
		must(t, os.Remove(dir+"/stir.tmp"))
		after, err := os.Lstat(dir)
		must(t, err)
		if durable.ChangeTime(after) != durable.ChangeTime(before) {
			return
		}
	}
	t.Fatalf("the change time of %s stands still", dir)
}

// A periodic scan does not list directories that stand as they did when they were listed before, still finds what no event
// told, in them and in new ones below, and lists everything from time to time and when it was asked for.
func TestUnchangedDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var listed atomic.Int64
		fsys := durable.Hooked(func(c durable.Call) error {
			if c.Op == durable.OpRead {
				listed.Add(1)
			}
			return nil
		})
		h := build(t, Options{Source: newFakeSource(), FS: fsys})
		h.trees[0].medium = func(string) durable.Medium { return durable.Medium{Name: "ext4", DirTimes: true} }
		write(t, h.path("i-1/cam/a.jpg"), "x")
		mkdir(t, h.path("i-2"))
		h.start()
		pass(3 * time.Second)
		h.Done(h.expect("i-1/cam/a.jpg")[0], Disposition{Kind: Stays})
		scans := func(d time.Duration) int64 {
			listed.Store(0)
			pass(d)
			return listed.Load()
		}
		if n := scans(30 * time.Second); n != 4 {
			t.Errorf("%d directories listed by the second scan, want all 4: the first came too soon after they were made", n)
		}
		if n := scans(4 * 30 * time.Second); n != 0 {
			t.Errorf("%d unchanged directories listed", n)
		}
		if s := h.Stats().Roots[0]; s.Dirs != 4 || s.Unchanged != 4 || s.Known != 1 {
			t.Errorf("stats %+v", s)
		}

		stir(t, h.path("i-1/cam"))
		write(t, h.path("i-1/cam/b.jpg"), "x")
		mkdir(t, h.path("i-2/new"))
		stir(t, h.path("i-2"))
		write(t, h.path("i-2/new/c.jpg"), "x")
		if n := scans(33 * time.Second); n != 3 {
			t.Errorf("%d directories listed, want the two that changed and the new one", n)
		}
		for _, c := range h.expect("i-1/cam/b.jpg", "i-2/new/c.jpg") {
			h.Done(c, Disposition{Kind: Stays})
		}
		if s := h.Stats().Roots[0]; s.FoundByRescan != 2 || s.Unchanged != 2 {
			t.Errorf("stats %+v", s)
		}
		pass(60 * time.Second)

		// Nothing in the directory changes when a file is written in place and no event tells.
		appendTo(t, h.path("i-1/cam/a.jpg"), "more")
		pass(thoroughEvery * 31 * time.Second)
		h.Done(h.expect("i-1/cam/a.jpg")[0], Disposition{Kind: Stays})
		pass(2 * time.Minute)
		listed.Store(0)
		h.Rescan("")
		pass(time.Second)
		if n := listed.Load(); n != 5 {
			t.Errorf("a scan that was asked for listed %d of 5 directories", n)
		}
	})
}

// Directory times are not trusted where they prove nothing, nor where a directory could not be read to its end.
func TestDoubtfulDirectories(t *testing.T) {
	known := node{
		listed: true, watched: true, medium: durable.Medium{DirTimes: true}, changed: 7, changedSince: sec, began: sec + dirTimeDoubt,
	}
	if !known.unchanged() {
		t.Error("listed long after its last change")
	}
	for name, doubt := range map[string]func(n *node){
		"never listed":              func(n *node) { n.listed = false },
		"without events":            func(n *node) { n.watched = false },
		"an event waits":            func(n *node) { n.dirty = true },
		"something is awaited":      func(n *node) { n.files = map[string]*entry{"x": {}} },
		"times are not trusted":     func(n *node) { n.medium.DirTimes = false },
		"unreadable":                func(n *node) { n.changed = 0 },
		"listed right after change": func(n *node) { n.began-- },
		"changed since":             func(n *node) { n.changedSince = n.began + sec },
	} {
		n := known
		if doubt(&n); n.unchanged() {
			t.Errorf("%s: passed over", name)
		}
	}
}

// The marker proves that the card is there: without it nothing is taken and nothing is concluded, with it everything is,
// except the marker itself.
func TestMarker(t *testing.T) {
	for _, marker := range []string{"card-7.txt", "DCIM/.card"} {
		t.Run(marker, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newFakeSource()
				root := t.TempDir()
				h := build(t, Options{Source: source, Roots: []Root{{Name: "card", Path: root, Recursive: true, Marker: marker}}})
				write(t, h.path("DCIM/a.jpg"), "x")
				h.start()
				pass(time.Minute)
				h.expect()
				h.expectReason("", attachment.NotTakenUnavailable)
				if d := h.detail(""); d != "the card is not mounted: "+marker+" is missing" {
					t.Errorf("detail %q", d)
				}
				write(t, h.path(marker), "card 7")
				pass(35 * time.Second)
				h.Done(h.expect("DCIM/a.jpg")[0], Disposition{Kind: Stays})
				pass(5 * time.Minute)
				h.expect()
				if got := h.reasons(); len(got) != 0 || h.Stats().Roots[0].Known != 1 {
					t.Errorf("not taken: %v, %+v", got, h.Stats().Roots[0])
				}

				write(t, h.path("DCIM/b.jpg"), "x")
				source.events <- Event{Path: h.path("DCIM/b.jpg")}
				pass(time.Second)
				must(t, os.Remove(h.path(marker)))
				pass(2 * time.Second) // b.jpg has settled, and no event told of the marker
				h.expect()
				pass(time.Second)
				h.expectReason("", attachment.NotTakenUnavailable)
				write(t, h.path(marker), "card 7")
				pass(40 * time.Second)
				h.expect("DCIM/b.jpg")
			})
		})
	}
}

// A directory in the marker's place proves nothing.
func TestMarkerIsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource(), Roots: []Root{{Name: "card", Path: t.TempDir(), Recursive: true, Marker: "m"}}})
		mkdir(t, h.path("m"))
		h.start()
		pass(time.Second)
		h.expectReason("", attachment.NotTakenUnavailable)
	})
}

// A card that is exchanged while it is scanned: nothing of the walk counts, and the next one begins with nothing known.
func TestExchangedInMidScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var exchange atomic.Pointer[func()]
		fsys := durable.Hooked(func(c durable.Call) error {
			if strings.HasSuffix(c.Path, "/DCIM") && c.Op == durable.OpRead {
				if do := exchange.Swap(nil); do != nil {
					(*do)()
				}
			}
			return nil
		})
		h := build(t, Options{Source: newFakeSource(), FS: fsys})
		write(t, h.path("DCIM/a.jpg"), "first")
		write(t, h.root+".second/DCIM/a.jpg", "second")
		h.start()
		pass(3 * time.Second)
		h.Done(h.expect("DCIM/a.jpg")[0], Disposition{Kind: Stays})
		pass(time.Second)
		scans := h.Stats().Roots[0].LastScan
		swap := func() {
			must(t, os.Rename(h.root, h.root+".first"))
			must(t, os.Rename(h.root+".second", h.root))
		}
		exchange.Store(&swap)
		h.Rescan("")
		pass(50 * time.Millisecond)
		if s := h.Stats().Roots[0]; s.LastScan != scans {
			t.Errorf("a scan of two cards counts: %+v", s)
		}
		pass(3 * time.Second)
		if c := h.expect("DCIM/a.jpg")[0]; c.Identity.Size != 6 {
			t.Errorf("got %+v", c)
		}
		if s := h.Stats().Roots[0]; s.Known != 0 || s.LastScan == scans || s.Watches != 2 {
			t.Errorf("stats %+v", s)
		}
	})
}
