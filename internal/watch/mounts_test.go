package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Lines of the mount table become points with their real names; mounts on one point count together.
func TestParseMounts(t *testing.T) {
	got := parseMounts("22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n" +
		"40 22 8:17 / /media/SD\\040card\\134\\012x rw - vfat /dev/sdb1 rw\n" +
		"41 40 0:50 / /media/SD\\040card\\134\\012x rw - tmpfs none rw\n" +
		"too short\n")
	want := map[string]string{"/": "22 1 8:2 /;", "/media/SD card\\\nx": "40 22 8:17 /;41 40 0:50 /;"}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// fakeMounts is a mount table that changes when a test says so.
type fakeMounts struct {
	points chan map[string]string
	now    map[string]string
	closed bool
}

func (m *fakeMounts) Points() (map[string]string, error) { return maps.Clone(m.now), nil }

func (m *fakeMounts) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case points := <-m.points:
		if points == nil {
			return errors.New("the table is gone")
		}
		m.now = points
		return nil
	}
}

func (m *fakeMounts) Close() error {
	m.closed = true
	return nil
}

// A change of mounts on the way to a root, on it or below it has it scanned at once; elsewhere it costs nothing. Files that
// stayed are looked at again when the medium may be another one. Without a table the watcher goes on.
func TestMountsCauseScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := build(t, Options{Source: newFakeSource()})
		table := &fakeMounts{points: make(chan map[string]string), now: map[string]string{"/": "1;"}}
		h.mounts = func() (mountTable, error) {
			<-time.After(time.Millisecond) // in fake time: all that could go on without the table has
			if s := h.Stats().Roots[0]; !s.LastScan.IsZero() {
				t.Error("mounts are read after the first scan: what is mounted in between is missed")
			}
			return table, nil
		}
		write(t, h.path("a.jpg"), "x")
		h.start()
		pass(3 * time.Second)
		h.Done(h.expect("a.jpg")[0], Disposition{Kind: Stays})
		for _, tc := range []struct {
			point         string
			scanned, anew bool
		}{
			{filepath.Dir(h.root), true, true},
			{h.root, true, true},
			{h.path("sub/deep"), true, false},
			{h.root + "2", false, false},
			{"/elsewhere", false, false},
		} {
			for _, points := range []map[string]string{{"/": "1;", tc.point: "2;"}, {"/": "1;", tc.point: "3;"}, {"/": "1;"}} {
				pass(time.Second)
				before := h.Stats().Roots[0].LastScan
				table.points <- points
				pass(3 * time.Second)
				if scanned := h.Stats().Roots[0].LastScan != before; scanned != tc.scanned {
					t.Fatalf("%s with %v: scanned %v", tc.point, points, scanned)
				}
				got := h.waiting()
				if anew := len(got) == 1; anew != tc.anew {
					t.Fatalf("%s with %v: offered again %v", tc.point, points, got)
				}
				for _, c := range got {
					h.Done(c, Disposition{Kind: Stays})
				}
			}
			pass(30 * time.Second)
		}
		table.points <- nil
		write(t, h.path("b.jpg"), "x")
		pass(time.Minute)
		h.expect("b.jpg")
		if !table.closed {
			t.Error("the table that failed stays open")
		}
	})
}

// mountable skips where mounts cannot be made.
func mountable(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run: mounts need root")
	}
}

// mount mounts a tmpfs until the test ends or the function that is returned is called.
func mount(t *testing.T, dir string) (unmount func()) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("not run: mounts are not possible here: %v", err)
	}
	mounted := true
	unmount = func() {
		if mounted {
			mounted = false
			must(t, unix.Unmount(dir, unix.MNT_DETACH))
		}
	}
	t.Cleanup(unmount)
	return unmount
}

// A real mount over a watched root and below it hides what was watched, and its end uncovers it, both without an event:
// the files on either side are found at once, and events are heard again from then on.
func TestRealMounts(t *testing.T) {
	mountable(t)
	h := real(t, time.Hour)
	for _, dir := range []string{".", "sub"} {
		mkdir(t, h.path(dir))
		take := func(name string) {
			t.Helper()
			write(t, h.path(filepath.Join(dir, name)), "x")
			h.collect([]string{filepath.Join(dir, name)})
		}
		take("before.jpg")
		for i := range 3 {
			unmount := mount(t, h.path(dir))
			take(fmt.Sprintf("in-%d.jpg", i))
			take(fmt.Sprintf("later-%d.jpg", i))
			unmount()
			take(fmt.Sprintf("under-%d.jpg", i))
			take(fmt.Sprintf("after-%d.jpg", i))
		}
	}
	if s := h.Stats().Roots[0]; !s.Available || s.Watches != 2 {
		t.Errorf("stats %+v", s)
	}
}

// On a FUSE filesystem, here one below a watched root, what the program behind it changes makes no event, and a lease knows
// only of those who write through the mount: the root is polled, and what is taken says that it rests on quiet alone.
func TestFuse(t *testing.T) {
	mountable(t)
	behind := t.TempDir()
	h := real(t, time.Hour)
	mkdir(t, h.path("share"))
	loopback, err := fs.NewLoopbackRoot(behind)
	must(t, err)
	server, err := fs.Mount(h.path("share"), loopback, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true}})
	if err != nil {
		t.Skipf("not run: FUSE cannot be used here: %v", err)
	}
	t.Cleanup(func() {
		h.stop()
		must(t, server.Unmount())
	})
	h.eventually("polled", func() bool { return h.Stats().Roots[0].Polled != "" })
	if s := h.Stats().Roots[0]; s.Polled != "FUSE does not tell what others change on it" || s.Reason != "" {
		t.Errorf("stats %+v", s)
	}
	open, err := os.Create(filepath.Join(behind, "a.jpg"))
	must(t, err)
	_, err = open.WriteString("x")
	must(t, err)
	c := h.receive()
	if c.RelPath != "share/a.jpg" || c.Evidence != attachment.EvidenceSettled {
		t.Errorf("with its writer behind the mount: got %+v", c)
	}
	must(t, open.Close())
}

// The table is not in the runtime's poller: each look at it takes the one notice of a change, so two would race for it and a
// mount would be found by the periodic scan only.
func TestMountTableIsPolledOnce(t *testing.T) {
	table, err := openMounts()
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	fd := int(table.(*kernelMounts).file.Fd())
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	must(t, err)
	for _, path := range infos {
		text, err := os.ReadFile(path)
		if err == nil && regexp.MustCompile(fmt.Sprintf(`(?m)^tfd:\s+%d\s`, fd)).Match(text) {
			t.Errorf("an epoll instance watches the table:\n%s", text)
		}
	}
}
