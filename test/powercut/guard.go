package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

// writeback is how often the kernel writes dirty pages back by itself, in hundredths of a second; 0 is never. See
// Documentation/admin-guide/sysctl/vm.rst.
const writeback = "/proc/sys/vm/dirty_writeback_centisecs"

const guardMark = "FIELDGW_POWERCUT_GUARDED"

// guarded reports whether this process is the one that guard started.
func guarded() bool { return os.Getenv(guardMark) == "1" }

// guard switches periodic writeback off, runs this program again, and puts the old value back however that one ended:
// in order, by a panic, or killed. The inner process has a mount namespace of its own (mount_namespaces(7)): its mounts
// end with it and with the programs that it started, and its loop devices detach themselves after their last use. guard
// returns the exit code.
func guard() int {
	runtime.LockOSThread() // the child's parent-death signal belongs to this thread
	restore, err := stopWriteback()
	if err != nil {
		fmt.Fprintln(os.Stderr, "powercut:", err)
		return 1
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code, err := inner(signals)
	if err = errors.Join(err, restore()); err != nil {
		fmt.Fprintln(os.Stderr, "powercut:", err)
		return 1
	}
	return code
}

func inner(signals <-chan os.Signal) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), guardMark+"=1")
	// In a group of its own it gets one signal from here rather than a second one from the terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start in a mount namespace of its own (this needs root): %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				err = nil
			}
			if code := cmd.ProcessState.ExitCode(); code >= 0 {
				return code, err
			}
			return 1, errors.Join(err, fmt.Errorf("the campaign ended: %s", cmd.ProcessState))
		case <-signals:
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return 1, err
			}
		}
	}
}

// stopWriteback returns the function that puts the old value back. A value that is 0 already is left to whoever set it.
func stopWriteback() (restore func() error, err error) {
	before, err := os.ReadFile(writeback)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(before)) == "0" {
		fmt.Fprintln(os.Stderr, "powercut: vm.dirty_writeback_centisecs is 0 already and stays so: another campaign, or one that was killed")
		return func() error { return nil }, nil
	}
	if err := os.WriteFile(writeback, []byte("0\n"), 0o644); err != nil {
		return nil, fmt.Errorf("switch periodic writeback off: %w", err)
	}
	return func() error { return os.WriteFile(writeback, before, 0o644) }, nil
}
