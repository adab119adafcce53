package watch

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

func isOverflow(err error) bool { return errors.Is(err, ErrOverflow) }

func queueLimit(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	if n > 200_000 {
		t.Skip("not run: fs.inotify.max_queued_events is too large to fill")
	}
	return n
}

const (
	nobody       = 65534
	childVar     = "FIELDGW_WATCH_TEST_ROOT"
	permissionIn = "TestPermissions"
)

// Files and directories without permission are named and left, and taken once they may be read; a foreign file that may
// be read but not leased is taken on the evidence of quiet. Root may read everything, so as root the test runs itself as
// another user.
func TestPermissions(t *testing.T) {
	if root := os.Getenv(childVar); root != "" {
		watchAsNobody(t, root)
		return
	}
	base := t.TempDir()
	root := filepath.Join(base, "capture")
	mkdir(t, root)
	write(t, filepath.Join(root, "locked.jpg"), "x")
	write(t, filepath.Join(root, "closed/in.jpg"), "x")
	write(t, filepath.Join(root, "list-only/in.jpg"), "x")
	mkdir(t, filepath.Join(root, "bare/sub"))
	write(t, filepath.Join(root, "foreign.jpg"), "x")
	if os.Geteuid() != 0 {
		must(t, os.Chmod(filepath.Join(root, "locked.jpg"), 0))
		must(t, os.Chmod(filepath.Join(root, "closed"), 0))
		must(t, os.Chmod(filepath.Join(root, "list-only"), 0o444))
		must(t, os.Chmod(filepath.Join(root, "bare"), 0o444))
		watchAsNobody(t, root)
		return
	}
	must(t, os.Chmod(filepath.Dir(base), 0o755))
	must(t, os.Chown(root, nobody, nobody))
	for _, own := range []string{"locked.jpg", "closed", "closed/in.jpg", "list-only", "list-only/in.jpg", "bare"} {
		must(t, os.Chown(filepath.Join(root, own), nobody, nobody))
	}
	must(t, os.Chmod(filepath.Join(root, "locked.jpg"), 0))
	must(t, os.Chmod(filepath.Join(root, "closed"), 0))
	must(t, os.Chmod(filepath.Join(root, "list-only"), 0o444))
	must(t, os.Chmod(filepath.Join(root, "bare"), 0o444))
	copyOfTest := filepath.Join(base, "watch.test")
	copyFile(t, "/proc/self/exe", copyOfTest)
	child := exec.CommandContext(t.Context(), copyOfTest, "-test.run=^"+permissionIn+"$", "-test.v", "-test.timeout=2m")
	child.Dir = base
	child.Env = append(os.Environ(), childVar+"="+root, "TMPDIR="+root)
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: "+permissionIn) {
		t.Fatalf("as another user: %v\n%s", err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer func() { must(t, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, errors.Join(err, out.Close()))
}

func watchAsNobody(t *testing.T, root string) {
	h := build(t, Options{Rescan: time.Hour, Roots: []Root{
		{Name: "w", Path: root, Recursive: true, Settle: 50 * time.Millisecond},
	}}).start()
	info, err := os.Stat(h.path("foreign.jpg"))
	must(t, err)
	want := attachment.EvidenceLease
	if int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		want = attachment.EvidenceSettled
	}
	c := h.receive()
	if c.RelPath != "foreign.jpg" || c.Evidence != want {
		t.Fatalf("got %+v, want evidence %q", c, want)
	}
	h.Done(c, Disposition{Kind: Stays})
	for _, rel := range []string{"locked.jpg", "closed", "list-only", "bare"} {
		h.eventually(rel+" named", func() bool { return h.reasons()[rel] == attachment.NotTakenPermission })
	}
	h.eventually("down to these", func() bool { return len(h.reasons()) == 4 })
	must(t, os.Chmod(h.path("locked.jpg"), 0o600))
	if c := h.receive(); c.RelPath != "locked.jpg" {
		t.Fatalf("got %+v", c)
	}
	must(t, os.Chmod(h.path("closed"), 0o700))
	if c := h.receive(); c.RelPath != "closed/in.jpg" {
		t.Fatalf("got %+v", c)
	}
	must(t, os.Chmod(h.path("list-only"), 0o700))
	if c := h.receive(); c.RelPath != "list-only/in.jpg" {
		t.Fatalf("got %+v", c)
	}
}
