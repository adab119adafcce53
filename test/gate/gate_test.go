package gate

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/test/plantroom"
	"github.com/fieldgw/fieldgw/test/rig"
)

var (
	runs = flag.Int("gate.runs", 20, "number of plant-room runs with a kill at a random moment")
	seed = flag.Uint64("gate.seed", 0, "seed of the random moments; 0 takes one from the clock and prints it")
)

// bin is where TestMain built the programs, source where it made the plant-room files.
var (
	bin   string
	files []plantroom.File
)

// buildContext is for what is built once for all tests.
var buildContext = context.Background()

func TestMain(m *testing.M) {
	flag.Parse()
	if code, done := inNamespace(); done {
		os.Exit(code)
	}
	os.Exit(runMain(m))
}

func runMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fgw-gate-")
	if err == nil {
		bin = filepath.Join(dir, "bin")
		err = rig.Build(buildContext, bin)
	}
	if err == nil {
		files, err = plantroom.Generate(filepath.Join(dir, "source"), 7)
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

// shortDir makes a directory whose name is short enough for a unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fgw")
	must(t, "make directory", err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// newRig is a rig with the programs in bin, in a new directory, unless the options name others.
func newRig(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	if o.Dir == "" {
		o.Dir = shortDir(t)
	}
	o.Bin = cmp.Or(o.Bin, bin)
	r, err := rig.New(t.Context(), o)
	must(t, "make rig", err)
	closeAfter(t, r)
	return r
}

// closeAfter ends a rig's programs with the test and shows their logs when it failed.
func closeAfter(t *testing.T, r *rig.Rig) {
	t.Cleanup(func() {
		err := r.Close()
		if t.Failed() {
			for _, name := range []string{"fieldgwd", "fieldgw-server"} {
				log, _ := os.ReadFile(r.Log(name))
				t.Logf("%s:\n%s", name, log)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// takeSeed takes a seed from the clock when none was given; all tests of a run have the same.
func takeSeed(t *testing.T) {
	t.Helper()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, "open", err)
	defer in.Close()
	out, err := os.Create(to)
	must(t, "create", err)
	_, err = io.Copy(out, in)
	must(t, "copy", errors.Join(err, out.Close()))
}

const record = "inspection-7"

// capture drops two photographs and submits the third and the PDF, and returns the digests to find on the server.
func capture(t *testing.T, r *rig.Rig) map[string]string {
	t.Helper()
	dir := filepath.Join(r.Capture(), record)
	must(t, "make capture directory", os.MkdirAll(dir, 0o755))
	for _, f := range files[:2] {
		copyFile(t, f.Path, filepath.Join(dir, f.Name))
	}
	_, stderr, code, err := r.Ctl(t.Context(), "submit", "--record", record, files[2].Path, files[3].Path)
	if err != nil || code != 0 {
		t.Fatalf("submit: exit %d, %v: %s", code, err, stderr)
	}
	want := map[string]string{}
	for _, f := range files {
		want[f.Name] = f.SHA256
	}
	return want
}

// The plant-room fixture with the link cut before the first acknowledgement and SIGKILL at a random moment between submit
// and delivery: every run ends with four delivered, digests equal, one server object per attachment, and at no moment
// does fieldgwctl show as delivered what the server has not registered.
func TestPlantRoomSurvivesKillAtAnyMoment(t *testing.T) {
	takeSeed(t)
	t.Logf("replay with -gate.seed=%d", *seed)
	rnd := rand.New(rand.NewPCG(*seed, 1))
	for run := range *runs {
		moment := time.Duration(rnd.Int64N(int64(2500 * time.Millisecond)))
		outage := time.Duration(rnd.Int64N(int64(1500 * time.Millisecond)))
		cut := 20_000 + rnd.Int64N(500_000)
		t.Run(fmt.Sprintf("%02d-kill-at-%s", run, moment.Round(time.Millisecond)), func(t *testing.T) {
			plantRoom(t, moment, outage, cut)
		})
	}
}

func plantRoom(t *testing.T, moment, outage time.Duration, cut int64) {
	r := newRig(t, rig.Options{Retry: "200ms-400ms"})
	r.Link.SetRate(8 << 20)
	must(t, "start", r.StartDaemon(t.Context()))
	r.Link.CutAfter(cut)
	want := capture(t, r)

	ctx, stop := context.WithCancel(t.Context())
	lies := make(chan error, 1)
	go func() { lies <- watchTruth(ctx, r) }()
	restored := make(chan struct{})
	go func() {
		defer close(restored)
		<-time.After(outage)
		r.Link.Restore()
	}()
	<-time.After(moment)
	if items, err := r.Items(t.Context()); err == nil {
		t.Logf("killed with %d in custody, %d delivered", len(items), rig.Delivered(items))
	}
	must(t, "kill", r.KillDaemon())
	must(t, "restart", r.StartDaemon(t.Context()))
	<-restored
	deliverAll(t, r, want)
	stop()
	must(t, "delivered shown early", <-lies)
	must(t, "verify", r.Verify(t.Context(), record, want))
}

// watchTruth looks again and again until ctx ends, also while one of the programs is down, and returns the first lie.
func watchTruth(ctx context.Context, r *rig.Rig) error {
	for ctx.Err() == nil {
		if _, err := r.Truth(ctx); errors.Is(err, rig.ErrUntrue) {
			return err
		}
	}
	return nil
}

func deliverAll(t *testing.T, r *rig.Rig, want map[string]string) {
	t.Helper()
	must(t, "deliver", rig.Until(t.Context(), time.Minute, "everything delivered", func() (bool, error) {
		items, err := r.Truth(t.Context())
		return rig.Delivered(items) == len(want), err
	}))
}
