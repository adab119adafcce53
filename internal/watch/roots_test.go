package watch

import (
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
		write(t, h.path(".fieldgw-release-01a22e73-ee3a-7b06-bf96-58df924c8317"), "x")
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
		h.fake()
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
