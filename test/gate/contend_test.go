package gate

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/test/damage"
	"github.com/fieldgw/fieldgw/test/rig"
)

var contentions = flag.Int("gate.contentions", 6, "how many times daemons, checks and rebuilds are let loose on one state directory")

// contender is one program that wants the state directory.
type contender struct {
	verb string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// contend starts fieldgwd with a verb, after a pause.
func contend(t *testing.T, r *rig.Rig, pause time.Duration, log, verb string, args ...string) *contender {
	t.Helper()
	<-time.After(pause)
	out, err := os.Create(log)
	must(t, "create log", err)
	defer out.Close()
	c := &contender{verb: verb, log: log, done: make(chan struct{})}
	c.cmd = exec.Command(filepath.Join(r.Bin, "fieldgwd"), append([]string{verb, "--config", r.DaemonConfig()}, args...)...)
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, "start", c.cmd.Start())
	go func() {
		_ = c.cmd.Wait() // how it ended is in ProcessState
		close(c.done)
	}()
	return c
}

func (c *contender) running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

func (c *contender) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(c.log)
	must(t, "read log", err)
	return string(text)
}

// end kills the contender or stops it in order.
func (c *contender) end(t *testing.T, kill bool) {
	t.Helper()
	signal := os.Signal(syscall.SIGTERM)
	if kill {
		signal = os.Kill
	}
	must(t, "signal", c.cmd.Process.Signal(signal))
	<-c.done
	if code := c.cmd.ProcessState.ExitCode(); !kill && code != 0 {
		t.Errorf("an orderly stop ends with %d:\n%s", code, c.said(t))
	}
}

var holder = regexp.MustCompile(`in use: held by fieldgwd( rebuild| check)?, pid (\d+)`)

// Two daemons, a check, a rebuild and a compaction at once on one state directory: one of them has it, the others are refused
// and told who has it, and nothing is harmed.
func TestContention(t *testing.T) {
	rnd := seeded(t)
	r := newRig(t, rig.Options{Retry: "200ms-400ms"})
	must(t, "start", r.StartDaemon(t.Context()))
	must(t, "stop", r.StopDaemon())
	counts := map[string]int{}
	for round := range *contentions {
		contention(t, r, rnd, round, counts)
	}
	t.Logf("%v", counts)
	must(t, "start", r.StartDaemon(t.Context()))
	if stdout, stderr, code, err := r.Ctl(t.Context(), "check", "--deep"); code != 0 || err != nil {
		t.Errorf("check: exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
}

func contention(t *testing.T, r *rig.Rig, rnd *rand.Rand, round int, counts map[string]int) {
	damage.Bloat(t, r.Queue(), 24<<20)
	name := fmt.Sprintf("round-%03d.jpg", round)
	must(t, "drop", os.WriteFile(filepath.Join(r.Capture(), name), fmt.Appendf(nil, "round %d", round), 0o644))
	lines := [][]string{{"run"}, {"run"}, {"check"}, {"rebuild"}, {"rebuild", "--force"}}
	rnd.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	var all []*contender
	for i, line := range lines {
		pause := time.Duration(rnd.Int64N(int64(20 * time.Millisecond)))
		all = append(all, contend(t, r, pause, r.Path("log", fmt.Sprintf("round-%d-%d.log", round, i)), line[0], line[1:]...))
	}
	var winner *contender
	must(t, "settle", rig.Until(t.Context(), time.Minute, "one holder", func() (bool, error) {
		left := slices.DeleteFunc(slices.Clone(all), func(c *contender) bool { return !c.running() })
		if len(left) == 0 {
			return true, nil
		}
		winner = left[0]
		_, _, code, err := r.Ctl(t.Context(), "status")
		return len(left) == 1 && winner.verb == "run" && code == 0, err
	}))
	anew := false // a forced rebuild leaves nothing to compact
	for _, c := range all {
		if !c.running() {
			how := judge(t, c, all)
			anew = anew || c.verb == "rebuild" && how == "done"
			counts[c.verb+": "+how]++
		}
	}
	if winner == nil || !winner.running() {
		counts["none runs"]++
		winner = contend(t, r, 0, r.Path("log", fmt.Sprintf("round-%d.log", round)), "run")
	}
	lateRebuilds(t, r, winner, round+1, counts)
	compacted := strings.Contains(winner.said(t), "compacted the store file")
	if compacted {
		counts["compactions"]++
	} else if !anew {
		t.Errorf("round %d: the queue was not compacted", round)
	}
	winner.end(t, rnd.IntN(2) == 0)
}

// lateRebuilds tries rebuilds beside a daemon that takes a file, compacts its queue and delivers, until that is done.
func lateRebuilds(t *testing.T, r *rig.Rig, winner *contender, files int, counts map[string]int) {
	t.Helper()
	must(t, "deliver", rig.Until(t.Context(), time.Minute, "delivery", func() (bool, error) {
		if !strings.Contains(winner.said(t), "msg=ready") {
			return false, nil
		}
		c := contend(t, r, 0, r.Path("log", "late.log"), "rebuild", "--force")
		<-c.done
		counts["late rebuild: "+judge(t, c, []*contender{winner})]++
		items, err := r.Truth(t.Context())
		if len(items) > files {
			return false, fmt.Errorf("%w: %d attachments of %d files", rig.ErrUntrue, len(items), files)
		}
		return rig.Delivered(items) == files, err
	}))
}

// judge says how a contender ended: it did its work, found nothing to do, or was refused and told by whom of all.
func judge(t *testing.T, c *contender, all []*contender) string {
	t.Helper()
	said, code := c.said(t), c.cmd.ProcessState.ExitCode()
	switch {
	case code == 0 && c.verb != "run":
		return "done"
	case code == 1 && c.verb == "rebuild" && strings.Contains(said, "nothing was rebuilt"):
		return "nothing to do"
	case code == 8 && c.verb == "check":
		return "findings"
	}
	named := holder.FindStringSubmatch(said)
	known := named != nil && slices.ContainsFunc(all, func(o *contender) bool { return strconv.Itoa(o.cmd.Process.Pid) == named[2] })
	if code != 1 || !known {
		t.Errorf("%s: exit %d:\n%s", c.verb, code, said)
		return "wrong"
	}
	return "refused"
}
