package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shirou/gopsutil/v3/disk"
)

// mount is a file system that answers when it is allowed to, and counts who asks.
type mount struct {
	mu      sync.Mutex
	asked   int
	stat    disk.UsageStat
	err     error
	hanging chan struct{} // not nil: calls block until it is closed
}

func (m *mount) usage(string) (*disk.UsageStat, error) {
	m.mu.Lock()
	m.asked++
	hanging := m.hanging
	m.mu.Unlock()
	if hanging != nil {
		<-hanging
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stat := m.stat
	return &stat, m.err
}

func (m *mount) askedSoFar() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// The figures are passed on as a service without privileges sees them; inodes that are not counted read as zero.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		stat        disk.UsageStat
		free, total uint64 // inodes
	}{
		"ext4": {disk.UsageStat{Total: 1000, Free: 10, Used: 900, InodesTotal: 50, InodesFree: 7}, 7, 50},
		"full": {disk.UsageStat{Total: 1000, Used: 1000, InodesTotal: 50}, 0, 50},
		"vfat": {disk.UsageStat{Total: 1000, Free: 10}, 0, 0},
		"ntfs": {disk.UsageStat{Total: 1000, Free: 10, InodesTotal: 5, InodesFree: 900}, 0, 0},
	} {
		m := &mount{stat: c.stat}
		r := New("/nonexistent/dir", Options{Usage: m.usage}).Read(t.Context())
		if !r.Known || r.Err != "" || r.FreeBytes != c.stat.Free || r.TotalBytes != 1000 || r.InodesFree != c.free || r.InodesTotal != c.total {
			t.Errorf("%s: %+v", name, r)
		}
		if r.Source != "statfs" || r.Path != "/nonexistent/dir" || r.At.IsZero() {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A refusal, and a file system that answers with zeros, are unknown, not full.
func TestUnknown(t *testing.T) {
	for name, m := range map[string]*mount{
		"input/output error":                      {err: syscall.EIO},
		"does not tell its size":                  {},
		"no such file":                            {err: &os.PathError{Op: "statfs", Path: "/x", Err: syscall.ENOENT}},
		"ask for free space: interrupted system ": {err: syscall.EINTR},
	} {
		r := New("/x", Options{Usage: m.usage}).Read(t.Context())
		if r.Known || !strings.Contains(r.Err, name) || r.Path != "/x" || r.At.IsZero() {
			t.Errorf("%s: %+v", name, r)
		}
		if want := map[bool]int{true: maxInterrupted, false: 1}[m.err == syscall.EINTR]; m.askedSoFar() != want {
			t.Errorf("%s: asked %d times, want %d", name, m.askedSoFar(), want)
		}
	}
}

// A dead mount costs each reader its deadline and the process one goroutine; its answer is taken when it comes, and
// the reading after that is a fresh one.
func TestDeadMount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mount{stat: disk.UsageStat{Total: 100, Free: 1}, hanging: make(chan struct{})}
		s := New("/x", Options{Usage: m.usage})
		for range 3 {
			start := time.Now()
			if r := s.Read(t.Context()); r.Known || !strings.Contains(r.Err, "no answer within 2s") || time.Since(start) != DefaultDeadline {
				t.Errorf("after %s: %+v", time.Since(start), r)
			}
		}
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() {
				if r := s.Read(t.Context()); !r.Known || r.FreeBytes != 1 || !r.At.Equal(time.Now()) {
					t.Errorf("the late answer: %+v", r)
				}
			})
		}
		<-time.After(time.Second)
		if m.askedSoFar() != 1 {
			t.Errorf("asked %d times while one call hangs", m.askedSoFar())
		}
		close(m.hanging)
		group.Wait()
		m.mu.Lock()
		m.hanging, m.stat.Free = nil, 2
		m.mu.Unlock()
		if r := s.Read(t.Context()); !r.Known || r.FreeBytes != 2 || m.askedSoFar() != 2 {
			t.Errorf("afterwards: %+v, asked %d times", r, m.askedSoFar())
		}
	})
}

// An answer that came while nobody waited is too old to be used.
func TestLateAnswerUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mount{stat: disk.UsageStat{Total: 100, Free: 1}, hanging: make(chan struct{})}
		s := New("/x", Options{Usage: m.usage, Deadline: time.Minute})
		if r := s.Read(t.Context()); r.Known || !strings.Contains(r.Err, "1m0s") {
			t.Errorf("%+v", r)
		}
		close(m.hanging)
		synctest.Wait()
		m.mu.Lock()
		m.stat.Free = 2
		m.mu.Unlock()
		if r := s.Read(t.Context()); r.FreeBytes != 2 {
			t.Errorf("%+v", r)
		}
	})
}

// Who stops waiting gets an answer at once.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mount{hanging: make(chan struct{})}
		defer close(m.hanging)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("shutdown"))
		start := time.Now()
		if r := New("/x", Options{Usage: m.usage}).Read(ctx); r.Known || r.Err == "" || !time.Now().Equal(start) {
			t.Errorf("after %s: %+v", time.Since(start), r)
		}
	})
}

// The real system answers for a real directory, by any of its names, with a type, and refuses one that is not there.
func TestRealFileSystem(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	a, b := New(dir, Options{}).Read(t.Context()), New(link, Options{}).Read(t.Context())
	if !a.Known || a.TotalBytes == 0 || a.FreeBytes > a.TotalBytes || a.FSType == "" || a.FSType != b.FSType || a.TotalBytes != b.TotalBytes {
		t.Errorf("%+v\n%+v", a, b)
	}
	if r := New(filepath.Join(dir, "none"), Options{}).Read(t.Context()); r.Known || !strings.Contains(r.Err, "no such file") {
		t.Errorf("%+v", r)
	}
	if got := fsTypeOf("/proc"); got != "proc" {
		t.Errorf("/proc is of type %q", got)
	}
}

const table = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /run rw,nosuid - tmpfs tmpfs rw,size=1k
31 22 8:1 / /media/my\040card rw shared:2 master:1 - vfat /dev/sda1 rw
32 30 0:26 /sub /run/x rw - fuse.sshfs me@host:/a rw
33 22 0:27 / /mnt rw - nfs4 host:/a rw
34 33 0:28 / /mnt rw - overlay overlay rw
35 22 0:29 / /mnt2
36 22 0:30 / /odd rw shared:1 -
short
`

// The longest mount point that holds the path decides, the later one of two, and damaged lines are passed over.
func TestMountType(t *testing.T) {
	for path, want := range map[string]string{
		"/": "ext4", "/home/x": "ext4", "/run": "tmpfs", "/run/y": "tmpfs", "/running": "ext4", "/run/x/z": "fuse.sshfs",
		"/media/my card/DCIM": "vfat", "/mnt/a": "overlay", "/mnt2/a": "ext4", "/odd/a": "ext4",
	} {
		if got := mountType(strings.NewReader(table), path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := mountType(strings.NewReader("\n\n - a b"), "/"); got != "" {
		t.Errorf("an empty table gives %q", got)
	}
	endless := io.MultiReader(strings.NewReader(table), strings.NewReader(strings.Repeat("x", 1<<20)))
	if got := mountType(endless, "/run/x"); got != "fuse.sshfs" {
		t.Errorf("before an endless line: %q", got)
	}
	for in, want := range map[string]string{`a\040b\011c\134d`: "a b\tc\\d", `\04`: `\04`, `\400\089`: `\400\089`, "": "", `x\377`: "x\xff"} {
		if got := unescape(in); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

// No table makes the reader fail, and a type that is found stands in a line of the table.
func FuzzMountType(f *testing.F) {
	f.Add(table, "/run/x")
	f.Add("1 2 3 4 \\057 - a", "/")
	f.Fuzz(func(t *testing.T, table, path string) {
		if got := mountType(strings.NewReader(table), path); got != "" && !strings.Contains(table, " - "+got) {
			t.Errorf("type %q is not in the table", got)
		}
	})
}

// ExampleSensor is how a caller reads: unknown comes first.
func ExampleSensor() {
	usage := func(string) (*disk.UsageStat, error) { return nil, syscall.EIO }
	r := New("/var/lib/fieldgw", Options{Usage: usage}).Read(context.Background())
	if !r.Known {
		fmt.Println(r.Err)
	}
	// Output: ask for free space: input/output error
}
