package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/test/plantroom"
	"github.com/fieldgw/fieldgw/test/rig"
)

const (
	// waiting is how many small files wait: enough for a queue with branch pages.
	waiting = 12
	// perItem bounds what a delivery sends beside the payload, in bytes: requests, TLS, and its share of the handshakes.
	perItem = 12 << 10
)

// scene is a device with something in every condition, both programs killed and the link cut. It is kept, to be brought
// back as often as it is needed.
type scene struct {
	*rig.Rig
	archive string
	// items are the attachments by their file names, as they were when the daemon was killed.
	items map[string]control.Item
	// confirmed is how many bytes of the interrupted one the server had confirmed.
	confirmed int64
}

// interrupted is the name of the file whose transfer is interrupted.
const interrupted = "interrupted.jpg"

// newScene makes: two delivered files, one of them from a directory in which sources stay; one interrupted in its transfer,
// one that a person paused, one in attention, one that was until a person decided, and others that wait, one of them with its
// source still in place.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{items: map[string]control.Item{}}
	archive, err := os.MkdirTemp("", "fgwa")
	must(t, "make archive", err)
	t.Cleanup(func() { must(t, "remove archive", os.RemoveAll(archive)) })
	s.archive = archive
	s.Rig = newRig(t, rig.Options{
		Retry: "200ms-400ms", Uplink: "chunk_size = \"128KiB\"",
		Config: fmt.Sprintf("[watch.archive]\npath = %q\nsettle = \"300ms\"\nadopt = \"copy\"", archive),
	})
	must(t, "start", s.StartDaemon(t.Context()))
	s.drop(t, s.Capture(), "delivered.jpg", 1)
	s.drop(t, archive, "standing.jpg", 2)
	s.until(t, "two delivered", func(items []control.Item) bool { return rig.Delivered(items) == 2 })

	s.Link.SetRate(1 << 20)
	copyFile(t, files[0].Path, filepath.Join(s.Capture(), interrupted))
	s.until(t, "a confirmed offset", func(items []control.Item) bool {
		for _, i := range items {
			if i.Filename.Exact() == interrupted && confirmed(i) >= 512<<10 {
				return true
			}
		}
		return false
	})
	s.Link.Cut()
	s.Link.SetRate(0)
	s.drop(t, s.Capture(), "paused.jpg", 3)
	s.drop(t, archive, "standing-too.jpg", 4)
	for _, name := range []string{"empty.jpg", "retried.jpg"} { // a person must look at an empty file
		must(t, "write", os.WriteFile(s.Path(name), nil, 0o644))
		s.ctl(t, 0, "submit", "--record", record, s.Path(name))
	}
	for i := range waiting {
		s.drop(t, s.Capture(), fmt.Sprintf("waiting-%02d.jpg", i), uint64(10+i))
	}
	s.until(t, "custody of all", func(items []control.Item) bool { return len(items) == waiting+7 })
	s.ctl(t, 0, "pause", string(s.find(t, "paused.jpg").ID), "--reason", "shows a badge")
	s.ctl(t, 0, "retry", string(s.find(t, "retried.jpg").ID), "--reason", "it is empty")
	items, err := s.Items(t.Context())
	must(t, "list", err)
	for _, i := range items {
		s.items[i.Filename.Exact()] = i
	}
	s.confirmed = confirmed(s.items[interrupted])
	must(t, "kill", s.KillDaemon())
	must(t, "kill server", s.KillServer())
	must(t, "make directory", os.Mkdir(s.Path("kept"), 0o755))
	copyTree(t, s.Path("device"), s.Path("kept", "device"))
	copyTree(t, s.Path("server"), s.Path("kept", "server"))
	return s
}

// restore brings the scene back.
func (s *scene) restore(t *testing.T) {
	t.Helper()
	s.Link.Cut()
	for _, side := range []string{"device", "server"} {
		must(t, "remove", os.RemoveAll(s.Path(side)))
		copyTree(t, s.Path("kept", side), s.Path(side))
	}
	for _, name := range []string{"later.jpg", "later-standing.jpg"} {
		must(t, "remove", os.RemoveAll(filepath.Join(s.archive, name)))
	}
}

// copyTree copies with times and modes: a source that stays in place is known by its time.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}

// drop writes a small real JPEG into a watched directory and returns its digest.
func (s *scene) drop(t *testing.T, dir, name string, tag uint64) string {
	t.Helper()
	var picture bytes.Buffer
	must(t, "make picture", plantroom.SmallJPEG(&picture, tag))
	must(t, "drop", os.WriteFile(filepath.Join(dir, name), picture.Bytes(), 0o644))
	sum := sha256.Sum256(picture.Bytes())
	return hex.EncodeToString(sum[:])
}

func (s *scene) until(t *testing.T, what string, ok func([]control.Item) bool) {
	t.Helper()
	var items []control.Item
	err := rig.Until(t.Context(), 30*time.Second, what, func() (bool, error) {
		var err error
		items, err = s.Items(t.Context())
		return ok(items), err
	})
	if err != nil {
		for _, i := range items {
			t.Logf("%-20s %s %d of %d", i.Filename.Printable(), i.Condition, confirmed(i), i.Length)
		}
		t.Fatal(err)
	}
}

// find returns the one attachment of a name.
func (s *scene) find(t *testing.T, name string) (found control.Item) {
	t.Helper()
	items, err := s.Items(t.Context())
	must(t, "list", err)
	n := 0
	for _, i := range items {
		if i.Filename.Exact() == name {
			found = i
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d attachments are called %s", n, name)
	}
	return found
}

// ctl runs fieldgwctl, which must end with the code, and returns all that it printed.
func (s *scene) ctl(t *testing.T, code int, args ...string) string {
	t.Helper()
	stdout, stderr, got, err := s.Ctl(t.Context(), args...)
	if err != nil || got != code {
		t.Fatalf("fieldgwctl %q: exit %d, want %d, %v\n%s%s", args, got, code, err, stdout, stderr)
	}
	return stdout + stderr
}

// offline runs a command of the stopped daemon, which must end with the code, and returns all that it printed.
func (s *scene) offline(t *testing.T, code int, verb string, args ...string) string {
	t.Helper()
	stdout, stderr, got, err := s.Offline(t.Context(), verb, args...)
	if err != nil || got != code {
		t.Fatalf("fieldgwd %s %q: exit %d, want %d, %v\n%s%s", verb, args, got, code, err, stdout, stderr)
	}
	return stdout + stderr
}

// manifest is the path of the manifest that travels with an attachment.
func (s *scene) manifest(id attachment.ID) string {
	return filepath.Join(s.Spool(), "spool", "payload", string(id)[len(id)-2:], string(id)+".manifest")
}

func confirmed(i control.Item) int64 {
	if i.ConfirmedBytes == nil {
		return 0
	}
	return *i.ConfirmedBytes
}
