package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// Root is one capture directory.
type Root struct {
	// Name is the watch's name, unique among the roots.
	Name string
	// Path is absolute and clean. It need not exist yet; a symbolic link there is not followed.
	Path string
	// Recursive: directories below are watched too, hidden ones and symbolic links excepted.
	Recursive bool
	// Include and Exclude are path.Match patterns on base names. An empty Include takes every file; Exclude is stronger.
	Include, Exclude []string
	// Temporary are path.Match patterns on base names of unfinished files, besides those that are known (names.go).
	Temporary []string
	// Settle is how long a file must be unchanged before it counts as complete; 0 means 2 s. Where times are coarse or
	// nothing is known about them it is at least 10 s.
	Settle time.Duration
	// Sidecars: the JSON files that package sidecar names are no evidence of their own; they are offered as what they are.
	Sidecars bool
	// Poll: scan every 5 s, whatever events there are. Filesystems that others change unseen are polled anyway.
	Poll bool
	// Marker is the path of a file below Path that proves that the medium is there; without it the root is unavailable.
	// It is no candidate. Empty: nothing needs to be proven.
	Marker string
}

// Candidate is a file that looks complete. The taker opens it and compares Identity: the file may have changed since.
type Candidate struct {
	Watch string
	// Root is the path of the watch's directory. Path and RelPath are raw bytes, not necessarily UTF-8.
	Root, Path, RelPath string
	// ParentDir is the first directory below the root that the file lies in; empty when it lies directly in the root.
	ParentDir string
	Identity  attachment.SourceIdentity
	// Evidence is what completeness rests on: lease or settled.
	Evidence attachment.Evidence
	// Empty: the file has no bytes and had none for the whole time of grace.
	Empty bool
	// Sidecar: it says what other files belong to.
	Sidecar bool
}

// Kind says what a taker did with a candidate.
type Kind string

// The kinds of dispositions.
const (
	// Taken: custody is taken; the path is forgotten, and what stands there later is a new file.
	Taken Kind = "taken"
	// Stays: the source stays in place and is known. It is not offered again unless its identity changes, this process
	// restarts or the memory for such files is full.
	Stays Kind = "stays"
	// Again: not taken for the reason in Code. It is offered again after Retry, or when it changed and settled.
	Again Kind = "again"
)

// Disposition is the taker's answer to a candidate.
type Disposition struct {
	Kind Kind
	// Code and Detail are shown in NotTaken while an Again lasts.
	Code   attachment.Code
	Detail string
	// Retry is when an Again is due, 0 means 30 s; at least 100 ms.
	Retry time.Duration
}

// Options are what a Watcher needs.
type Options struct {
	Roots []Root
	// Rescan is the interval of the periodic scan of everything (0: 30 s); a tree that takes longer than a tenth of it is
	// scanned less often.
	Rescan time.Duration
	// EmptyGrace is how long, in running time, a file may be empty before it is offered as empty (0: 10 min).
	EmptyGrace time.Duration
	// Source gives the events; nil means inotify, and that mounts are followed. Run closes it.
	Source EventSource
	// Now is the wall clock, for times that are shown; nil means time.Now.
	Now func() time.Time
	// FS and Logger default to the operating system and to silence.
	FS     *durable.FS
	Logger *slog.Logger
}

// Watcher turns capture directories into candidates. Its methods may be called from any goroutine.
type Watcher struct {
	opts     Options
	registry *registry
	trees    []*tree
	out      chan Candidate
	started  atomic.Bool
	inotify  func() (EventSource, error)
	mounts   func() (mountTable, error) // nil: they are not followed
	// deaf is why there are no events, as it was logged last; only open uses it.
	deaf string
}

// New checks the options and starts nothing. Errors wrap ErrOptions.
func New(opts Options) (*Watcher, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	w := &Watcher{opts: opts, registry: newRegistry(), out: make(chan Candidate, handOver), inotify: openInotify}
	if opts.Source == nil {
		w.mounts = openMounts
	}
	start := time.Now()
	for _, root := range opts.Roots {
		w.trees = append(w.trees, newTree(opts, root, w.registry, w.out, start))
	}
	return w, nil
}

// complete fills in defaults and reports every problem at once.
func (o *Options) complete() error {
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, args...))
	}
	if o.Rescan < 0 || o.EmptyGrace < 0 {
		problem("an interval is negative")
	}
	o.Roots = append([]Root(nil), o.Roots...)
	names := map[string]bool{}
	for i := range o.Roots {
		root := &o.Roots[i]
		if root.Name == "" || names[root.Name] {
			problem("watch %q: the name is empty or not unique", root.Name)
		}
		names[root.Name] = true
		if !filepath.IsAbs(root.Path) || filepath.Clean(root.Path) != root.Path {
			problem("watch %q: path %q is not absolute and clean", root.Name, root.Path)
		}
		if root.Settle < 0 {
			problem("watch %q: settle is negative", root.Name)
		}
		if err := root.nameRules().check(); err != nil {
			problem("watch %q: %w", root.Name, err)
		}
		if root.Marker != "" && (!filepath.IsLocal(root.Marker) || filepath.Clean(root.Marker) != root.Marker || root.Marker == ".") {
			problem("watch %q: marker %q is not a clean path below the directory", root.Name, root.Marker)
		}
		root.Settle = orDefault(root.Settle, defaultSettle)
	}
	o.Rescan, o.EmptyGrace = orDefault(o.Rescan, defaultRescan), orDefault(o.EmptyGrace, defaultEmptyGrace)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FS == nil {
		o.FS = durable.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: %w", ErrOptions, errors.Join(problems...))
	}
	return nil
}

func orDefault(d, fallback time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return d
}

// Run watches until ctx ends, then closes the channel of candidates and returns nil, or what closing the source of events
// said. It may be called once; a second call returns ErrRunning. A file system that does not answer delays its return.
func (w *Watcher) Run(ctx context.Context) error {
	if !w.started.CompareAndSwap(false, true) {
		return ErrRunning
	}
	var (
		group   sync.WaitGroup
		closing error
	)
	source := w.open()
	table, points := w.mounted()
	group.Go(func() { closing = w.listen(ctx, source) })
	if table != nil {
		group.Go(func() { w.followMounts(ctx, table, points) })
	}
	for _, t := range w.trees {
		group.Go(func() { t.run(ctx) })
	}
	group.Wait()
	close(w.out)
	return closing
}

// Pulses are those of the loops, one of each root. A loop that lists a large tree beats as it gets on.
func (w *Watcher) Pulses() []*clock.Pulse {
	pulses := make([]*clock.Pulse, len(w.trees))
	for i, t := range w.trees {
		pulses[i] = t.pulse
	}
	return pulses
}

// Candidates is where settled files come out. At most 64 wait in it; those that nobody reads wait in their directories.
// Each one that is received must be answered by Done.
func (w *Watcher) Candidates() <-chan Candidate { return w.out }

// Done gives the taker's answer to a candidate. It never blocks; an answer to a candidate that is not out is ignored.
func (w *Watcher) Done(c Candidate, d Disposition) {
	if t := w.tree(c.Watch); t != nil {
		t.answer(c, d)
	}
}

// Reconsider has a path that the taker knows looked at and offered once more, now that something else has changed what it
// means. A path that is on its way already is offered as it would have been.
func (w *Watcher) Reconsider(watch, rel string) {
	if t := w.tree(watch); t != nil {
		t.reconsider(rel)
	}
}

// Rescan has one watch scanned completely, or all of them when the name is empty. It does not wait for the scan.
func (w *Watcher) Rescan(watch string) {
	for _, t := range w.trees {
		if watch == "" || t.root.Name == watch {
			t.wantWalk()
		}
	}
}

func (w *Watcher) tree(name string) *tree {
	for _, t := range w.trees {
		if t.root.Name == name {
			return t
		}
	}
	return nil
}
