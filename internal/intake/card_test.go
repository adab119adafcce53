package intake

import (
	"context"
	"errors"
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

// unplug takes the capture directory away as an unmount does; the returned function brings it back.
func (s *site) unplug() (plugIn func()) {
	s.t.Helper()
	away := s.capture + ".unplugged"
	if err := os.Rename(s.capture, away); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := os.Rename(away, s.capture); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A kill in mid-copy and a card that is mounted late: the half copy is neither kept as an only copy nor does it keep the
// complete source from being taken.
func TestHalfCopyWaitsForItsCard(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", sweepContent)
	p := s.restart()
	id, err := attachment.NewID()
	if err != nil {
		t.Fatal(err)
	}
	req := s.request(path, false)
	a := &adoption{Intake: p.Intake, req: req, id: id}
	if err := p.Queue.PutIntakes(context.Background(), a.intake(attachment.CustodyCopy)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Spool.Path(spool.Staging, id), []byte("evid"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.stop()
	plugIn := s.unplug()
	p = s.start(durable.OS())
	p.SourcePatience = time.Hour
	report, err := p.Recover(context.Background())
	if err != nil || report[SourceAwaited] != 1 || len(p.contents()) != 0 {
		t.Fatalf("card not mounted: %v, %v", report, err)
	}
	plugIn()
	r, err := p.Adopt(context.Background(), req)
	if err != nil || r.Known {
		t.Fatalf("the complete source: %+v, %v", r, err)
	}
	if err := p.Resume(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := p.contents(); len(got) != 1 || got[r.ID] != sweepContent {
		t.Errorf("%q", got)
	}
	if left := p.leftovers(); len(left) > 0 {
		t.Error(left)
	}
	p.stop()

	// When patience has ended, the half is kept for a person, and still the complete source can be taken.
	s = newSite(t)
	path = s.write("a.jpg", sweepContent)
	p = s.restart()
	a = &adoption{Intake: p.Intake, req: s.request(path, false), id: id}
	if err := p.Queue.PutIntakes(context.Background(), a.intake(attachment.CustodyCopy)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Spool.Path(spool.Staging, id), []byte("evid"), 0o600); err != nil {
		t.Fatal(err)
	}
	plugIn = s.unplug()
	if err := p.Resume(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := p.Queue.Retry(context.Background(), id, "", ""); !errors.Is(err, attachment.ErrTransition) {
		t.Errorf("half a file may be sent: %v", err)
	}
	plugIn()
	if r, err := p.Adopt(context.Background(), s.request(path, false)); err != nil || r.Known {
		t.Errorf("after patience: %+v, %v", r, err)
	}
	p.stop()
}

// A source whose removal is pending and whose card is unmounted is not taken for removed, and is not captured again when
// the card is back.
func TestPendingReleaseSurvivesUnmount(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "on a card")
	if err := os.Link(path, filepath.Join(filepath.Dir(s.dir), "second-name")); err != nil {
		t.Fatal(err)
	}
	readOnly := true
	p := s.start(durable.Hooked(func(c durable.Call) error {
		if readOnly && c.Op == durable.OpRename && strings.Contains(c.Path, asidePrefix) {
			return unix.EROFS
		}
		return nil
	}))
	defer p.stop()
	ctx := context.Background()
	req := s.request(path, true)
	r, err := p.Adopt(ctx, req)
	if err != nil || !r.Stays {
		t.Fatalf("%+v, %v", r, err)
	}
	plugIn := s.unplug()
	if err := p.ReleasePending(ctx); err != nil {
		t.Fatal(err)
	}
	if e, err := p.Queue.Get(r.ID); err != nil || !e.Manifest.Source.ReleasePending {
		t.Errorf("an unmounted card counts as removed: %+v, %v", e.Manifest.Source, err)
	}
	plugIn()
	if again, err := p.Adopt(ctx, req); err != nil || !again.Known {
		t.Errorf("captured again: %+v, %v", again, err)
	}
	readOnly = false
	if err := p.ReleasePending(ctx); err != nil || exists(path) {
		t.Errorf("not removed when it can be: %v", err)
	}
}

// A file that is given a second name while it is being moved is copied instead: by that name it could be changed later.
func TestSecondNameDuringMove(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "first")
	other := filepath.Join(filepath.Dir(s.dir), "other")
	linked := false
	p := s.start(durable.Hooked(func(c durable.Call) error {
		if c.Op == durable.OpRead && c.Path == path && !linked {
			linked = true
			return os.Link(path, other)
		}
		return nil
	}))
	defer p.stop()
	ctx := context.Background()
	var nt *NotTakenError
	if _, err := p.Adopt(ctx, s.request(path, true)); !linked || !errors.As(err, &nt) {
		t.Fatalf("linked %v, %v", linked, err)
	}
	r, err := p.Adopt(ctx, s.request(path, true))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte("XXXXX"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := p.contents()[r.ID]; got != "first" {
		t.Errorf("changed through its second name: %q", got)
	}
}

// A directory that may not be written to makes a copy, not an endless series of attempts to move.
func TestSourceDirectoryNotWritable(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "read only")
	p := s.start(durable.Hooked(func(c durable.Call) error {
		if c.Op == durable.OpRename && strings.Contains(c.Path, "staging") {
			return unix.EACCES
		}
		return nil
	}))
	defer p.stop()
	r, err := p.Adopt(context.Background(), s.request(path, true))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := p.Queue.Get(r.ID); err != nil || e.Manifest.Custody != attachment.CustodyCopy {
		t.Errorf("%s, %v", e.Manifest.Custody, err)
	}
}

// One thing in the spool that cannot be dealt with is named and left alone; everything else is recovered.
func TestOneBadThingDoesNotStopRecovery(t *testing.T) {
	s := newSite(t)
	p := s.restart()
	good, err := p.Adopt(context.Background(), s.request(s.write("good.jpg", "good"), true))
	if err != nil {
		t.Fatal(err)
	}
	both, err := p.Adopt(context.Background(), s.request(s.write("both.jpg", "both"), true))
	if err != nil {
		t.Fatal(err)
	}
	id, err := attachment.NewID()
	if err != nil {
		t.Fatal(err)
	}
	fifo := p.Spool.Path(spool.Payloads, id)
	twice := p.Spool.Path(spool.Delivered, both.ID)
	for _, dir := range []string{filepath.Dir(fifo), filepath.Dir(twice)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.WriteFile(twice, []byte("both"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p.stop()
	p = s.start(durable.OS())
	defer p.stop()
	report, err := p.Recover(context.Background())
	if err != nil || report[Unreadable] != 2 {
		t.Fatalf("%v, %v", report, err)
	}
	if got := p.contents(); got[good.ID] != "good" || got[both.ID] != "both" {
		t.Errorf("%q", got)
	}
}
