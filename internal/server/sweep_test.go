package server

import (
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// attempt delivers a file from wherever it stands, as a device that repeats itself does. It returns the receipt as it was
// answered, which is the same each time, or nothing where it cannot be had.
func (r *rig) attempt(f file) string {
	r.t.Helper()
	if f.as != reserved {
		return r.attemptCreated(f)
	}
	for range 10 {
		a := r.put(f, "")
		if a.status >= 400 {
			continue
		}
		if up := decode[wire.Attachment](a).Upload; up != nil && up.Offset < f.facts.Length {
			at := up.Offset
			for a = r.patch(up.URL, at, f.bytes[at:min(at+4, f.facts.Length)]); a.status == 204 && a.offset() < f.facts.Length; {
				at = a.offset()
				a = r.patch(up.URL, at, f.bytes[at:min(at+4, f.facts.Length)])
			}
			if a.status != 204 {
				continue
			}
		}
		if a = r.register(f); a.status == 200 {
			return r.same(f, string(a.body))
		}
	}
	return ""
}

// same notes the receipt of a file, which is the same each time, and returns it.
func (r *rig) same(f file, rec string) string {
	r.t.Helper()
	if was, again := r.receipts[f.id]; again && was != rec {
		r.t.Errorf("receipt was\n%s, now it is\n%s", was, rec)
	}
	r.receipts[f.id] = rec
	return rec
}

// finish is an attempt that must succeed.
func (r *rig) finish(f file) string {
	r.t.Helper()
	rec := r.attempt(f)
	if rec == "" {
		r.t.Fatalf("%s cannot be delivered", f.id)
	}
	return rec
}

// fault is what happens at one file operation.
type fault struct {
	name string
	err  error
	// ops are the operations that it can happen to; none means all.
	ops []durable.Op
	// lossy: what the file took since its last fsync is gone, as it is once the kernel has let go of the pages.
	lossy bool
	// dead: every later operation fails too, as if the process had died there.
	dead bool
}

var allocating = []durable.Op{
	durable.OpCreate, durable.OpWrite, durable.OpTruncate, durable.OpSync, durable.OpSyncDir, durable.OpRename, durable.OpMkdir,
}

var faults = []fault{
	{name: "EIO", err: unix.EIO},
	{name: "ENOSPC", err: unix.ENOSPC, ops: allocating},
	{name: "EDQUOT", err: unix.EDQUOT, ops: allocating},
	{name: "short write", err: &durable.ShortWrite{N: 3, Err: unix.ENOSPC}, ops: []durable.Op{durable.OpWrite}},
	{name: "failed fsync", err: unix.EIO, ops: []durable.Op{durable.OpSync, durable.OpSyncDir}, lossy: true},
	{name: "death", err: errors.New("process died"), dead: true},
}

// breaker lets the n-th operation that its fault can happen to fail, once it is armed.
type breaker struct {
	fault  fault
	n      int
	medium *medium

	mu     sync.Mutex
	armed  bool
	count  int
	failed durable.Call // the operation; none while it was not reached
}

func (b *breaker) hook(c durable.Call) error {
	if err := b.medium.hook(c); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.armed:
		return nil
	case b.failed.Op != "":
		if b.fault.dead {
			return b.fault.err
		}
		return nil
	case len(b.fault.ops) > 0 && !slices.Contains(b.fault.ops, c.Op):
		return nil
	}
	if b.count++; b.count <= b.n {
		return nil
	}
	b.failed = c
	if b.fault.lossy && c.Op == durable.OpSync {
		b.medium.drop(c.Path)
	}
	return b.fault.err
}

func (b *breaker) arm(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = on
}

// stride is how many operations lie between two that fail; the first is drawn, so that over many runs every one does.
var stride = flag.Int("server.stride", 4, "let only every n-th operation fail; 1 for all")

// Whichever single file operation of the server fails, and in whichever way, or is the last one of its process: nothing
// that was answered is taken back, nothing wrong is served, and a device that repeats itself gets its files delivered.
func TestEveryOperationFailsOnce(t *testing.T) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			base := newRig(t)
			files := sc.prepare(base)
			base.close()
			for _, ft := range faults {
				t.Run(ft.name, func(t *testing.T) {
					t.Parallel()
					n := rand.IntN(*stride)
					for ; sweepOnce(t, base, sc, files, ft, n); n += *stride {
						if t.Failed() {
							t.Fatalf("at operation %d", n)
						}
					}
					t.Logf("%d operations, one of %d", n, *stride)
					if len(ft.ops) == 0 && n < 5 || sc.name == "deliver" && n < 1 {
						t.Errorf("only %d operations: the sweep does not reach what it is for", n)
					}
				})
			}
		})
	}
}

// sweepOnce lives through one scenario on a copy of the prepared directory with a fault at operation n, and then without.
// It reports whether the fault was reached.
func sweepOnce(t *testing.T, base *rig, sc scenario, files []file, ft fault, n int) bool {
	b := &breaker{fault: ft, n: n, medium: newMedium(t)}
	copied := *base
	r := &copied
	r.t, r.dir, r.receipts = t, filepath.Join(t.TempDir(), "data"), maps.Clone(base.receipts)
	r.opts.Dir, r.opts.FS = r.dir, durable.Hooked(b.hook)
	b.medium.root = r.dir
	check(t, os.CopyFS(r.dir, os.DirFS(base.dir)))
	b.medium.adopt()
	if sc.atStart {
		b.arm(true)
		for range 3 {
			if err := r.tryOpen(); err == nil {
				break
			}
		}
	} else {
		r.open()
		b.arm(true)
	}
	told := false
	if r.server != nil {
		told = sc.run(r, files)
	}
	b.arm(false)
	r.close()
	r.opts.FS = durable.OS()
	r.open()
	where := b.failed
	listed := r.listed()
	for _, f := range files {
		got := r.do(call{method: http.MethodGet, path: f.path() + "/content"})
		if slices.Contains(listed, f.id) != (got.status == 200) {
			t.Errorf("%s %s: listed %v, download: %s", where.Op, where.Path, listed, got)
		}
		if got.status == 200 && string(got.body) != string(f.bytes) && (told || !sc.rots) {
			t.Errorf("%s %s: served %s", where.Op, where.Path, got)
		}
		if r.receipts[f.id] != "" && got.status != 200 && !sc.rots && !sc.lost {
			t.Errorf("%s %s: registered, and now %s", where.Op, where.Path, got)
		}
	}
	if sc.rots { // where nobody has found the damage, a device that comes later does
		r.finish(newFile(string(files[0].bytes)))
	}
	for _, f := range files {
		r.finish(f)
		r.get(f)
	}
	r.nothingUnderWay()
	r.close()
	check(t, os.RemoveAll(r.dir))
	return where.Op != ""
}
