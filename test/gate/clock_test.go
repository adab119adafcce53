package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/test/rig"
)

// clockVariable names the file that holds by how many seconds a program's wall clock is wrong.
const clockVariable = "FIELDGW_TEST_CLOCK"

// A build for the matrix has a wall clock of its own: time.Now adds what a mapped file says, so that the clock of one
// running program is stepped without touching the machine's. Running time, timers and the time stamps of files stay right,
// as after a step of the real clock (clock_settime(2)).
const (
	nowFile = "src/time/time.go"
	nowOld  = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	nowNew  = "\tsec, nsec, mono := runtimeNow()\n\tif clockError != nil {\n\t\tsec += *clockError\n\t}\n\tif mono == 0 {"

	clockFile   = "src/time/clockerror.go"
	clockSource = `package time

import (
	"syscall"
	"unsafe"
)

var clockError = mapClockError()

func mapClockError() *int64 {
	path, _ := syscall.Getenv("` + clockVariable + `")
	if path == "" {
		return nil
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("` + clockVariable + `: " + err.Error())
	}
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("` + clockVariable + `: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&page[0]))
}
`
)

// buildMatrix builds programs whose wall clock can be stepped and which kill themselves at a named point.
func buildMatrix(ctx context.Context, scratch, into string) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find the standard library: %w", err)
	}
	std := strings.TrimSpace(string(root))
	return rig.BuildReplaced(ctx, scratch, into, []rig.Replacement{
		{File: filepath.Join(std, nowFile), Old: nowOld, New: nowNew},
		{File: filepath.Join(std, clockFile), New: clockSource},
	}, "-tags", "killpoints")
}

// wallClock is a device's wall clock, in a file that its programs map.
type wallClock string

func newWallClock(path string) (wallClock, error) {
	return wallClock(path), os.WriteFile(path, make([]byte, 8), 0o600)
}

// set makes the clock wrong by that much, for the programs that run now as well.
func (c wallClock) set(wrong time.Duration) error {
	f, err := os.OpenFile(string(c), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(wrong/time.Second)), 0)
	return errors.Join(err, f.Close())
}

// The programs of the matrix show the time that their clock file says, at once, and only they.
func TestClockOfMatrixPrograms(t *testing.T) {
	programs := matrixPrograms(t)
	clock, err := newWallClock(filepath.Join(t.TempDir(), "clock"))
	must(t, "make clock", err)
	r := newRig(t, rig.Options{Bin: programs, Env: map[string][]string{"fieldgwd": {clockVariable + "=" + string(clock)}}})
	must(t, "start", r.StartDaemon(t.Context()))
	for i, wrong := range []time.Duration{0, -30 * time.Minute, 10 * time.Minute, sinceEpoch()} {
		must(t, "set clock", clock.set(wrong))
		name := fmt.Sprintf("%d.jpg", i)
		copyFile(t, files[0].Path, filepath.Join(r.Capture(), name))
		before := time.Now()
		must(t, "custody", rig.Until(t.Context(), time.Minute, "custody", func() (bool, error) {
			items, err := r.Items(t.Context())
			for _, item := range items {
				if item.Filename.Exact() != name {
					continue
				}
				if off := item.AdoptedAt.Sub(before.Add(wrong)); off.Abs() > 5*time.Minute {
					t.Errorf("clock wrong by %s: adopted at %s, which is %s off", wrong, item.AdoptedAt, off)
				}
				return true, nil
			}
			return false, err
		}))
	}
}

// sinceEpoch is how wrong a clock is that begins in 1970.
func sinceEpoch() time.Duration { return -time.Since(time.Unix(0, 0)).Truncate(time.Second) }
