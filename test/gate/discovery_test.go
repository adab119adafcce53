package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/test/rig"
)

// Files with names of any bytes are delivered under exactly these, and what is no file of its own stays where it is with
// its reason.
func TestNamesAndKinds(t *testing.T) {
	r := newRig(t, rig.Options{})
	dir := filepath.Join(r.Capture(), record)
	must(t, "make directory", os.MkdirAll(dir, 0o755))
	want := map[string]string{} // names to digests
	for i, name := range []string{
		"new\nline.jpg", "tab\t and \x01\x7f.jpg", "\x1b[31mred.jpg", "\u202egpj.exe", "😀 crème.jpg", "latin-\xe9\xff.jpg", "\xf0\x9f.jpg",
		strings.Repeat("n", 255), strings.Repeat("\xfc", 255), "CON", "aux.txt", "LPT1.jpg", "a:b?*|.jpg", `back\slash.jpg`, "trailing. ", " ", "-rf", "$(reboot)",
	} {
		content := fmt.Sprintf("content %d", i)
		must(t, "write", os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
		sum := sha256.Sum256([]byte(content))
		want[name] = hex.EncodeToString(sum[:])
	}
	outside := r.Path("outside.jpg")
	must(t, "write", os.WriteFile(outside, []byte("not to be taken"), 0o644))
	must(t, "link", os.Symlink(outside, filepath.Join(dir, "link.jpg")))
	must(t, "link", os.Symlink(r.Path("server"), filepath.Join(dir, "directory")))
	must(t, "pipe", syscall.Mkfifo(filepath.Join(dir, "pipe.jpg"), 0o644))
	must(t, "socket", syscall.Mknod(filepath.Join(dir, "socket.jpg"), syscall.S_IFSOCK|0o644, 0))
	must(t, "write", os.WriteFile(filepath.Join(dir, "~$report.docx"), []byte("x"), 0o644))
	tooDeep(t, dir)
	reasons := map[string]attachment.Code{
		"link.jpg": attachment.NotTakenSpecial, "directory": attachment.NotTakenSpecial, "pipe.jpg": attachment.NotTakenSpecial,
		"socket.jpg": attachment.NotTakenSpecial, "~$report.docx": attachment.NotTakenTemporary, longName: attachment.NotTakenTooDeep,
	}

	must(t, "start", r.StartDaemon(t.Context()))
	must(t, "delivery", rig.Until(t.Context(), 2*time.Minute, "delivery of all", func() (bool, error) {
		s, err := status(t, r)
		return s.Of(attachment.ShownDelivered).Items >= int64(len(want)) && s.NotTaken >= len(reasons), err
	}))
	items, err := r.Truth(t.Context())
	must(t, "truth", err)
	registered, err := r.Registered(t.Context())
	must(t, "ask the server", err)
	for _, i := range items {
		name := i.Filename.Exact()
		if want[name] == "" || want[name] != registered[string(i.ID)].Receipt.SHA256 {
			t.Errorf("%q: registered %q, want %q", name, registered[string(i.ID)].Receipt.SHA256, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("never delivered: %q", want)
	}
	var list control.Page[control.NotTaken]
	must(t, "list", r.CtlJSON(t.Context(), &list, "list", "--not-taken"))
	for _, n := range list.Items {
		name := filepath.Base(n.Path.Exact())
		if reasons[name] != n.Waiting.Reason {
			t.Errorf("%q is not taken because of %q, want %q", n.Path.Exact(), n.Waiting.Reason, reasons[name])
		}
		delete(reasons, name)
		t.Logf("%-20.20s %s", name, n.Waiting.Message)
	}
	if len(reasons) > 0 {
		t.Errorf("not listed: %v", reasons)
	}
}

var longName = strings.Repeat("d", 250)

// tooDeep makes a file at a path that no system call takes as a whole (PATH_MAX). It is told by the directory that is not
// entered any more.
func tooDeep(t *testing.T, dir string) {
	t.Helper()
	at, err := os.OpenRoot(dir)
	must(t, "open", err)
	for range 20 {
		must(t, "make directory", at.Mkdir(longName, 0o755))
		next, err := at.OpenRoot(longName)
		must(t, "open", err)
		must(t, "close", at.Close())
		at = next
	}
	must(t, "write", at.WriteFile("lost.jpg", []byte("x"), 0o644))
	must(t, "close", at.Close())
}

// With too few watches every file is delivered all the same, and the technician reads what is the matter and what to raise;
// so with no inotify instance at all. The limits are those of a user namespace of the daemon's own.
func TestWatchLimitsAreSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		limit, says string
	}{
		"watches":   {"max_inotify_watches", "9 of 11 directories give no events, new files in them are found by the next scan: the kernel's limit of watches is reached: raise the sysctl fs.inotify.max_user_watches."},
		"instances": {"max_inotify_instances", "there are no file events, new files are found by the next scan: the kernel's limit of inotify instances is reached: raise the sysctl fs.inotify.max_user_instances."},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rig.Options{})
			limits := map[string]string{"max_inotify_watches": "2", "max_inotify_instances": "0"}
			set := fmt.Sprintf(`echo %s >/proc/sys/user/%s && exec "$@"`, limits[tc.limit], tc.limit)
			r.Under = map[string][]string{"fieldgwd": {"unshare", "--user", "--map-root-user", "sh", "-c", set, "sh"}}
			for i := range 10 {
				dir := filepath.Join(r.Capture(), fmt.Sprintf("INS-%d", i))
				must(t, "make directory", os.MkdirAll(dir, 0o755))
				must(t, "write", os.WriteFile(filepath.Join(dir, "photo.jpg"), fmt.Append(nil, i), 0o644))
			}
			if err := r.StartDaemon(t.Context()); err != nil && strings.Contains(err.Error(), "unshare:") {
				t.Skipf("not run: no user namespace can be made here: %v", err)
			} else {
				must(t, "start", err)
			}
			must(t, "delivery", rig.Until(t.Context(), 2*time.Minute, "delivery of all", func() (bool, error) {
				s, err := status(t, r)
				return s.Of(attachment.ShownDelivered).Items == 10 && s.Watches[0].LastScan != nil, err
			}))
			for _, args := range [][]string{{"status"}, {"list", "--not-taken", "-o", "wide"}} {
				out, _, code, err := r.Ctl(t.Context(), args...)
				must(t, "fieldgwctl", err)
				t.Logf("fieldgwctl %s\n%s", strings.Join(args, " "), out)
				want := tc.says
				if args[0] == "list" {
					want = "raise the sysctl fs.inotify." + strings.Replace(tc.limit, "inotify", "user", 1)
				}
				if code != 0 || !strings.Contains(out, want) || strings.Contains(out, "space left") {
					t.Errorf("exit %d, want %q", code, want)
				}
			}
		})
	}
}
