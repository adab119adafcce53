package watch

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// fakeSource is an event source that says only what a test lets it say. Like the kernel it watches directories, not
// paths, and like fsnotify it keeps the path under which a directory was added first.
type fakeSource struct {
	events chan Event
	errors chan error
	refuse func(dir string) error

	mu      sync.Mutex
	watched map[string]inode
	closed  bool
}

func newFakeSource() *fakeSource {
	return &fakeSource{events: make(chan Event), errors: make(chan error), watched: map[string]inode{}}
}

func (s *fakeSource) Add(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("closed")
	}
	if s.refuse != nil {
		if err := s.refuse(dir); err != nil {
			return err
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	id := inodeOf(info)
	for _, known := range s.watched {
		if known == id {
			return nil
		}
	}
	s.watched[dir] = id
	return nil
}

func (s *fakeSource) Remove(dir string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watched, dir)
	return nil
}

func (s *fakeSource) Events() <-chan Event { return s.events }

func (s *fakeSource) Errors() <-chan error { return s.errors }

func (s *fakeSource) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *fakeSource) watches() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.watched))
}

// harness runs a Watcher over a temporary directory.
type harness struct {
	*Watcher
	t    *testing.T
	root string
	stop func()
}

// build makes the watcher without running it. The root is a recursive watch named "w" unless the options name others.
func build(t *testing.T, opts Options) *harness {
	t.Helper()
	h := &harness{t: t}
	if len(opts.Roots) == 0 {
		opts.Roots = []Root{{Name: "w", Path: filepath.Join(t.TempDir(), "capture"), Recursive: true}}
		mkdir(t, opts.Roots[0].Path)
	}
	h.root = opts.Roots[0].Path
	w, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	h.Watcher = w
	if opts.Source != nil {
		h.fake()
	}
	return h
}

// fake makes a watcher fit for fake time: nothing waits in a system call, and no test depends on the filesystem below it
// unless it says so, since a directory may change within one step of that one's clock, hours apart.
func (h *harness) fake() {
	h.mounts = nil
	for _, tr := range h.trees {
		tr.medium = func(string) durable.Medium { return durable.Medium{Name: "the test's"} }
	}
}

// start runs it until the test ends, or until stop is called.
func (h *harness) start() *harness {
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Errorf("Run: %v", err)
		}
	})
	h.t.Cleanup(h.stop)
	return h
}

func (h *harness) path(rel string) string { return filepath.Join(h.root, rel) }

// reasons is the whole not-taken list, read in small pages: path below the first root to code.
func (h *harness) reasons() map[string]attachment.Code {
	h.t.Helper()
	all := map[string]attachment.Code{}
	for cursor := ""; ; {
		page, next := h.NotTaken(7, cursor)
		for _, n := range page {
			rel, ok := below(h.root, n.Path.Exact())
			if !ok {
				rel = n.Path.Exact()
			}
			all[rel] = n.Code
		}
		if next == "" {
			return all
		}
		cursor = next
	}
}

func (h *harness) detail(rel string) string {
	page, _ := h.NotTaken(1000, "")
	for _, n := range page {
		if n.Path.Exact() == h.path(rel) {
			return n.Detail
		}
	}
	return "(not listed)"
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// must is for calls whose failure makes a test meaningless.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience bounds every wait of the tests that use the real clock.
const patience = time.Minute

// receive waits for the next candidate by the real clock.
func (h *harness) receive() Candidate {
	h.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case c := <-h.Candidates():
		return c
	case <-deadline.C:
		h.t.Fatalf("no candidate; not taken: %v; %+v", h.reasons(), h.Stats())
		return Candidate{}
	}
}

// eventually waits by the real clock until ok.
func (h *harness) eventually(what string, ok func() bool) {
	h.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			h.t.Fatalf("never %s; not taken: %v; %+v", what, h.reasons(), h.Stats())
		}
	}
}

// collect receives candidates and answers taken, removing the files as a taker would, until it has seen all of want.
// Each is to come once.
func (h *harness) collect(want []string) {
	h.t.Helper()
	missing := map[string]bool{}
	for _, rel := range want {
		missing[rel] = true
	}
	for len(missing) > 0 {
		c := h.receive()
		if !missing[c.RelPath] {
			h.t.Fatalf("unexpected, or twice: %q", c.RelPath)
		}
		delete(missing, c.RelPath)
		must(h.t, os.Remove(c.Path))
		h.Done(c, Disposition{Kind: Taken})
	}
}
