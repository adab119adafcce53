package gate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The small volume of a device that runs out of space, and its thresholds, in bytes. The fixture takes up to 18 MiB of it.
const (
	volumeSize = 96 << 20
	warnFree   = 56 << 20
	reserve    = 12 << 20
	// Free bytes that are left below the one threshold and below the other.
	belowWarn, belowStop = 50 << 20, 6 << 20
)

const namespaceMark = "FIELDGW_GATE_NAMESPACE"

// inNamespace runs this process again in a mount namespace of its own (mount_namespaces(7)), whose mounts end with it however
// it ends. done is false in that process, and where none can be made: tests that need a volume then say that they cannot run.
func inNamespace() (code int, done bool) {
	if os.Getenv(namespaceMark) != "" {
		return 0, false
	}
	runtime.LockOSThread() // the child's parent-death signal belongs to this thread
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), namespaceMark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, false
	}
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || cmd.ProcessState.ExitCode() < 0 {
		fmt.Fprintln(os.Stderr, "tests in a mount namespace:", err)
		return 1, true
	}
	return cmd.ProcessState.ExitCode(), true
}

// volume is a small filesystem that a test fills.
type volume string

// newVolume mounts a tmpfs (tmpfs(5)) over dir, which it makes.
func newVolume(t *testing.T, dir string) volume {
	t.Helper()
	must(t, "make mount point", os.MkdirAll(dir, 0o755))
	if os.Getenv(namespaceMark) == "" {
		t.Skip("not run: a small filesystem to fill needs root, for a mount namespace")
	}
	must(t, "mount", unix.Mount("fieldgw", dir, "tmpfs", 0, fmt.Sprintf("size=%d", volumeSize)))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return volume(dir)
}

func (v volume) filler() string { return filepath.Join(string(v), "filler") }

// fill leaves that much space free.
func (v volume) fill(free int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(string(v), &st); err != nil {
		return err
	}
	f, err := os.Create(v.filler())
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-free), f.Close())
}

// empty gives the space back.
func (v volume) empty() error { return os.Remove(v.filler()) }
