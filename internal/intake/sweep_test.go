package intake

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// scenario is one adoption that a sweep breaks at every file operation.
type scenario struct {
	name string
	// run adopts or submits; path is the source, which exists before.
	run func(p *process, path string) error
	// prepare makes something special of the source.
	prepare func(s *site, path string) error
	// always is what fails in every first life, besides the fault.
	always func(durable.Call) error
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
		{name: "move across mounts", run: adopt(true), always: func(c durable.Call) error {
			if c.Op == durable.OpRename && filepath.Base(filepath.Dir(c.Path)) == string(spool.Staging) {
				return unix.EXDEV
			}
			return nil
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
	// dead: every later operation fails too and the queue takes nothing more, as if the process had died.
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
	var p *process
	count, dead := 0, false
	where := durable.Call{}
	hook := func(c durable.Call) error {
		if dead {
			return ft.err
		}
		if sc.always != nil {
			if err := sc.always(c); err != nil {
				return err
			}
		}
		defer func() { count++ }()
		if count != n {
			return nil
		}
		reached, where = true, c
		if ft.dead {
			dead = true
			if err := p.st.Close(); err != nil {
				t.Error(err)
			}
		}
		return ft.err
	}
	// The spool's directories exist before the sweep begins: making them is no part of an adoption.
	if _, err := spool.Open(durable.OS(), s.dir); err != nil {
		t.Fatal(err)
	}
	p = s.start(durable.Hooked(hook))
	p.ctx = context.Background()
	first := sc.run(p, path)
	if !dead {
		p.stop()
	}

	p = s.restart()
	defer p.stop()
	p.ctx = context.Background()
	if err := p.ReleasePending(p.ctx); err != nil {
		t.Errorf("%s %s: release: %v", where.Op, where.Path, err)
	}
	p.sound(where)
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
	p.sound(where)
	return reached
}

// sound expects that a full check finds nothing broken.
func (p *process) sound(after durable.Call) {
	p.s.t.Helper()
	findings, err := p.Check(p.ctx, CheckOptions{Deep: true})
	if err != nil || len(findings) > 0 {
		p.s.t.Errorf("%s %s: check: %+v, %v", after.Op, after.Path, findings, err)
	}
}
