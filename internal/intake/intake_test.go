package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
)

// site is a capture directory and a state directory that survive the processes that tests start on them.
type site struct {
	t            testing.TB
	capture, dir string
	// medium is what the capture directory lies on; its device is filled in.
	medium Medium
}

func newSite(t testing.TB) *site { return newSiteIn(t, t.TempDir()) }

func newSiteIn(t testing.TB, root string) *site {
	t.Helper()
	s := &site{t: t, capture: filepath.Join(root, "capture", "insp-7"), dir: filepath.Join(root, "state")}
	if err := os.MkdirAll(s.capture, 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// process is one life of the daemon's custody half.
type process struct {
	*Intake
	s   *site
	st  *store.Store
	ctx context.Context
}

func (s *site) start(fsys *durable.FS) *process {
	s.t.Helper()
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	st, err := store.Open(filepath.Join(s.dir, "queue.db"), queue.Schema(), store.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	sp, err := spool.Open(durable.OS(), s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	if fsys != durable.OS() {
		if sp, err = spool.Open(fsys, s.dir); err != nil {
			s.t.Fatal(err)
		}
	}
	q := queue.New(st, queue.Options{})
	return &process{
		Intake: New(Options{
			FS: fsys, Spool: sp, Queue: q, Medium: s.mediumOf, Logger: slog.New(slog.DiscardHandler),
		}), s: s, st: st,
	}
}

func (s *site) mediumOf(_, path string) Medium {
	m := s.medium
	if info, err := os.Lstat(filepath.Dir(path)); err == nil {
		id, _, _ := durable.IdentityOf(info)
		m.Device = id.Device
	}
	return m
}

// restart is start with recovery, as the daemon does it.
func (s *site) restart() *process {
	s.t.Helper()
	p := s.start(durable.OS())
	if err := p.Queue.Recover(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	report, err := p.Recover(context.Background())
	if err != nil {
		s.t.Fatalf("recover (%v): %v", report, err)
	}
	return p
}

// stop ends a life; the queue must be consistent.
func (p *process) stop() {
	p.s.t.Helper()
	findings, err := p.Queue.Check(context.Background())
	if err != nil || len(findings) > 0 {
		p.s.t.Errorf("check: %v %v", findings, err)
	}
	if err := p.st.Close(); err != nil {
		p.s.t.Error(err)
	}
}

func (s *site) write(name, content string) string {
	s.t.Helper()
	path := filepath.Join(s.capture, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *site) request(path string, move bool) Request {
	s.t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		s.t.Fatal(err)
	}
	id, _, _ := durable.IdentityOf(info)
	rel, _ := filepath.Rel(filepath.Dir(s.capture), path)
	return Request{
		Watch: "cam", Path: path, RelPath: rel, Parent: "insp-7", Identity: attachment.SourceIdentity(id),
		Evidence: attachment.EvidenceLease, Move: move,
	}
}

// contents returns the content of every committed payload by its ID, read through the spool with its digests checked.
func (p *process) contents() map[attachment.ID]string {
	p.s.t.Helper()
	got := map[attachment.ID]string{}
	page, _, err := p.Queue.List(queue.Query{Limit: 100})
	if err != nil {
		p.s.t.Fatal(err)
	}
	for _, e := range page {
		segs, err := p.Queue.Segments(e.ID)
		if err != nil {
			p.s.t.Fatal(err)
		}
		m := e.Manifest
		pl, err := p.Spool.OpenPayload(e.ID, attachment.Fingerprint{Length: m.Length, SHA256: m.SHA256, Segments: segs})
		if err != nil {
			p.s.t.Errorf("%s: %v", e.ID, err)
			continue
		}
		if err := pl.Check(context.Background(), 0, m.Length); err != nil {
			p.s.t.Errorf("%s: %v", e.ID, err)
		}
		data, err := io.ReadAll(io.NewSectionReader(pl, 0, m.Length))
		if err := errors.Join(err, pl.Close()); err != nil {
			p.s.t.Error(err)
		}
		if _, err := p.Spool.ReadManifest(spool.Payloads, e.ID); err != nil {
			p.s.t.Errorf("travelling manifest: %v", err)
		}
		got[e.ID] = string(data)
	}
	return got
}

// leftovers lists what should not be in the spool when nothing is under way.
func (p *process) leftovers() (left []string) {
	p.s.t.Helper()
	err := p.Spool.Scan(func(f spool.Found) error {
		if f.Stray != "" || f.Area == spool.Staging || !f.Payload || !f.Manifest {
			left = append(left, fmt.Sprintf("%+v", f))
		}
		return nil
	})
	intakes, damaged, ierr := p.Queue.Intakes()
	if err := errors.Join(err, ierr); err != nil {
		p.s.t.Fatal(err)
	}
	for _, it := range intakes {
		left = append(left, "intake "+string(it.ID))
	}
	for _, id := range damaged {
		left = append(left, "damaged intake "+string(id))
	}
	return left
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A settled file is taken by move: it leaves its directory, keeps its name and bytes, and waits to be sent.
func TestAdoptByMove(t *testing.T) {
	s := newSite(t)
	path := s.write("a \xff\n.jpg", "\xff\xd8\xff\xe0 not really a picture")
	p := s.restart()
	defer p.stop()
	r, err := p.Adopt(context.Background(), s.request(path, true))
	if err != nil || r.Stays || r.Known {
		t.Fatalf("%+v, %v", r, err)
	}
	e, err := p.Queue.Get(r.ID)
	if err != nil {
		t.Fatal(err)
	}
	m := e.Manifest
	if m.State != attachment.Ready || m.Custody != attachment.CustodyMove || m.Filename.Exact() != "a \xff\n.jpg" ||
		m.Parent.LocalID.Text != "insp-7" || m.MediaType != "image/jpeg" || m.Source.Evidence != attachment.EvidenceLease {
		t.Errorf("%+v", m)
	}
	if exists(path) {
		t.Error("the source is still there")
	}
	if got := p.contents()[r.ID]; got != "\xff\xd8\xff\xe0 not really a picture" {
		t.Errorf("content %q", got)
	}
	if left := p.leftovers(); len(left) > 0 {
		t.Error(left)
	}
}

// adopt = "copy" leaves the source, and its ledger keeps it from being taken twice, also after a restart; new content
// under the same name is a new attachment.
func TestAdoptByCopyKeepsSource(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "first")
	p := s.restart()
	r, err := p.Adopt(context.Background(), s.request(path, false))
	if err != nil || !r.Stays || r.Known || !exists(path) {
		t.Fatalf("%+v, %v", r, err)
	}
	p.stop()
	p = s.restart()
	defer p.stop()
	again, err := p.Adopt(context.Background(), s.request(path, false))
	if err != nil || !again.Known || again.ID != r.ID {
		t.Fatalf("%+v, %v", again, err)
	}
	s.write("a.jpg", "second")
	next, err := p.Adopt(context.Background(), s.request(path, false))
	if err != nil || next.Known || next.ID == r.ID {
		t.Fatalf("%+v, %v", next, err)
	}
	if got := p.contents(); len(got) != 2 || got[next.ID] != "second" || got[r.ID] != "first" {
		t.Errorf("%q", got)
	}
}

// A file that replaces a known one under its name, with its size and time, is told from it by its content.
func TestReplacedWithSameSizeAndTime(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "first")
	then := time.Unix(1_700_000_000, 0)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	p := s.restart()
	defer p.stop()
	first, err := p.Adopt(context.Background(), s.request(path, false))
	if err != nil {
		t.Fatal(err)
	}
	// With a second name the first file stays, and no later one can get its inode number.
	if err := os.Link(path, s.dir+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		content string
		known   bool
	}{{"first", true}, {"other", false}} {
		replacement := s.write("new", c.content)
		if err := errors.Join(os.Chtimes(replacement, then, then), os.Rename(replacement, path)); err != nil {
			t.Fatal(err)
		}
		r, err := p.Adopt(context.Background(), s.request(path, false))
		if err != nil || r.Known != c.known || (r.ID == first.ID) != c.known {
			t.Errorf("%s: %+v, %v", c.content, r, err)
		}
	}
}

// A hard link makes a move impossible (somebody else has a name for the file), so it is copied, and then its name here
// is removed because nobody writes to it.
func TestHardLinkIsCopiedThenReleased(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "linked")
	if err := os.Link(path, filepath.Join(s.dir+"-elsewhere")); err != nil {
		t.Fatal(err)
	}
	p := s.restart()
	defer p.stop()
	r, err := p.Adopt(context.Background(), s.request(path, true))
	if err != nil || r.Stays || exists(path) {
		t.Fatalf("%+v, %v, source there: %v", r, err, exists(path))
	}
	e, err := p.Queue.Get(r.ID)
	if err != nil || e.Manifest.Custody != attachment.CustodyCopy || e.Manifest.Source.ReleasePending {
		t.Errorf("%+v, %v", e.Manifest, err)
	}
	if data, err := os.ReadFile(s.dir + "-elsewhere"); err != nil || string(data) != "linked" {
		t.Errorf("the other name: %q, %v", data, err)
	}
}

// A writer that opens the file in the middle of a move gets it back, before its open() returns; nothing is taken then,
// and the final content is taken whole afterwards.
func TestWriterDuringMove(t *testing.T) {
	for _, at := range []durable.Op{durable.OpSync, durable.OpSyncDir, durable.OpCreate} {
		t.Run(string(at), func(t *testing.T) {
			s := newSite(t)
			path := s.write("a.jpg", "draft")
			opened, done := false, make(chan error, 1)
			p := s.start(durable.Hooked(func(c durable.Call) error {
				if c.Op == at && !opened && strings.Contains(c.Path, string(os.PathSeparator)+"staging") == (at == durable.OpSyncDir) && exists(pathIn(s, path)) {
					opened = true
					ready := make(chan struct{})
					name := pathIn(s, path)
					go func() {
						close(ready)
						f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
						if err == nil {
							_, err = f.WriteString(", final")
							err = errors.Join(err, f.Close())
						}
						done <- err
					}()
					<-ready
					waitBroken(t, name)
				}
				return nil
			}))
			_, err := p.Adopt(context.Background(), s.request(path, true))
			var nt *NotTakenError
			if !opened || !errors.As(err, &nt) || nt.Code != attachment.NotTakenOpen {
				t.Fatalf("opened %v, error %v", opened, err)
			}
			if err := <-done; err != nil {
				t.Fatalf("writer: %v", err)
			}
			if left := p.leftovers(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			r, err := p.Adopt(context.Background(), s.request(path, true))
			if err != nil || p.contents()[r.ID] != "draft, final" {
				t.Errorf("second try: %v, %q", err, p.contents()[r.ID])
			}
			p.stop()
		})
	}
}

// pathIn returns where the source is now: under its own name, or in staging.
func pathIn(s *site, path string) string {
	if exists(path) {
		return path
	}
	found, _ := filepath.Glob(filepath.Join(s.dir, "spool", "staging", "*.part"))
	if len(found) == 1 {
		return found[0]
	}
	return path
}

// waitBroken waits until somebody waits in open(2) for writing: then a lease can no longer be taken on the file.
func waitBroken(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); errors.Is(err, unix.EAGAIN) {
			return
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err != nil {
			t.Error(err)
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Error("no writer came")
}

// What is no longer what the watch saw is not taken: gone, changed, replaced, no regular file, open for writing.
func TestNotTaken(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(path string) error
		code  attachment.Code
	}{
		"gone":     {os.Remove, attachment.NotTakenChanged},
		"grown":    {func(p string) error { return os.WriteFile(p, []byte("longer than before"), 0o644) }, attachment.NotTakenChanged},
		"replaced": {func(p string) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o644)) }, attachment.NotTakenSpecial},
		"symlink":  {func(p string) error { return errors.Join(os.Remove(p), os.Symlink("/etc/passwd", p)) }, attachment.NotTakenSpecial},
	} {
		for _, move := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, move %v", name, move), func(t *testing.T) {
				s := newSite(t)
				path := s.write("a.jpg", "before")
				req := s.request(path, move)
				if err := c.spoil(path); err != nil {
					t.Fatal(err)
				}
				p := s.restart()
				defer p.stop()
				_, err := p.Adopt(context.Background(), req)
				var nt *NotTakenError
				if !errors.As(err, &nt) || nt.Code != c.code {
					t.Errorf("got %v, want %s", err, c.code)
				}
				if left := p.leftovers(); len(left) > 0 || len(p.contents()) > 0 {
					t.Errorf("left: %v %v", left, p.contents())
				}
			})
		}
	}
}

// A file that is open for writing, held open during the settle time, is left alone by move and by copy.
func TestOpenFileIsLeftAlone(t *testing.T) {
	s := newSite(t)
	path := s.write("video.mp4", "part one")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := s.restart()
	defer p.stop()
	for _, move := range []bool{true, false} {
		var nt *NotTakenError
		if _, err := p.Adopt(context.Background(), s.request(path, move)); !errors.As(err, &nt) || nt.Code != attachment.NotTakenOpen {
			t.Errorf("move %v: %v", move, err)
		}
	}
	if _, err := f.WriteString(", part two"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := p.Adopt(context.Background(), s.request(path, false))
	if err != nil || p.contents()[r.ID] != "part one, part two" {
		t.Errorf("%v %q", err, p.contents()[r.ID])
	}
}

// A file that is emptied or deleted while its bytes are being copied is not taken as complete.
func TestChangedDuringCopy(t *testing.T) {
	for name, change := range map[string]func(string) error{
		"deleted": os.Remove,
		"replaced by rename": func(p string) error {
			return errors.Join(os.WriteFile(p+".new", []byte("other"), 0o644), os.Rename(p+".new", p))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			path := s.write("a.jpg", strings.Repeat("x", 300_000))
			changed := false
			p := s.start(durable.Hooked(func(c durable.Call) error {
				if c.Op == durable.OpWrite && !changed {
					changed = true
					return change(path)
				}
				return nil
			}))
			_, err := p.Adopt(context.Background(), s.request(path, false))
			var nt *NotTakenError
			if !changed || !errors.As(err, &nt) || nt.Code != attachment.NotTakenChanged {
				t.Errorf("changed %v, %v", changed, err)
			}
			if left := p.leftovers(); len(left) > 0 || len(p.contents()) > 0 {
				t.Errorf("left: %v", left)
			}
			p.stop()
		})
	}
}

// An empty file that the watch offers after its grace period is secured into attention.
func TestEmptyFile(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "")
	p := s.restart()
	defer p.stop()
	r, err := p.Adopt(context.Background(), s.request(path, true))
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Queue.Get(r.ID)
	if err != nil || e.Manifest.State != attachment.Attention || e.Manifest.Problem.Code != attachment.NeedsEmptyFile {
		t.Errorf("%+v, %v", e.Manifest, err)
	}
}

// No room: nothing is begun, the source stays, and the reason is storage.
func TestNoRoom(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "x")
	p := s.restart()
	defer p.stop()
	p.Room = func(context.Context, int64) error { return errors.New("31 MiB free") }
	for _, move := range []bool{true, false} {
		var nt *NotTakenError
		if _, err := p.Adopt(context.Background(), s.request(path, move)); !errors.As(err, &nt) || nt.Code != attachment.NotTakenStorage {
			t.Errorf("move %v: %v", move, err)
		}
	}
	if !exists(path) || len(p.leftovers()) > 0 {
		t.Error("something was done")
	}
}

func submission(files ...string) (Submission, func() (io.Reader, error)) {
	s := Submission{ID: uuid.NewString(), Parent: attachment.Parent{LocalID: attachment.NameOf("insp-7")}}
	for i, f := range files {
		s.Files = append(s.Files, SubmissionFile{Name: attachment.NameOf(fmt.Sprintf("f%d.jpg", i)), Length: int64(len(f))})
	}
	return s, feed(files...)
}

func feed(files ...string) func() (io.Reader, error) {
	i := -1
	return func() (io.Reader, error) {
		i++
		return strings.NewReader(files[i]), nil
	}
}

// A submission is all or nothing, and repeating one whose answer was lost gives the same attachments.
func TestSubmit(t *testing.T) {
	s := newSite(t)
	p := s.restart()
	defer p.stop()
	sub, next := submission("one", "two")
	ids, err := p.Submit(context.Background(), sub, next)
	if err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	again, err := p.Submit(context.Background(), sub, nil)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(ids) {
		t.Errorf("%v, %v", again, err)
	}
	short, _ := submission("one", "two")
	if _, err := p.Submit(context.Background(), short, feed("one", "tw")); !errors.Is(err, ErrSubmissionLength) {
		t.Errorf("short file: %v", err)
	}
	long, _ := submission("one", "two")
	if _, err := p.Submit(context.Background(), long, feed("one", "two and more")); !errors.Is(err, ErrSubmissionLength) {
		t.Errorf("long file: %v", err)
	}
	bad, next := submission("one")
	bad.Files[0].Name = attachment.NameOf("../../etc/passwd")
	if _, err := p.Submit(context.Background(), bad, next); !errors.Is(err, ErrSubmissionInvalid) {
		t.Errorf("bad name: %v", err)
	}
	if got := p.contents(); len(got) != 2 || got[ids[0]] != "one" || got[ids[1]] != "two" {
		t.Errorf("%q", got)
	}
	if left := p.leftovers(); len(left) > 0 {
		t.Error(left)
	}
}
