package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/test/rig"
)

// perParent is how many directories lie in one.
const perParent = 100

// tick is the unit of CPU times in /proc (proc_pid_stat(5)): 100 a second on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// idleCost runs the real daemon over empty directories and prints what it used in a while.
func idleCost(ctx context.Context, dir string, dirs int, idle time.Duration) (err error) {
	bin := filepath.Join(dir, "bin")
	if err := rig.Build(ctx, bin); err != nil {
		return err
	}
	r, err := rig.New(ctx, rig.Options{Dir: dir, Bin: bin})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	made := 1
	for i := 0; made < dirs; i++ {
		parent := filepath.Join(r.Capture(), fmt.Sprintf("i-%04d", i))
		if err := os.Mkdir(parent, 0o755); err != nil {
			return err
		}
		made++
		for j := 0; j < perParent && made < dirs; j++ {
			if err := os.Mkdir(filepath.Join(parent, fmt.Sprintf("%02d", j)), 0o755); err != nil {
				return err
			}
			made++
		}
	}
	if err := r.StartDaemon(ctx); err != nil {
		return err
	}
	var w control.WatchStatus
	look := func() error {
		var st control.Status
		if err := r.CtlJSON(ctx, &st, "status"); err != nil {
			return err
		}
		w = st.Watches[0]
		return nil
	}
	// The first scans list everything; from the third on, unchanged directories are passed over.
	err = rig.Until(ctx, 10*time.Minute, "a scan of unchanged directories", func() (bool, error) {
		err := look()
		return w.Unchanged == dirs, err
	})
	if err != nil {
		return err
	}
	before, err := usageOf(r.Daemon().PID())
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(idle):
	}
	after, err := usageOf(r.Daemon().PID())
	if err != nil {
		return err
	}
	spent := time.Since(began)
	rss, err := r.Daemon().RSS()
	if err = errors.Join(err, look()); err != nil {
		return err
	}
	cpu, wakeups := after.cpu-before.cpu, after.wakeups-before.wakeups
	fmt.Printf("idle daemon: %d directories watched (%d not), %s: CPU %s (%.2f %% of one), %d wakeups (%.1f a second), RSS %.1f MiB\n",
		w.Directories, w.NotWatched, spent.Round(time.Second), cpu, 100*cpu.Seconds()/spent.Seconds(), wakeups,
		float64(wakeups)/spent.Seconds(), float64(rss)/(1<<20))
	return nil
}

type usage struct {
	cpu     time.Duration
	wakeups int // voluntary context switches of all threads: each waited and was woken
}

func usageOf(pid int) (u usage, err error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return u, err
	}
	// The command's name may hold blanks; what follows its bracket begins with field 3. utime and stime are 14 and 15.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, at := range []int{14 - 3, 15 - 3} {
		n, err := strconv.Atoi(fields[at])
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(n) * tick
	}
	threads, err := filepath.Glob(proc + "task/*/status")
	if err != nil {
		return u, err
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			return u, err
		}
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return u, err
		}
		u.wakeups += n
	}
	return u, nil
}
