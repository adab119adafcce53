package intake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
)

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
