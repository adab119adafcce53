package intake

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
)

const sidecarText = `{"version":1,"parent":"INS-7","priority":3}`

// awaiting is a request for a file that a sidecar is to bind.
func (s *site) awaiting(path string, move bool) Request {
	req := s.request(path, move)
	req.Parent, req.Binding = "", attachment.Binding{Rule: attachment.BindSidecar, Wait: time.Minute}
	return req
}

func (p *process) manifest(id attachment.ID) *attachment.Manifest {
	p.s.t.Helper()
	e, err := p.Queue.Get(id)
	if err != nil || e.Manifest == nil {
		p.s.t.Fatalf("%s: %v, %v", id, err, e.Err)
	}
	return e.Manifest
}

// wantCode asks for a *NotTakenError of one code.
func wantCode(t *testing.T, err error, code attachment.Code) {
	t.Helper()
	var nt *NotTakenError
	if !errors.As(err, &nt) || nt.Code != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

// Whatever fails at whichever file operation of a binding, and wherever the process dies: the file stays in custody, queue and
// spool agree after the next start, the sidecar still stands unless it was used, and taking it again ends with it bound.
func TestSidecarSweep(t *testing.T) {
	for _, move := range []bool{true, false} {
		for _, ft := range faults {
			t.Run(fmt.Sprintf("move %v/%s", move, ft.name), func(t *testing.T) {
				t.Parallel()
				n := 0
				for ; sweepSidecar(t, t.TempDir(), move, ft, n); n++ {
					if t.Failed() {
						t.Fatalf("at operation %d", n)
					}
				}
				if n < 15 {
					t.Errorf("only %d operations: the sweep does not reach the binding", n)
				}
			})
		}
	}
}

func sweepSidecar(t *testing.T, root string, move bool, ft fault, n int) (reached bool) {
	s := newSiteIn(t, root)
	source := s.write("a.jpg", sweepContent)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	count, dead, armed := 0, false, false
	where := durable.Call{}
	p := s.start(durable.Hooked(func(c durable.Call) error {
		if dead {
			return ft.err
		}
		if !armed {
			return nil
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
	}))
	r, err := p.Adopt(ctx, s.awaiting(source, move))
	if err != nil {
		t.Fatal(err)
	}
	path := s.write("a.jpg.json", sidecarText)
	req := s.request(path, move)
	armed = true
	_, first := p.TakeSidecar(ctx, req)
	if !ft.dead && first != nil {
		// The daemon goes on and tries again.
		p.mustAgree(fmt.Sprintf("%s %s (%v), at once", where.Op, where.Path, first))
		if _, err := p.TakeSidecar(ctx, req); err != nil {
			t.Errorf("%s %s (%v): second try: %v", where.Op, where.Path, first, err)
		}
	}
	p.stop()

	p = s.restart()
	defer p.stop()
	p.mustAgree(fmt.Sprintf("%s %s (%v)", where.Op, where.Path, first))
	if m := p.manifest(r.ID); m.Binding.Sidecar == nil {
		if !exists(path) {
			t.Errorf("%s %s (%v): the sidecar is gone and was not used", where.Op, where.Path, first)
			return reached
		}
		if _, err := p.TakeSidecar(context.Background(), req); err != nil {
			t.Errorf("%s %s (%v): after the start: %v", where.Op, where.Path, first, err)
		}
	}
	if err := p.ReleasePending(context.Background()); err != nil {
		t.Error(err)
	}
	m := p.manifest(r.ID)
	kept, kerr := p.Spool.ReadSidecar(r.ID)
	if m.Parent.LocalID.Text != "INS-7" || m.Priority != 3 || m.State != attachment.Ready || m.ReleasePending() || string(kept) != sidecarText || kerr != nil {
		t.Errorf("%s %s (%v): %+v, sidecar %q %v", where.Op, where.Path, first, m, kept, kerr)
	}
	if got := p.contents(); len(got) != 1 || got[r.ID] != sweepContent {
		t.Errorf("%s %s (%v): %q", where.Op, where.Path, first, got)
	}
	if exists(path) == move {
		t.Errorf("%s %s (%v): the sidecar stands: %v", where.Op, where.Path, first, exists(path))
	}
	p.mustAgree(fmt.Sprintf("%s %s (%v), in the end", where.Op, where.Path, first))
	return reached
}

// mustAgree holds queue and spool against each other.
func (p *process) mustAgree(when string) {
	p.s.t.Helper()
	findings, err := p.Check(context.Background(), CheckOptions{Deep: true})
	if err != nil || len(findings) > 0 {
		p.s.t.Errorf("%s: %+v, %v", when, findings, err)
	}
	if left := p.leftovers(); len(left) > 0 {
		p.s.t.Errorf("%s: left %v", when, left)
	}
	page, _, err := p.Queue.List(queue.Query{Limit: 100})
	if err != nil {
		p.s.t.Fatal(err)
	}
	for _, e := range page {
		t, err := p.Spool.ReadManifest(spool.Payloads, e.ID)
		_, serr := p.Spool.ReadSidecar(e.ID)
		bound := e.Manifest.Binding.Sidecar != nil
		if err != nil || (t.Manifest.Binding.Sidecar != nil) != bound || (serr == nil) != bound || t.Manifest.Priority != e.Manifest.Priority {
			p.s.t.Errorf("%s: bound %v, beside the payload %+v, %v, %v", when, bound, t.Manifest.Binding, err, serr)
		}
	}
}

// What start-up finds of a binding that was broken off, and makes of it.
func TestRecoverBindings(t *testing.T) {
	for name, c := range map[string]struct {
		build     func(p *process, m *attachment.Manifest, edit func(*attachment.Manifest))
		situation Situation
		bound     bool
	}{
		"sidecar written": {
			func(*process, *attachment.Manifest, func(*attachment.Manifest)) {}, BindingUnfinished, false,
		},
		"manifest written": {
			func(p *process, m *attachment.Manifest, edit func(*attachment.Manifest)) { p.rewrite(m, edit) }, BindingUnfinished, true,
		},
		"manifest written, registered since": {
			func(p *process, m *attachment.Manifest, edit func(*attachment.Manifest)) {
				p.rewrite(m, edit)
				ctx := context.Background()
				if err := errors.Join(p.Queue.EndWait(ctx, m.ID, "", "over"), p.Queue.Verified(ctx, m.ID, "m")); err != nil {
					t.Fatal(err)
				}
			}, BindingUnfinished, false,
		},
		"manifest written, queue lost": {
			func(p *process, m *attachment.Manifest, edit func(*attachment.Manifest)) {
				p.rewrite(m, edit)
				p.forgetQueue(m.ID)
			}, Unrecorded, true,
		},
		"sidecar written, queue lost": {
			func(p *process, m *attachment.Manifest, _ func(*attachment.Manifest)) { p.forgetQueue(m.ID) }, Unrecorded, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			ctx := context.Background()
			p := s.restart()
			r, err := p.Adopt(ctx, s.awaiting(s.write("a.jpg", sweepContent), true))
			if err != nil {
				t.Fatal(err)
			}
			path := s.write("a.jpg.json", sidecarText)
			m := p.manifest(r.ID)
			if err := p.Spool.WriteSidecar(r.ID, []byte(sidecarText)); err != nil {
				t.Fatal(err)
			}
			facts := binding{data: []byte(sidecarText)}
			facts.facts.Parent, facts.facts.Priority = "INS-7", 3
			c.build(p, m, facts.edit(s.request(path, true)))
			if err := p.st.Close(); err != nil {
				t.Fatal(err)
			}
			p = s.start(durable.OS())
			defer p.stop()
			if err := p.Queue.Recover(ctx); err != nil {
				t.Fatal(err)
			}
			report, err := p.Recover(ctx)
			if err != nil || report[c.situation] != 1 {
				t.Fatalf("report %v, %v", report, err)
			}
			p.mustAgree("after the start")
			if m := p.manifest(r.ID); (m.Binding.Sidecar != nil) != c.bound || (m.Parent.LocalID.Text == "INS-7") != c.bound {
				t.Errorf("%+v", m)
			}
			if err := p.ReleasePending(ctx); err != nil || exists(path) == c.bound {
				t.Errorf("the sidecar stands: %v, %v", exists(path), err)
			}
		})
	}
}

// rewrite writes the travelling manifest as a binding does before its commit.
func (p *process) rewrite(m *attachment.Manifest, edit func(*attachment.Manifest)) {
	p.s.t.Helper()
	bound := m.Clone()
	edit(bound)
	segments, err := p.Queue.Segments(m.ID)
	if err == nil {
		err = p.Spool.RewriteManifest(&attachment.Travelling{Manifest: *bound, Segments: segments})
	}
	if err != nil {
		p.s.t.Fatal(err)
	}
}

// What a sidecar says that cannot be so is refused; what comes too late is said to.
func TestSidecarsThatDoNotBind(t *testing.T) {
	s := newSite(t)
	p := s.restart()
	defer p.stop()
	ctx := context.Background()
	take := func(name, text string) error {
		_, err := p.TakeSidecar(ctx, s.request(s.write(name, text), true))
		return err
	}
	wantCode(t, take("alone.jpg.json", sidecarText), attachment.NotTakenSidecarAlone)
	s.write("there.jpg", "not taken yet")
	wantCode(t, take("there.jpg.json", sidecarText), attachment.NotTakenSidecarWaits)
	r, err := p.Adopt(ctx, s.awaiting(s.write("a.jpg", "x"), true))
	if err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf(`{"version":1,"parent":"x","supersedes":%q}`, r.ID)
	wantCode(t, take("a.jpg.json", own), attachment.NeedsSidecarInvalid)
	if m := p.manifest(r.ID); m.State != attachment.Attention || !strings.Contains(m.Problem.Detail, "supersedes") {
		t.Errorf("%+v", m.Problem)
	}
	if err := p.Queue.Retry(ctx, r.ID, "uid 7", ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, take("a.jpg.json", "{"), attachment.NeedsSidecarInvalid)
	if m := p.manifest(r.ID); m.State != attachment.Ready {
		t.Errorf("a person's decision was undone: %s", m.State)
	}
	wantCode(t, take("a.jpg.json", `{"version":1,"parent":"x","role":"preview","of":"0197f3a2-0000-7000-8000-000000000001"}`), attachment.NotTakenSidecarLate)
	claim, _, err := p.Queue.ClaimDue(ctx, "w")
	if err != nil || claim == nil {
		t.Fatalf("%v, %v", claim, err)
	}
	wantCode(t, take("a.jpg.json", sidecarText), attachment.NotTakenSidecarWaits)
	if cause := context.Cause(claim.Context()); !errors.Is(cause, queue.ErrBinding) {
		t.Errorf("the worker was stopped by %v", cause)
	}
	if err := p.Queue.Verified(ctx, r.ID, "m"); err != nil {
		t.Fatal(err)
	}
	if err := p.Queue.Abandon(ctx, claim); err != nil {
		t.Fatal(err)
	}
	wantCode(t, take("a.jpg.json", sidecarText), attachment.NotTakenSidecarLate)
	if m := p.manifest(r.ID); !m.Parent.LocalID.Empty() || m.Binding.Sidecar != nil {
		t.Errorf("bound too late: %+v", m)
	}
	p.mustAgree("in the end")
}

// However captures, sidecars, manifests, waits, deliveries and restarts follow each other: no sidecar binds a capture of another
// path, none binds two captures that waited at one time, and what is bound says what the sidecar beside it says.
func TestSidecarsBindTheirOwn(t *testing.T) {
	for range 12 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &bindingWorld{s: newSite(t), t: t, rnd: rand.New(rand.NewPCG(seed, 2)), came: map[attachment.ID]string{}}
			w.p = w.s.restart()
			for range 120 {
				w.step()
			}
			w.p.stop()
			w.p = w.s.restart()
			w.hold()
			w.p.mustAgree("in the end")
			w.p.stop()
		})
	}
}

// bindingWorld is one history; came is the name under which each attachment was captured.
type bindingWorld struct {
	s    *site
	p    *process
	t    *testing.T
	rnd  *rand.Rand
	n    int
	came map[attachment.ID]string
}

var bindingNames = []string{"a.jpg", "a.jpg.json.jpg", "b", "a", "\xff.jpg"}

func (w *bindingWorld) step() {
	ctx := context.Background()
	name := bindingNames[w.rnd.IntN(len(bindingNames))]
	move := w.rnd.IntN(2) == 0
	w.n++
	switch w.rnd.IntN(7) {
	case 0, 1:
		r, err := w.p.Adopt(ctx, w.s.awaiting(w.s.write(name, fmt.Sprintf("%s %d", name, w.n)), move))
		if err != nil {
			w.t.Fatal(err)
		}
		w.came[r.ID] = name
	case 2, 3:
		// The parent says which path the sidecar is for.
		w.take(w.s.write(name+".json", fmt.Sprintf(`{"version":1,"parent":"for %x"}`, name)), move)
	case 4:
		files := []string{}
		for _, name := range bindingNames[:4] {
			files = append(files, fmt.Sprintf(`%q:{"parent":"for %x"}`, name, name))
		}
		w.take(w.s.write("manifest.json", `{"version":1,"files":{`+strings.Join(files, ",")+`}}`), move)
	case 5:
		for id := range w.came {
			m := w.p.manifest(id)
			if m.State == attachment.Captured {
				if err := w.p.Queue.EndWait(ctx, id, "", "over"); err != nil {
					w.t.Fatal(err)
				}
			} else if m.State == attachment.Ready && w.rnd.IntN(2) == 0 {
				if err := w.p.Queue.Verified(ctx, id, "m"); err != nil {
					w.t.Fatal(err)
				}
			}
			break
		}
	default:
		w.p.stop()
		w.p = w.s.restart()
	}
	w.hold()
}

func (w *bindingWorld) take(path string, move bool) {
	before := map[string][]attachment.ID{}
	for id, name := range w.came {
		if w.p.manifest(id).Unbound() {
			before[name] = append(before[name], id)
		}
	}
	_, err := w.p.TakeSidecar(context.Background(), w.s.request(path, move))
	var nt *NotTakenError
	if err != nil && !errors.As(err, &nt) {
		w.t.Fatal(err)
	}
	for name, ids := range before {
		bound := slices.DeleteFunc(slices.Clone(ids), func(id attachment.ID) bool { return w.p.manifest(id).Binding.Sidecar == nil })
		if len(bound) > 0 && len(ids) != 1 {
			w.t.Errorf("%q: %d captures waited and %v were bound", name, len(ids), bound)
		}
	}
}

// hold checks what must always be true.
func (w *bindingWorld) hold() {
	w.t.Helper()
	for id, name := range w.came {
		m := w.p.manifest(id)
		if s := m.Binding.Sidecar; s != nil {
			kept, err := w.p.Spool.ReadSidecar(id)
			if m.Parent.LocalID.Exact() != fmt.Sprintf("for %x", name) || err != nil || !strings.Contains(string(kept), fmt.Sprintf("for %x", name)) {
				w.t.Errorf("%s, captured as %q, belongs to %q by %q: %q, %v", id, name, m.Parent.LocalID.Exact(), s.Path.Exact(), kept, err)
			}
		} else if !m.Parent.LocalID.Empty() {
			w.t.Errorf("%s has a parent and no sidecar", id)
		}
	}
}

// A sidecar that was corrected before it could be removed stays: its new content is not the one that was kept.
func TestCorrectedSidecarStays(t *testing.T) {
	s := newSite(t)
	p := s.restart()
	defer p.stop()
	ctx := context.Background()
	r, err := p.Adopt(ctx, s.awaiting(s.write("a.jpg", "x"), true))
	if err != nil {
		t.Fatal(err)
	}
	path := s.write("a.jpg.json", sidecarText)
	b := binding{data: []byte(sidecarText), found: []*attachment.Manifest{p.manifest(r.ID)}}
	b.facts.Parent = "INS-7"
	if err := p.bind(ctx, s.request(path, true), b); err != nil {
		t.Fatal(err)
	}
	s.write("a.jpg.json", `{"version":1,"parent":"INS-8"}`)
	if err := p.ReleasePending(ctx); err != nil {
		t.Fatal(err)
	}
	if m := p.manifest(r.ID); m.Binding.Sidecar.Kept != keptChanged || m.ReleasePending() || !exists(path) {
		t.Errorf("%+v, stands %v", m.Binding.Sidecar, exists(path))
	}
	_, err = p.TakeSidecar(ctx, s.request(path, true))
	wantCode(t, err, attachment.NotTakenSidecarLate)
	if m := p.manifest(r.ID); m.Parent.LocalID.Text != "INS-7" {
		t.Errorf("%+v", m.Parent)
	}
}
