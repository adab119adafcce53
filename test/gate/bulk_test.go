package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/test/plantroom"
	"github.com/fieldgw/fieldgw/test/rig"
)

// bulk is how many files are dropped at once.
const bulk = 2000

// Two thousand small files dropped at once while the server is down, then up: all are delivered, none twice. The daemon's
// memory is printed before, during and after; it is not asserted.
func TestTwoThousandFilesWhileServerIsDown(t *testing.T) {
	r := newRig(t, rig.Options{Retry: "500ms-1s"})
	must(t, "start", r.StartDaemon(t.Context()))
	rss(t, r, "before")
	must(t, "kill server", r.KillServer())
	want := drop(t, r)
	rss(t, r, "dropped")
	must(t, "custody", rig.Until(t.Context(), 5*time.Minute, "custody of all", func() (bool, error) {
		s, err := status(t, r)
		return s.Of(attachment.ShownWaiting).Items == bulk, err
	}))
	rss(t, r, "in custody, server down")
	must(t, "start server", r.StartServer(t.Context()))
	must(t, "delivery", rig.Until(t.Context(), 5*time.Minute, "delivery of all", func() (bool, error) {
		s, err := status(t, r)
		return s.Of(attachment.ShownDelivered).Items == bulk, err
	}))
	rss(t, r, "delivered")

	items, err := r.Truth(t.Context())
	must(t, "truth", err)
	registered, err := r.Registered(t.Context())
	must(t, "ask the server", err)
	if len(items) != bulk || len(registered) != bulk {
		t.Fatalf("%d on the device, %d on the server", len(items), len(registered))
	}
	for _, i := range items {
		name := i.Filename.Exact()
		if want[name] != registered[string(i.ID)].Receipt.SHA256 {
			t.Errorf("%s: registered %s, dropped %q", name, registered[string(i.ID)].Receipt.SHA256, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("%d files were never delivered", len(want))
	}
}

func status(t *testing.T, r *rig.Rig) (s control.Status, err error) {
	err = r.CtlJSON(t.Context(), &s, "status")
	return s, err
}

func rss(t *testing.T, r *rig.Rig, when string) {
	t.Helper()
	bytes, err := r.Daemon().RSS()
	must(t, "read RSS", err)
	t.Logf("RSS %-24s %6.1f MiB", when, float64(bytes)/(1<<20))
}

// drop writes small real JPEGs, all different, and returns their digests by name.
func drop(t *testing.T, r *rig.Rig) map[string]string {
	t.Helper()
	dir := filepath.Join(r.Capture(), record)
	must(t, "make directory", os.MkdirAll(dir, 0o755))
	want := map[string]string{}
	var picture bytes.Buffer
	for i := range bulk {
		picture.Reset()
		must(t, "make picture", plantroom.SmallJPEG(&picture, uint64(i)))
		name := fmt.Sprintf("DSC_%04d.JPG", i)
		must(t, "drop", os.WriteFile(filepath.Join(dir, name), picture.Bytes(), 0o644))
		sum := sha256.Sum256(picture.Bytes())
		want[name] = hex.EncodeToString(sum[:])
	}
	return want
}
