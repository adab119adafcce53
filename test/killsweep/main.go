// Command killsweep kills the real programs at every one of their file operations and looks whether anything breaks.
//
//	go run ./test/killsweep [-target device|server|both] [-every k] [-again] [-seed n]
//
// It builds fieldgwd and fieldgw-server with the tag killpoints, which counts the operations of internal/durable and the
// commits of internal/store in a process. A clean run of a small plant-room scenario tells how many there are. Then, for
// every n and for both sides of it, the scenario is run again, the program kills itself (SIGKILL) at operation n, is
// started again and must finish: every file delivered exactly once with its bytes, nothing shown as delivered before the
// server had it, nothing left over. The named points of internal/durable are swept too. The exit code is 0 only without a
// violation; the command that repeats a violation is printed with it.
//
// Start with sweep.go (which runs are made); scenario.go is one run, check.go what must hold at its end, build.go how the
// programs are built.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	s := &sweep{out: os.Stdout}
	target := flag.String("target", "both", "whom to kill: device, server or both")
	flag.IntVar(&s.every, "every", 1, "kill at every k-th operation only")
	flag.Uint64Var(&s.seed, "seed", 0, "seed of the files and of where -every begins; 0 takes one from the clock and prints it")
	flag.IntVar(&s.parallel, "parallel", 2, "runs at one time")
	flag.BoolVar(&s.again, "again", false, "kill a second time, at a random operation of the next life")
	flag.StringVar(&s.only, "only", "", "one kill alone, as a violation names it: at:n, after:n, point:name:k, or at:n+at:m")
	keep := flag.String("keep", "", "directory that keeps what a run with a violation left, on the filesystem of temporary files; empty keeps nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, s, *target, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "killsweep:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s *sweep, target, keep string) (err error) {
	programs, ok := targets[target]
	if !ok || flag.NArg() > 0 || s.every < 1 || s.parallel < 1 {
		flag.Usage()
		return errors.New("these arguments make no sense")
	}
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano())
	}
	if keep != "" {
		if s.keep, err = filepath.Abs(keep); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "fgw-kill-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s.bin = filepath.Join(dir, "bin")
	if err := build(ctx, dir, s.bin); err != nil {
		return err
	}
	for _, program := range programs {
		if err := s.run(ctx, program); err != nil {
			return err
		}
	}
	if s.violations > 0 {
		return fmt.Errorf("%d violations", s.violations)
	}
	return nil
}
