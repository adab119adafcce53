package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/test/rig"
)

// bin is where TestMain built the programs.
var bin string

func TestMain(m *testing.M) { os.Exit(runMain(m)) }

func runMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fgw-transport-")
	if err == nil {
		bin = filepath.Join(dir, "bin")
		err = rig.Build(context.Background(), bin)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// limit ends a test that would wait for ever.
const limit = 2 * time.Minute

// scene is a rig with what these tests ask of it.
type scene struct {
	*rig.Rig
	t *testing.T
}

// shortDir makes a directory whose name is short enough for a unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fgw")
	must(t, "make directory", err)
	t.Cleanup(func() { must(t, "remove directory", os.RemoveAll(dir)) })
	return dir
}

func newScene(t *testing.T, o rig.Options) *scene {
	t.Helper()
	if o.Dir == "" {
		o.Dir = shortDir(t)
	}
	o.Bin = bin
	r, err := rig.New(t.Context(), o)
	must(t, "make rig", err)
	t.Cleanup(func() {
		err := r.Close()
		if t.Failed() {
			for _, name := range []string{"fieldgwd", "fieldgw-server"} {
				log, _ := os.ReadFile(r.Log(name))
				t.Logf("%s:\n%s", name, log)
			}
		}
		must(t, "close rig", err)
	})
	return &scene{r, t}
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (s *scene) until(what string, ok func() (bool, error)) {
	s.t.Helper()
	must(s.t, "wait", rig.Until(s.t.Context(), limit, what, ok))
}

// drop captures a file of so many bytes.
func (s *scene) drop(name string, size int) []byte {
	s.t.Helper()
	content := uplinktest.Content(uint64(size), size)
	path := filepath.Join(s.Capture(), "inspection-7", name)
	must(s.t, "make directory", os.MkdirAll(filepath.Dir(path), 0o755))
	must(s.t, "capture", os.WriteFile(path, content, 0o644))
	return content
}

func (s *scene) item(name string) (item control.Item) {
	s.t.Helper()
	items, err := s.Items(s.t.Context())
	must(s.t, "list", err)
	for _, i := range items {
		if i.Filename.Text == name {
			item = i
		}
	}
	return item
}

func (s *scene) delivered(name string) {
	s.t.Helper()
	s.until(name+" delivered", func() (bool, error) { return s.item(name).Condition == attachment.ShownDelivered, nil })
	_, err := s.Truth(s.t.Context())
	must(s.t, "compare with the server", err)
}

func (s *scene) status() (status control.Status) {
	s.t.Helper()
	out, stderr, _, err := s.Ctl(s.t.Context(), "-o", "json", "status")
	must(s.t, "status "+stderr, err)
	must(s.t, "read status", decode(out, &status))
	return status
}

// held waits until all sending is held for a reason, and returns what the status says of it.
func (s *scene) held(reason attachment.Code) control.Waiting {
	s.t.Helper()
	var w control.Waiting
	s.until("sending held: "+string(reason), func() (bool, error) {
		channel := s.status().Sending.Channel
		if channel == nil || channel.Reason != reason {
			return false, nil
		}
		w = *channel
		return true, nil
	})
	return w
}

// uncharged checks that nothing was held against a file, and that it took so many sessions.
func (s *scene) uncharged(name string, sessions int) {
	s.t.Helper()
	var d control.ItemDetail
	must(s.t, "show", s.CtlJSON(s.t.Context(), &d, "show", string(s.item(name).ID)))
	if d.Failures != 0 {
		s.t.Errorf("%s was charged with %d failures", name, d.Failures)
	}
	for _, row := range d.Journal {
		if row.Event == attachment.EventFailed {
			s.t.Errorf("%s was charged: %+v", name, row)
		}
	}
	registered, err := s.Registered(s.t.Context())
	must(s.t, "ask the server", err)
	if a := registered[string(d.ID)]; sessions > 0 && a.Generation != sessions {
		s.t.Errorf("%s took %d sessions, want %d", name, a.Generation, sessions)
	}
}
