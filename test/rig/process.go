package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// readyTimeout bounds a start: recovery included.
const readyTimeout = 60 * time.Second

// readyPause is how long one look takes whether a program is ready.
const readyPause = 50 * time.Millisecond

// Process is a program that the rig started.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// start runs a program, with its output appended to a log file, and waits for READY=1 as a service manager would
// (sd_notify(3)).
func (r *Rig) start(ctx context.Context, name string, args ...string) (*Process, error) {
	notify := r.Path("notify-" + name)
	if err := os.Remove(notify); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	line := append(append(slices.Clone(r.Under[name]), filepath.Join(r.Bin, name)), args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(append(os.Environ(), "NOTIFY_SOCKET="+notify), r.Env[name]...)
	return r.launch(ctx, name, cmd, func() (bool, error) { return notified(conn) })
}

// launch runs a program with its output appended to a log file, and asks again and again whether it is ready.
func (r *Rig) launch(ctx context.Context, name string, cmd *exec.Cmd, ready func() (bool, error)) (*Process, error) {
	log, err := os.OpenFile(r.Log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err := p.await(ctx, ready); err != nil {
		tail, _ := os.ReadFile(r.Log(name))
		return nil, errors.Join(fmt.Errorf("start %s: %w\n%s", name, err, lastLines(string(tail), 10)), p.Kill())
	}
	return p, nil
}

// Log is the path of a program's log.
func (r *Rig) Log(name string) string { return r.Path("log", name+".log") }

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// notified looks a moment for a program's word that it is ready.
func notified(conn *net.UnixConn) (bool, error) {
	if err := conn.SetReadDeadline(time.Now().Add(readyPause)); err != nil {
		return false, err
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return err == nil && strings.Contains("\n"+string(buf[:n])+"\n", "\nREADY=1\n"), err
}

func (p *Process) await(ctx context.Context, ready func() (bool, error)) error {
	deadline := time.Now().Add(readyTimeout)
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %w", p.err)
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready within %s", readyTimeout)
		}
	}
}

// Running reports whether the process is alive.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// stopTimeout bounds an orderly stop.
const stopTimeout = 40 * time.Second

// Stop ends the process with SIGTERM; it must then end by itself with exit code 0.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("%s does not stop", p.name), p.Kill())
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.name, p.err)
	}
	return nil
}

// RSS is the resident set of the process in bytes, from /proc (proc(5)).
func (p *Process) RSS() (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		return 0, err
	}
	return resident * int64(os.Getpagesize()), nil
}
