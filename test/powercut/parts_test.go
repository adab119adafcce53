package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Proves that a crash state holds every write before the last flush, and of the later ones those that were chosen, up to
// the moment of the crash and not beyond.
func TestCrashState(t *testing.T) {
	log := []op{
		{off: 0, data: []byte("a")}, {off: 1, data: []byte("b")}, {flush: true},
		{off: 0, data: []byte("A")}, {off: 2, data: []byte("c")}, {flush: true}, {off: 3, data: []byte("d")},
	}
	for _, c := range []struct {
		n    int
		keep bool
		want string
	}{
		{0, true, "...."}, {1, false, "...."}, {1, true, "a..."}, {3, false, "ab.."}, {4, false, "ab.."}, {4, true, "Ab.."},
		{5, true, "Abc."}, {6, false, "Abc."}, {7, false, "Abc."}, {7, true, "Abcd"},
	} {
		image := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(image, []byte("...."), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := state(image, log, c.n, func() bool { return c.keep }); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(image); err != nil || string(got) != c.want {
			t.Errorf("after %d operations, later ones kept %t: %q, want %q, %v", c.n, c.keep, got, c.want, err)
		}
	}
}

// Proves that promises are read from the daemon's log as it is written, and that a cut counts for the shortest phase that
// it met.
func TestPromises(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	text := `time=2026-11-30T22:32:26.453Z level=INFO msg="attachment changed" account=default attachment=one event=adopted from="" state=captured seq=1
time=2026-11-30T22:32:26.481Z level=INFO msg="attachment changed" account=default attachment=one event=session_opened from=ready state=uploading seq=5
time=2026-11-30T22:32:26.672Z level=WARN msg="sending is held" account=default hold=credentials err="offset: open"
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readLog(path)
	want := []transition{{"one", attachment.EventAdopted, attachment.Captured}, {"one", attachment.EventSessionOpened, attachment.Uploading}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("read %v, %v", got, err)
	}
	for _, c := range []struct {
		f    facts
		want phase
	}{
		{facts{}, nothing},
		{facts{dropped: 1}, settling},
		{facts{dropped: 2, staged: 1, state: map[string]attachment.State{"a": attachment.Reconciled}}, adopting},
		{facts{dropped: 1, state: map[string]attachment.State{"a": attachment.Ready}}, waiting},
		{facts{dropped: 2, state: map[string]attachment.State{"a": attachment.Uploading, "b": attachment.Uploaded}}, registering},
		{facts{dropped: 1, state: map[string]attachment.State{"a": attachment.Reconciled}}, delivered},
	} {
		if got := c.f.phase(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.f, got, c.want)
		}
	}
}

// Proves that the seed alone decides files, moment and pace, so that a replay aims at the same moment.
func TestPlanFollowsFromSeed(t *testing.T) {
	first, second, other := newPlan(xfs, roleServer, 7), newPlan(xfs, roleServer, 7), newPlan(xfs, roleServer, 8)
	if !reflect.DeepEqual(first, second) {
		t.Error("one seed gave two plans")
	}
	if first.files[0].sha256 == other.files[0].sha256 {
		t.Error("two seeds gave one file")
	}
	o, err := parse([]string{"-cuts", "1", "-seed", "7", "-fs", "xfs", "-roles", "server"}, io.Discard)
	if err != nil || o.seed != 7 || !slices.Equal(o.systems, []string{xfs}) || !slices.Equal(o.roles, []string{roleServer}) {
		t.Errorf("the replay's own flags: %+v, %v", o, err)
	}
	for _, bad := range [][]string{{"-fs", "vfat"}, {"-roles", ""}, {"-cuts", "0"}, {"-explore", "-1"}, {"more"}} {
		if _, err := parse(bad, io.Discard); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// Proves that a copy keeps content and length of a file with holes.
func TestCopySparse(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	file, err := os.Create(from)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("in the middle"), 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := inOrder(func() error { return file.Truncate(3 << 20) }, file.Close, func() error { return copySparse(from, to) }); err != nil {
		t.Fatal(err)
	}
	a, errA := os.ReadFile(from)
	b, errB := os.ReadFile(to)
	if errA != nil || errB != nil || !slices.Equal(a, b) {
		t.Errorf("%d and %d bytes, equal %t: %v, %v", len(a), len(b), slices.Equal(a, b), errA, errB)
	}
}
