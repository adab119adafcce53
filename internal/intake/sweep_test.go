package intake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// scenario is one adoption that a sweep breaks at every file operation.
type scenario struct {
	name string
	// run adopts or submits; path is the source, which exists before.
	run func(p *process, path string) error
	// prepare makes something special of the source.
	prepare func(s *site, path string) error
}

const sweepContent = "evidence that cannot be captured twice"

func scenarios() []scenario {
	adopt := func(move bool) func(*process, string) error {
		return func(p *process, path string) error {
			_, err := p.Adopt(p.ctx, p.s.request(path, move))
			return err
		}
	}
	return []scenario{
		{name: "move", run: adopt(true)},
		{name: "copy", run: adopt(false)},
		{name: "copy and release", run: adopt(true), prepare: func(s *site, path string) error {
			return os.Link(path, filepath.Join(filepath.Dir(s.dir), "second-name"))
		}},
		{name: "submit", run: func(p *process, path string) error {
			info, err := os.Lstat(path)
			if err != nil {
				return err
			}
			sub, next := submission(sweepContent)
			sub.Files[0].Source, sub.Files[0].Modified = attachment.NameOf(path), info.ModTime()
			_, err = p.Submit(p.ctx, sub, next)
			return err
		}},
	}
}

// fault is what happens at operation n.
type fault struct {
	name string
	err  error
	// dead: every later operation fails too, as if the process had died; its context ends with it.
	dead bool
}

var faults = []fault{
	{"EIO", unix.EIO, false}, {"ENOSPC", unix.ENOSPC, false}, {"EDQUOT", unix.EDQUOT, false}, {"EXDEV", unix.EXDEV, false},
	{"short write", &durable.ShortWrite{N: 3, Err: unix.ENOSPC}, false},
	{"death", errors.New("process died"), true},
}

// Whatever fails at whichever file operation, and wherever the process dies: after the next start the bytes exist, as an
// attachment or still as the source, nothing is half, and taking the source again ends with everything in custody.
func TestFaultSweep(t *testing.T) {
	for _, sc := range scenarios() {
		for _, ft := range faults {
			t.Run(sc.name+"/"+ft.name, func(t *testing.T) {
				t.Parallel()
				n := 0
				for ; sweepOnce(t, t.TempDir(), sc, ft, n); n++ {
					if t.Failed() {
						t.Fatalf("at operation %d", n)
					}
				}
				if n < 15 {
					t.Errorf("only %d operations: the sweep does not reach the adoption", n)
				}
			})
		}
	}
}

// sweepOnce runs one life with a fault at operation n, then another that must put everything right. It reports whether
// the fault was reached.
func sweepOnce(t *testing.T, root string, sc scenario, ft fault, n int) (reached bool) {
	s := newSiteIn(t, root)
	path := s.write("a.jpg", sweepContent)
	if sc.prepare != nil {
		if err := sc.prepare(s, path); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	count, dead := 0, false
	where := durable.Call{}
	hook := func(c durable.Call) error {
		if dead {
			return ft.err
		}
		defer func() { count++ }()
		if count != n {
			return nil
		}
		reached, where = true, c
		if ft.dead {
			dead = true
			cancel()
		}
		return ft.err
	}
	// The spool's directories exist before the sweep begins: making them is no part of an adoption.
	if _, err := spool.Open(durable.OS(), s.dir); err != nil {
		t.Fatal(err)
	}
	p := s.start(durable.Hooked(hook))
	p.ctx = ctx
	first := sc.run(p, path)
	p.stop()

	p = s.restart()
	defer p.stop()
	p.ctx = context.Background()
	if err := p.ReleasePending(p.ctx); err != nil {
		t.Errorf("%s %s: release: %v", where.Op, where.Path, err)
	}
	atSource := exists(path)
	custody := len(p.contents())
	if !atSource && custody == 0 {
		t.Errorf("%s %s (%v): the file is lost", where.Op, where.Path, first)
		return reached
	}
	if first == nil && custody != 1 {
		t.Errorf("%s %s: adopted, and the queue holds %d attachments", where.Op, where.Path, custody)
	}
	if atSource {
		if err := sc.run(p, path); err != nil {
			t.Errorf("%s %s (%v): second try: %v", where.Op, where.Path, first, err)
		}
	}
	got := p.contents()
	// A submission whose answer was lost is a new one when its caller tries again: both are kept.
	if len(got) != 1 && (sc.name != "submit" || first != nil || len(got) != 2) {
		t.Errorf("%s %s (%v): %d attachments in the end", where.Op, where.Path, first, len(got))
	}
	for id, content := range got {
		if content != sweepContent {
			t.Errorf("%s %s: content of %s is %q", where.Op, where.Path, id, content)
		}
		e, err := p.Queue.Get(id)
		if err != nil || e.Manifest.State != attachment.Ready {
			t.Errorf("%s %s: %s is %s, %v", where.Op, where.Path, id, e.Manifest.State, err)
		}
	}
	if left := p.leftovers(); len(left) > 0 {
		t.Errorf("%s %s (%v): left %v", where.Op, where.Path, first, left)
	}
	return reached
}

// Start-up is a table of disk situations: what is there, and what it becomes. Each ends by using the thing again.
func TestRecoverSituations(t *testing.T) {
	ctx := context.Background()
	intakeFor := func(p *process, way attachment.Custody, path string) queue.Intake {
		id, err := attachment.NewID()
		if err != nil {
			t.Fatal(err)
		}
		it := queue.Intake{ID: id, Way: way, Filename: attachment.NameOf("a.jpg")}
		if exists(path) {
			req := p.s.request(path, false)
			it.Source = attachment.Source{Watch: "cam", Path: attachment.NameOf(path), RelPath: attachment.NameOf(req.RelPath), Identity: req.Identity}
		}
		return it
	}
	put := func(p *process, it queue.Intake) attachment.ID {
		if err := p.Queue.PutIntakes(ctx, it); err != nil {
			t.Fatal(err)
		}
		return it.ID
	}
	stage := func(p *process, id attachment.ID, content string) {
		if err := os.WriteFile(p.Spool.Path(spool.Staging, id), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fingerprint := func(content string) *attachment.Fingerprint {
		h := attachment.NewHasher()
		if _, err := h.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
		sum := h.Sum()
		return &sum
	}
	cases := map[string]struct {
		build     func(p *process, path string)
		situation Situation
		state     attachment.State
		code      attachment.Code
		source    bool
	}{
		"intake, nothing staged": {
			build:     func(p *process, path string) { put(p, intakeFor(p, attachment.CustodyCopy, path)) },
			situation: NothingStaged, source: true,
		},
		"half a copy, source stands": {
			build:     func(p *process, path string) { stage(p, put(p, intakeFor(p, attachment.CustodyCopy, path)), "evid") },
			situation: CopyRepeatable, source: true,
		},
		"half a copy, source gone": {
			build: func(p *process, path string) {
				stage(p, put(p, intakeFor(p, attachment.CustodyCopy, path)), "evid")
				os.Remove(path)
			},
			situation: DamagedOnlyCopy, state: attachment.Attention, code: attachment.NeedsDamagedEarly,
		},
		"moved to staging": {
			build: func(p *process, path string) {
				it := intakeFor(p, attachment.CustodyMove, path)
				it.Fingerprint = fingerprint(sweepContent)
				put(p, it)
				os.Rename(path, p.Spool.Path(spool.Staging, it.ID))
			},
			situation: MoveStaged, state: attachment.Ready,
		},
		"moved to staging and damaged": {
			build: func(p *process, path string) {
				it := intakeFor(p, attachment.CustodyMove, path)
				it.Fingerprint = fingerprint(sweepContent)
				stage(p, put(p, it), "\x00\x00\x00")
				os.Remove(path)
			},
			situation: DamagedOnlyCopy, state: attachment.Attention, code: attachment.NeedsDamagedEarly,
		},
		"submission staged, source gone": {
			build: func(p *process, path string) {
				it := intakeFor(p, attachment.CustodySubmit, path)
				it.Declared = int64(len(sweepContent))
				stage(p, put(p, it), sweepContent)
				os.Remove(path)
			},
			situation: Unanswered, state: attachment.Attention, code: attachment.NeedsNoAnswer,
		},
		"submission staged, source stands": {
			build: func(p *process, path string) {
				it := intakeFor(p, attachment.CustodySubmit, path)
				it.Declared = int64(len(sweepContent))
				stage(p, put(p, it), sweepContent)
			},
			situation: CopyRepeatable, source: true,
		},
		"payload without record": {
			build: func(p *process, path string) {
				r, err := p.Adopt(ctx, p.s.request(path, true))
				if err != nil {
					t.Fatal(err)
				}
				p.forgetQueue(r.ID)
			},
			situation: Unrecorded, state: attachment.Ready,
		},
		"payload without record or manifest": {
			build: func(p *process, path string) {
				r, err := p.Adopt(ctx, p.s.request(path, true))
				if err != nil {
					t.Fatal(err)
				}
				os.WriteFile(p.Spool.Path(spool.Payloads, r.ID)+".manifest", []byte("{"), 0o600)
				p.forgetQueue(r.ID)
			},
			situation: Unnamed, state: attachment.Attention, code: attachment.NeedsManifestDamaged,
		},
		"record without payload": {
			build: func(p *process, path string) {
				r, err := p.Adopt(ctx, p.s.request(path, true))
				if err != nil {
					t.Fatal(err)
				}
				os.Remove(p.Spool.Path(spool.Payloads, r.ID))
			},
			situation: PayloadMissing, state: attachment.Attention, code: attachment.NeedsPayloadMissing,
		},
		"among the delivered, not delivered": {
			build: func(p *process, path string) {
				r, err := p.Adopt(ctx, p.s.request(path, true))
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Spool.Deliver(r.ID); err != nil {
					t.Fatal(err)
				}
			},
			situation: DeliveredTooEarly, state: attachment.Ready,
		},
		"stray file": {
			build: func(p *process, path string) {
				os.WriteFile(filepath.Join(p.s.dir, "spool", "payload", "README"), nil, 0o600)
			},
			situation: Stray, source: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			path := s.write("a.jpg", sweepContent)
			p := s.restart()
			c.build(p, path)
			if err := p.st.Close(); err != nil {
				t.Fatal(err)
			}
			p = s.start(durable.OS())
			if err := p.Queue.Recover(ctx); err != nil {
				t.Fatal(err)
			}
			report, err := p.Recover(ctx)
			if err != nil || report[c.situation] != 1 {
				t.Fatalf("report %v, %v", report, err)
			}
			defer p.stop()
			page, _, err := p.Queue.List(queue.Query{Limit: 10})
			if err != nil || (len(page) == 1) != (c.state != "") {
				t.Fatalf("%d attachments, %v", len(page), err)
			}
			if c.state != "" {
				m := page[0].Manifest
				if m.State != c.state || (m.Problem != nil && m.Problem.Code != c.code) {
					t.Errorf("state %s, problem %+v", m.State, m.Problem)
				}
			}
			if exists(path) != c.source {
				t.Errorf("source there: %v", exists(path))
			}
			next := s.write("next.jpg", "life goes on")
			r, err := p.Adopt(ctx, s.request(next, true))
			if err != nil {
				t.Fatal(err)
			}
			if e, err := p.Queue.Get(r.ID); err != nil || e.Manifest.State != attachment.Ready {
				t.Errorf("the next file: %v", err)
			}
		})
	}
}

// forgetQueue throws the queue file away, as a restored backup or a repair would.
func (p *process) forgetQueue(attachment.ID) {
	p.s.t.Helper()
	if err := errors.Join(p.st.Close(), os.Remove(filepath.Join(p.s.dir, "queue.db"))); err != nil {
		p.s.t.Fatal(err)
	}
	fresh := p.s.start(durable.OS())
	*p = process{Intake: fresh.Intake, s: p.s, st: fresh.st}
}

// Staging files without an intake stay for the grace period and then go.
func TestSweepStaging(t *testing.T) {
	s := newSite(t)
	p := s.restart()
	defer p.stop()
	id, err := attachment.NewID()
	if err != nil {
		t.Fatal(err)
	}
	part := p.Spool.Path(spool.Staging, id)
	if err := os.WriteFile(part, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := map[attachment.ID]int64{}
	for _, c := range []struct {
		now   int64
		there bool
	}{{0, true}, {59, true}, {60, false}, {61, false}} {
		if err := p.SweepStaging(seen, c.now, 60); err != nil {
			t.Fatal(err)
		}
		if exists(part) != c.there {
			t.Errorf("at %d: there %v", c.now, exists(part))
		}
	}
	if len(seen) != 0 {
		t.Error(fmt.Sprint("still remembered: ", seen))
	}
}
