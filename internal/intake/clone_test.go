package intake

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// mountXFS mounts a new filesystem that can share blocks, for the length of a test.
func mountXFS(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not run: mounting an xfs image needs root")
	}
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "xfs.img"), filepath.Join(dir, "mnt")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"truncate", "-s", "320M", image}, {"mkfs.xfs", "-q", image}, {"mount", "-o", "loop", image, mount},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("not run: no xfs image can be mounted here: %s: %v: %s", args[0], err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return mount
}

// Where the filesystem can share blocks a copy is a clone, says so, and keeps the source as it was when a program goes on
// writing to it; and custody by clone survives a fault or a death at every file operation.
func TestAdoptByClone(t *testing.T) {
	mount := mountXFS(t)
	s := newSiteIn(t, filepath.Join(mount, "first"))
	path := s.write("a.jpg", "first version")
	p := s.restart()
	r, err := p.Adopt(context.Background(), s.request(path, false))
	if err != nil || !r.Stays {
		t.Fatalf("%+v, %v", r, err)
	}
	if e, err := p.Queue.Get(r.ID); err != nil || e.Manifest.Custody != attachment.CustodyClone {
		t.Errorf("custody by %s, %v", e.Manifest.Custody, err)
	}
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err != nil {
		t.Error(err)
	} else if _, err := f.WriteAt([]byte("XXXXX"), 0); err != nil || f.Close() != nil {
		t.Error(err)
	}
	if got := p.contents()[r.ID]; got != "first version" {
		t.Errorf("the payload followed its source: %q", got)
	}
	p.stop()
	sc := scenarios()[1]
	for _, ft := range faults {
		n := 0
		for more := true; more; n++ {
			root := filepath.Join(mount, fmt.Sprintf("%s-%d", ft.name, n))
			more = sweepOnce(t, root, sc, ft, n)
			if err := os.RemoveAll(root); err != nil {
				t.Fatal(err)
			}
			if t.Failed() {
				t.Fatalf("%s at operation %d", ft.name, n)
			}
		}
		if n < 15 {
			t.Errorf("%s: only %d operations", ft.name, n)
		}
	}
}
