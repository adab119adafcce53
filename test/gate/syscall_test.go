package gate

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/test/rig"
)

var syscallRuns = flag.Int("gate.syscalls", 8, "number of plant-room runs with kills at random system calls")

// durableCalls are the system calls by which both programs make anything durable, with about how often one thread makes
// each in a run.
var durableCalls = []struct {
	name string
	mean float64
}{
	{"fsync", 4}, {"fdatasync", 6}, {"renameat", 2}, {"renameat2", 2}, {"unlinkat", 2}, {"pwrite64", 20}, {"write", 60},
	{"openat", 20}, {"ftruncate", 2},
}

// The plant-room fixture with both programs as they are, killed by the kernel at random system calls: before the n-th
// fsync, rename, unlink or write of one thread, in start-up, custody and delivery alike. Each run is several such
// lives, of either program, and ends with four delivered, once each.
func TestPlantRoomKilledAtSystemCalls(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skipf("not run: kills at system calls need strace: %v", err)
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -gate.seed=%d", *seed)
	rnd := rand.New(rand.NewPCG(*seed, 2))
	for run := range *syscallRuns {
		t.Run(fmt.Sprintf("%02d", run), func(t *testing.T) { plantRoomAtCalls(t, rnd) })
	}
}

// killAt is the command that starts a program and has it killed at the n-th of a system call in any of its threads. It
// becomes the program; who watches over it is a process beside it.
func killAt(call string, n int) []string {
	return []string{"strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, n)}
}

func plantRoomAtCalls(t *testing.T, rnd *rand.Rand) {
	r := newRig(t, rig.Options{Retry: "200ms-400ms", Under: map[string][]string{}})
	r.Link.SetRate(2 << 20)
	must(t, "start", r.StartDaemon(t.Context()))
	want := capture(t, r)
	ctx, stop := context.WithCancel(t.Context())
	lies := make(chan error, 1)
	go func() { lies <- watchTruth(ctx, r) }()

	for range 5 {
		name, process, start := "fieldgwd", r.Daemon, r.StartDaemon
		if rnd.IntN(2) == 0 {
			name, process, start = "fieldgw-server", r.Server, r.StartServer
		}
		call := durableCalls[rnd.IntN(len(durableCalls))]
		n := 1 + int(rnd.ExpFloat64()*call.mean)
		r.Under[name] = killAt(call.name, n)
		must(t, "kill", killed(process()))
		t.Logf("%s at %s %d: %s", name, call.name, n, liveUnder(t, process, start))
		delete(r.Under, name)
		must(t, "kill", killed(process()))
		must(t, "restart", start(t.Context()))
	}
	r.Link.SetRate(0)
	deliverAll(t, r, want)
	stop()
	must(t, "delivered shown early", <-lies)
	must(t, "verify", r.Verify(t.Context(), record, want))
	out, stderr, code, err := r.Ctl(t.Context(), "check", "--deep")
	if err != nil || code != 0 {
		t.Errorf("check: exit %d, %v\n%s%s", code, err, out, stderr)
	}
}

// liveUnder starts a program that is to be killed and says how that life ended: in its start, later, or not within the
// second that it is given.
func liveUnder(t *testing.T, process func() *rig.Process, start func(context.Context) error) string {
	t.Helper()
	if err := start(t.Context()); err != nil {
		if !strings.Contains(err.Error(), "signal: killed") {
			t.Fatal(err)
		}
		return "killed in its start"
	}
	select {
	case <-process().Ended():
		return "killed"
	case <-time.After(time.Second):
		return "lived on"
	}
}

// killed ends a program that may have ended already, or never have been ready.
func killed(p *rig.Process) error {
	if p == nil {
		return nil
	}
	return p.Kill()
}
