package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// real runs a watcher on the kernel's events. The rescan is so rare that only events can have found what a test waits
// for, unless the test asks for less.
func real(t *testing.T, rescan time.Duration, prepare ...func(root string)) *harness {
	t.Helper()
	root := filepath.Join(t.TempDir(), "capture")
	mkdir(t, root)
	for _, p := range prepare {
		p(root)
	}
	h := build(t, Options{Rescan: rescan, Roots: []Root{
		{Name: "w", Path: root, Recursive: true, Settle: 50 * time.Millisecond},
	}}).start()
	h.eventually("scanned", func() bool { return h.Stats().Roots[0].Available })
	return h
}

// A file that a program keeps open is never offered, however long it pauses, and is offered whole once it is closed.
func TestSlowWriter(t *testing.T) {
	h := real(t, time.Hour)
	f, err := os.Create(h.path("video.mp4"))
	must(t, err)
	for range 3 {
		_, err := f.WriteString(strings.Repeat("v", 1000))
		must(t, err)
		info, err := f.Stat()
		must(t, err)
		h.eventually("found open after a pause", func() bool {
			page, _ := h.NotTaken(1, "")
			return len(page) == 1 && page[0].Code == attachment.NotTakenOpen && page[0].Size == info.Size()
		})
	}
	select {
	case c := <-h.Candidates():
		t.Fatalf("offered while open: %+v", c)
	default:
	}
	must(t, f.Close())
	if c := h.receive(); c.Identity.Size != 3000 || c.Evidence != attachment.EvidenceLease {
		t.Errorf("got %+v", c)
	}
}

// A mapping that outlives its descriptor can still be written through: the lease sees it.
func TestMappedWriter(t *testing.T) {
	h := real(t, time.Hour)
	f, err := os.Create(h.path("map.bin"))
	must(t, err)
	must(t, f.Truncate(4096))
	mapped, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	must(t, f.Close())
	h.eventually("found open", func() bool { return h.reasons()["map.bin"] == attachment.NotTakenOpen })
	mapped[0] = 'x'
	must(t, unix.Munmap(mapped))
	if c := h.receive(); c.RelPath != "map.bin" {
		t.Errorf("got %+v", c)
	}
}

// Write to a temporary name, then rename: the temporary name is listed and never offered, the final one is.
func TestWriteThenRename(t *testing.T) {
	h := real(t, time.Hour)
	for _, temporary := range []string{".a.jpg.Xy12Zz", "a.jpg.part"} {
		write(t, h.path(temporary), "whole")
		h.eventually("listed", func() bool { return h.reasons()[temporary] == attachment.NotTakenTemporary })
		must(t, os.Rename(h.path(temporary), h.path("a.jpg")))
		h.collect([]string{"a.jpg"})
		h.eventually("forgotten", func() bool { return len(h.reasons()) == 0 })
	}
}

// Directories that are created and filled in one go, moved in, and renamed with what is in them: no file is missed.
func TestNestedDirectories(t *testing.T) {
	h := real(t, time.Hour)
	var names []string
	for i := range 20 {
		name := fmt.Sprintf("i-%d/a/b/c/d/photo.jpg", i)
		names = append(names, name, fmt.Sprintf("i-%d/notes.txt", i))
		write(t, h.path(name), "x")
		write(t, h.path(names[len(names)-1]), "x")
	}
	h.collect(names)

	outside := h.root + ".outside"
	write(t, filepath.Join(outside, "x/y/z.jpg"), "x")
	must(t, os.Rename(outside, h.path("moved")))
	h.collect([]string{"moved/x/y/z.jpg"})

	must(t, os.Rename(h.path("moved"), h.path("renamed")))
	write(t, h.path("renamed/x/y/after.jpg"), "x")
	h.collect([]string{"renamed/x/y/after.jpg"})
	write(t, h.path("renamed/x/y/later.jpg"), "x") // its watch follows the new name
	h.collect([]string{"renamed/x/y/later.jpg"})

	must(t, os.RemoveAll(h.path("renamed")))
	mkdir(t, h.path("renamed/x/y")) // very likely the same inode numbers
	write(t, h.path("renamed/x/y/again.jpg"), "x")
	h.collect([]string{"renamed/x/y/again.jpg"})
	write(t, h.path("renamed/x/y/once-more.jpg"), "x")
	h.collect([]string{"renamed/x/y/once-more.jpg"})

	if n := h.Stats().Roots[0].FoundByRescan; n != 0 {
		t.Errorf("%d found by a rescan only", n)
	}
}

// Two directories that exchange their names keep their events apart.
func TestSwappedDirectories(t *testing.T) {
	h := real(t, time.Hour, func(root string) {
		mkdir(t, filepath.Join(root, "a"))
		mkdir(t, filepath.Join(root, "b"))
	})
	for i := range 5 {
		must(t, unix.Renameat2(unix.AT_FDCWD, h.path("a"), unix.AT_FDCWD, h.path("b"), unix.RENAME_EXCHANGE))
		first, second := fmt.Sprintf("a/%d.jpg", i), fmt.Sprintf("b/%d.jpg", i)
		write(t, h.path(first), "x")
		write(t, h.path(second), "x")
		h.collect([]string{first, second})
	}
}

// A root that is deleted is unavailable; recreated it is found by the rescan and then watched again.
func TestRootRecreated(t *testing.T) {
	h := real(t, 100*time.Millisecond)
	for i := range 3 {
		must(t, os.RemoveAll(h.root))
		h.eventually("unavailable", func() bool { return h.reasons()[""] == attachment.NotTakenUnavailable })
		name := fmt.Sprintf("i-%d/a.jpg", i)
		write(t, h.path(name), "x")
		h.collect([]string{name})
		h.eventually("watched", func() bool { return h.Stats().Roots[0].Watches == 2 })
		if code := h.reasons()[""]; code != "" {
			t.Errorf("still %q", code)
		}
	}
}

// Names of any bytes come out as they are, as deep as they may be.
func TestForeignNames(t *testing.T) {
	h := real(t, time.Hour)
	names := []string{
		"caf\xe9.jpg", "\xff\xfe\xfd", "new\nline.jpg", "tab\t.jpg", "\x1b[31mred.jpg", "\u202egpj.exe", "😀.jpg", "a:b?.jpg", "trailing. ",
		strings.Repeat("n", 255), strings.Repeat("d", 255) + "/" + strings.Repeat("\xfc", 255), "inspection\n7/\xe9/photo.jpg",
	}
	write(t, h.path("..."), "x")
	for _, name := range names {
		write(t, h.path(name), "x")
	}
	h.collect(names)
	h.eventually("down to the hidden name", func() bool {
		got := h.reasons()
		return len(got) == 1 && got["..."] == attachment.NotTakenTemporary
	})
}

// Two thousand files at once come out once each.
func TestManyFilesAtOnce(t *testing.T) {
	h := real(t, time.Hour)
	names := make([]string, 2000)
	for i := range names {
		names[i] = fmt.Sprintf("i-%d/%04d.jpg", i%7, i)
		write(t, h.path(names[i]), "x")
	}
	h.collect(names)
	h.eventually("empty", func() bool { return h.Stats().Roots[0].Observed == 0 })
	select {
	case c := <-h.Candidates():
		t.Errorf("one more: %+v", c)
	default:
	}
}

// A hard link makes the file appear twice, and a file that is replaced by another one is another file.
func TestLinkAndReplace(t *testing.T) {
	h := real(t, time.Hour)
	write(t, h.root+".source", "linked")
	must(t, os.Link(h.root+".source", h.path("link.jpg")))
	c := h.receive()
	h.Done(c, Disposition{Kind: Stays})
	write(t, h.root+".other", "another")
	must(t, os.Rename(h.root+".other", h.path("link.jpg")))
	if second := h.receive(); second.RelPath != "link.jpg" || second.Identity.Inode == c.Identity.Inode || second.Identity.Size != 7 {
		t.Errorf("got %+v after %+v", second, c)
	}
}

// One directory under two watches is taken under one of them only, and the other says why.
func TestSameDirectoryTwice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not run: a bind mount needs root")
	}
	h := real(t, 100*time.Millisecond)
	mkdir(t, h.path("bound"))
	if err := unix.Mount(h.root, h.path("bound"), "", unix.MS_BIND, ""); err != nil {
		t.Skipf("not run: bind mounts are not possible here: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(h.path("bound"), unix.MNT_DETACH)) })
	h.eventually("refused", func() bool { return h.reasons()["bound"] == attachment.NotTakenSpecial })
	write(t, h.path("a.jpg"), "x")
	h.collect([]string{"a.jpg"})
	h.Rescan("")
	h.eventually("quiet", func() bool { return h.Stats().Roots[0].Observed == 0 })
}

// Overflow of the kernel's own queue: what it dropped is found at once.
func TestKernelOverflow(t *testing.T) {
	source, err := openInotify()
	must(t, err)
	dir := t.TempDir()
	must(t, source.Add(dir))
	// Nobody reads, so the kernel's queue fills.
	limit := queueLimit(t)
	for i := range limit + 2000 {
		must(t, unix.Mknod(filepath.Join(dir, fmt.Sprintf("%06d", i)), unix.S_IFREG|0o600, 0))
	}
	overflow := make(chan error, 1)
	go func() {
		for err := range source.Errors() {
			select {
			case overflow <- err:
			default:
			}
		}
		close(overflow)
	}()
	events := 0
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		select {
		case <-source.Events():
			events++
			continue
		case err := <-overflow:
			if !isOverflow(err) {
				t.Errorf("got %v after %d events", err, events)
			}
		case <-deadline.C:
			t.Errorf("no overflow after %d events", events)
		}
		break
	}
	must(t, source.Close())
	for range overflow {
	}
}

// fsnotify loses track when two watched directories exchange their names just before one of them is added again. That
// does not bring the daemon down, and with a directory added again whenever it is named by an event, as every scan does,
// both are watched in the end.
func TestExchangedWatches(t *testing.T) {
	source, err := openInotify()
	must(t, err)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{dir, a, b} {
		mkdir(t, d)
		must(t, source.Add(d))
	}
	// Nobody reads the events, so fsnotify has not heard yet that the directories moved.
	must(t, unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
	must(t, source.Add(a))
	for _, d := range []string{a, b, a, b} {
		if err := source.Remove(d); err != nil {
			t.Logf("remove: %v", err)
		}
	}
	again := func(d string) {
		must(t, source.Add(d))
		write(t, filepath.Join(d, "file"), "x")
	}
	again(a)
	again(b)
	missing := map[string]bool{filepath.Join(a, "file"): true, filepath.Join(b, "file"): true}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for len(missing) > 0 {
		select {
		case event := <-source.Events():
			delete(missing, event.Path)
			if event.Path == a || event.Path == b {
				again(event.Path)
			}
		case err := <-source.Errors():
			t.Log(err)
		case <-deadline.C:
			t.Fatalf("no events of %v", missing)
		}
	}
	must(t, source.Close())
}
