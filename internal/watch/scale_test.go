package watch

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

var (
	manyDirs  = flag.Int("watch.dirs", 60, "directories of the tests of very many new ones")
	manyFiles = flag.Int("watch.files", 3000, "files in them")
)

// makeMany makes nested directories and fills them in one go; it returns the files' names.
func makeMany(t *testing.T, root string) (names []string) {
	t.Helper()
	for i := range *manyDirs {
		mkdir(t, filepath.Join(root, fmt.Sprintf("record-%04d/cam-%d/day", i/2, i%2)))
	}
	for i := range *manyFiles {
		dir := i % *manyDirs
		names = append(names, fmt.Sprintf("record-%04d/cam-%d/day/%06d.jpg", dir/2, dir%2, i))
		must(t, os.WriteFile(filepath.Join(root, names[i]), []byte("x"), 0o644))
	}
	return names
}

// busySource is inotify of a program that is too busy to read events until it is told to.
type busySource struct {
	EventSource
	events chan Event
	done   chan struct{}
}

func newBusySource(source EventSource, free <-chan struct{}) *busySource {
	s := &busySource{source, make(chan Event), make(chan struct{})}
	go func() {
		defer close(s.events)
		select {
		case <-free:
		case <-s.done:
		}
		for event := range source.Events() {
			select {
			case s.events <- event:
			case <-s.done:
			}
		}
	}()
	return s
}

func (s *busySource) Events() <-chan Event { return s.events }

func (s *busySource) Close() error {
	close(s.done)
	return s.EventSource.Close()
}

const queuedEvents = "/proc/sys/fs/inotify/max_queued_events"

// openWithQueue makes an inotify instance whose queue holds so many events. The limit is the whole machine's; it is read
// when an instance is made, and put back at once.
func openWithQueue(n int) (source EventSource, err error) {
	before, err := os.ReadFile(queuedEvents)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(queuedEvents, fmt.Append(nil, n), 0); err != nil {
		return nil, err
	}
	source, err = openInotify()
	if restored := os.WriteFile(queuedEvents, before, 0); restored != nil {
		return nil, restored
	}
	return source, err
}

// Many files in many new nested directories, made while nobody reads events and the kernel queues hardly any: all are
// found, because everything is scanned when events were lost, long before the periodic scan.
func TestManyNewDirectoriesWhileBusy(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv("CI") != "true" {
		t.Skip("not run: it lowers " + queuedEvents + " of the whole machine for a moment; set CI=true as root")
	}
	root := Root{Name: "w", Path: t.TempDir(), Recursive: true, Settle: 50 * time.Millisecond}
	h := build(t, Options{Rescan: time.Hour, Roots: []Root{root}})
	free := make(chan struct{})
	h.inotify = func() (EventSource, error) {
		source, err := openWithQueue(16)
		if err != nil {
			return nil, err
		}
		return newBusySource(source, free), nil
	}
	h.start()
	h.eventually("scanned", func() bool { return h.Stats().Roots[0].Available })
	names := makeMany(t, h.root)
	close(free)
	began := time.Now()
	h.collect(names)
	s := h.Stats().Roots[0]
	if s.Overflows == 0 || s.NotWatched != 0 {
		t.Errorf("stats %+v", s)
	}
	t.Logf("%d files in %d directories found within %s: %d overflows, %d found by rescan, %d watches", len(names), s.Dirs,
		time.Since(began).Round(time.Millisecond), s.Overflows, s.FoundByRescan, s.Watches)
}

const fewWatchesVar = "FIELDGW_WATCH_TEST_FEW"

// The same with a tenth of the watches that it takes: all are found, and the status says what is the matter and what to
// raise. The limit is that of a user namespace of its own, in which the test runs itself.
func TestManyNewDirectoriesWithFewWatches(t *testing.T) {
	if os.Getenv(fewWatchesVar) != "" {
		fewWatches(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v",
		fmt.Sprintf("-watch.dirs=%d", *manyDirs), fmt.Sprintf("-watch.files=%d", *manyFiles))
	cmd.Env = append(os.Environ(), fewWatchesVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if cmd.Process == nil {
		t.Skipf("not run: no user namespace can be made here: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func fewWatches(t *testing.T) {
	limit := *manyDirs / 10
	must(t, os.WriteFile("/proc/sys/user/max_inotify_watches", fmt.Append(nil, limit), 0))
	h := real(t, 200*time.Millisecond)
	names := makeMany(t, h.root)
	began := time.Now()
	h.collect(names)
	took := time.Since(began)
	h.eventually("all counted by one scan", func() bool {
		s := h.Stats().Roots[0]
		return s.Dirs == 1+*manyDirs/2+2**manyDirs && s.NotWatched == s.Dirs-limit
	})
	s := h.Stats().Roots[0]
	if s.Watches != limit || !strings.Contains(s.NotWatchedWhy, "fs.inotify.max_user_watches") || !s.Available {
		t.Errorf("stats %+v", s)
	}
	listed := 0
	for _, code := range h.reasons() {
		if code == attachment.NotTakenNotWatched {
			listed++
		}
	}
	if listed != s.NotWatched {
		t.Errorf("%d directories are listed as not watched, want %d", listed, s.NotWatched)
	}
	t.Logf("%d files found within %s: %d of %d directories not watched (%s), %d found by rescan", len(names),
		took.Round(time.Millisecond), s.NotWatched, s.Dirs, s.NotWatchedWhy, s.FoundByRescan)
}

// While a crowd of files that a scan found fills its room and waits for a taker who is slow, a new file that an event
// announces has room of its own, and goes ahead of most of them.
func TestNewFilePassesCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source})
		h.trees[0].limits.fresh = 400
		for i := range 1000 {
			write(t, h.path(fmt.Sprintf("crowd/%04d.jpg", i)), "x")
		}
		h.start()
		pass(5 * time.Second)
		if s := h.Stats().Roots[0]; s.Observed != 300 || s.Left != 700 {
			t.Fatalf("stats %+v", s)
		}
		write(t, h.path("new/a.jpg"), "x")
		source.events <- Event{Path: h.path("new")}
		pass(5 * time.Second)
		taken := 0
		for c := range h.Candidates() {
			if h.Done(c, Disposition{Kind: Stays}); c.ParentDir == "new" {
				break
			}
			if taken++; taken > 2*handOver {
				t.Fatalf("%d old files came first", taken)
			}
			pass(10 * time.Millisecond)
		}
	})
}

// Announced files and found ones take turns, none is lost, and entries that left the phase are skipped.
func TestQueueTurns(t *testing.T) {
	var q queue
	var want []*entry
	for i := range 6 {
		e := &entry{phase: ready, walked: i >= 2}
		q.add(e, 100)
		q.add(e, 100)
		want = append(want, e)
	}
	want[3].phase = settling
	for i, e := range []*entry{want[0], want[2], want[1], want[4], want[5], nil} {
		if got := q.next(); got != e {
			t.Errorf("turn %d: got %p, want %p of %p", i, got, e, want)
		}
	}
	if q.len() != 0 {
		t.Errorf("%d left", q.len())
	}
}

// While a large directory is listed, in a scan of everything or because of an event, a new file elsewhere is found, settles
// and is offered.
func TestCrowdDoesNotStall(t *testing.T) {
	for name, list := range map[string]func(h *harness){
		"scan of everything": func(h *harness) { h.Rescan("") },
		"event":              func(h *harness) { h.trees[0].mark(h.path("crowd/000000.jpg")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { crowd(t, list) })
		})
	}
}

func crowd(t *testing.T, list func(h *harness)) {
	var began func() // called in the loop when it begins to list the crowd
	fsys := durable.Hooked(func(c durable.Call) error {
		if c.Op == durable.OpRead && strings.HasSuffix(c.Path, "/crowd") && began != nil {
			began()
		}
		return nil
	})
	h := build(t, Options{Source: newFakeSource(), FS: fsys})
	tr := h.trees[0]
	write(t, h.path("crowd/one"), "x")
	const files = 8000
	for i := range files {
		must(t, os.Link(h.path("crowd/one"), h.path(fmt.Sprintf("crowd/%06d.jpg", i))))
	}
	var found atomic.Bool
	go func() {
		for c := range h.Candidates() {
			if c.ParentDir == "new" {
				found.Store(true)
			}
			h.Done(c, Disposition{Kind: Stays})
		}
	}()
	// From some time on every look at a file takes a millisecond, so that a listing takes far longer than settling.
	var (
		slow  atomic.Bool
		looks atomic.Int64
		clock = tr.now
	)
	tr.now = func() time.Duration {
		if slow.Load() {
			looks.Add(1)
		}
		return clock() + time.Duration(looks.Load())*time.Millisecond
	}
	meanwhile, probe := false, tr.probe
	tr.probe = func(path string) (attachment.SourceIdentity, writers, error) {
		if n := tr.top.kids["crowd"]; path == h.path("new/a.jpg") {
			meanwhile = n.listing
		}
		return probe(path)
	}
	armed := make(chan struct{})
	start := func() {
		select {
		case <-armed:
		default:
			return
		}
		began = nil
		slow.Store(true)
		write(t, h.path("new/a.jpg"), "x")
		tr.mark(h.path("new"))
	}
	began = start
	h.start()
	pass(time.Minute)
	if n := h.Stats().Roots[0].Known; n != files+1 {
		t.Fatalf("%d known", n)
	}
	close(armed)
	list(h)
	pass(10 * time.Second)
	h.stop()
	if !found.Load() || !meanwhile {
		t.Errorf("offered %v, while the crowd was listed %v", found.Load(), meanwhile)
	}
}
