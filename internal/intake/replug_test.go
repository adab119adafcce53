package intake

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// pendingOn captures a file from a card whose file cannot be removed, and returns its attachment.
func (s *site) pendingOn(path string) attachment.ID {
	s.t.Helper()
	if err := os.Link(path, s.dir+"-elsewhere"); err != nil {
		s.t.Fatal(err)
	}
	p := s.start(durable.Hooked(func(c durable.Call) error {
		if c.Op == durable.OpRename && strings.Contains(c.Path, asidePrefix) {
			return unix.EROFS
		}
		return nil
	}))
	defer p.stop()
	return p.taken(path, true).ID
}

// A source that is still to be removed is removed when its card comes back, with other numbers and times. Nothing on
// another card is touched meanwhile, even under the same name, and its absence there proves nothing.
func TestReleaseGoesOnAfterReplug(t *testing.T) {
	s := newSite(t)
	s.medium = fat("A")
	path := s.write("DSC_0001.JPG", "one")
	id := s.pendingOn(path)
	home := s.capture + ".A"
	if err := os.Rename(s.capture, home); err != nil {
		t.Fatal(err)
	}
	other := func(content string) {
		t.Helper()
		if err := os.MkdirAll(s.capture, 0o755); err != nil {
			t.Fatal(err)
		}
		s.medium = fat("B")
		if content != "" {
			s.write("DSC_0001.JPG", content)
		}
		p := s.restart()
		defer p.stop()
		if err := p.ReleasePending(context.Background()); err != nil {
			t.Fatal(err)
		}
		if m := p.manifest(id); !m.Source.ReleasePending || m.Source.Kept != "" || content != "" && !exists(path) {
			t.Errorf("card B with %q: %+v", content, m.Source)
		}
	}
	other("")
	other("two")
	other("one")
	if err := os.RemoveAll(s.capture); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(home, s.capture); err != nil {
		t.Fatal(err)
	}
	s.medium = fat("A")
	s.replug(-time.Hour)
	p := s.restart()
	defer p.stop()
	if r, err := p.Adopt(context.Background(), s.request(path, true)); err != nil || !r.Known || r.ID != id {
		t.Errorf("offered before it is removed: %+v, %v", r, err)
	}
	if err := p.ReleasePending(context.Background()); err != nil {
		t.Fatal(err)
	}
	if m := p.manifest(id); exists(path) || m.Source.ReleasePending || !m.Source.Released {
		t.Errorf("back on card A: there %v, %+v", exists(path), m.Source)
	}
	// What the camera writes there now is new, with the same size and the time that was remembered last.
	at := time.Unix(0, p.manifest(id).Source.Identity.MTimeNS).Add(-time.Hour)
	if err := os.Chtimes(s.write("DSC_0001.JPG", "new"), at, at); err != nil {
		t.Fatal(err)
	}
	if r := p.taken(path, true); p.contents()[r.ID] != "new" {
		t.Errorf("%q", p.contents())
	}
}

// A file that was changed after it was taken stays, whatever its card says about numbers and times.
func TestChangedSourceStaysAfterReplug(t *testing.T) {
	s := newSite(t)
	s.medium = fat("A")
	path := s.write("DSC_0001.JPG", "one")
	id := s.pendingOn(path)
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("ONE"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	s.replug(time.Hour)
	p := s.restart()
	defer p.stop()
	if err := p.ReleasePending(context.Background()); err != nil {
		t.Fatal(err)
	}
	if m := p.manifest(id); !exists(path) || m.Source.ReleasePending || m.Source.Kept == "" {
		t.Errorf("there %v, %+v", exists(path), m.Source)
	}
	if r := p.taken(path, true); p.contents()[r.ID] != "ONE" {
		t.Errorf("%q", p.contents())
	}
}

// A kill in mid-copy and a card that comes back with other numbers and times: the half is cleared, not kept for a person,
// and the source is taken whole, once.
func TestHalfCopyAfterReplug(t *testing.T) {
	s := newSite(t)
	s.medium = fat("A")
	path := s.write("a.jpg", sweepContent)
	p := s.restart()
	id, err := attachment.NewID()
	if err != nil {
		t.Fatal(err)
	}
	req := s.request(path, false)
	a := &adoption{Intake: p.Intake, req: req, id: id, medium: p.mediumOf(req.Watch, path, req.Identity.Device)}
	if err := p.Queue.PutIntakes(context.Background(), a.intake(attachment.CustodyCopy)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Spool.Path(spool.Staging, id), []byte("evid"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.stop()
	s.replug(2 * time.Hour)
	p = s.start(durable.OS())
	defer p.stop()
	report, err := p.Recover(context.Background())
	if err != nil || report[CopyRepeatable] != 1 {
		t.Errorf("%v, %v", report, err)
	}
	r := p.taken(path, false)
	if got := p.contents(); len(got) != 1 || got[r.ID] != sweepContent || len(p.leftovers()) > 0 {
		t.Errorf("%q, left %v", got, p.leftovers())
	}
}

// The ledger and the index of bytes come back with a rebuilt queue.
func TestRebuiltQueueRecognizes(t *testing.T) {
	s := newSite(t)
	s.medium = fat("A")
	path := s.write("a.jpg", "a picture")
	p := s.restart()
	id := p.taken(path, false).ID
	again := p.taken(s.write("b.jpg", "a picture"), true).ID
	p.stop()
	if err := os.Remove(filepath.Join(s.dir, "queue.db")); err != nil {
		t.Fatal(err)
	}
	p = s.start(durable.OS())
	defer p.stop()
	if report, err := p.Rebuild(context.Background()); err != nil {
		t.Fatal(report, err)
	}
	p.knownAs(path, id)
	s.replug(time.Hour)
	p.knownAs(path, id)
	if m := p.manifest(again); m.Repeats != id {
		t.Errorf("repeats %q", m.Repeats)
	}
}
