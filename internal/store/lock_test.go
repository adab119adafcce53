package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// A second Open of the same file waits as long as it was told and then names what is the matter; the first goes on.
func TestLockTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := tempPath(t)
		s := mustOpen(t, path, testSchema("a"))
		for _, timeout := range []time.Duration{0, 20 * time.Second} {
			began := time.Now()
			_, err := Open(path, testSchema("a"), Options{LockTimeout: timeout})
			if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
				t.Errorf("second open: %v", err)
			}
			want := timeout
			if timeout == 0 {
				want = defaultLockTimeout
			}
			if waited := time.Since(began); waited < want || waited > want+lockPoll {
				t.Errorf("waited %v, want %v", waited, want)
			}
		}
		put(t, s, "a", "k", "v")
	})
}

// An Open that waits goes on when the other lets go.
func TestLockHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := tempPath(t)
		first := mustOpen(t, path, testSchema("a"))
		put(t, first, "a", "k", "v")
		time.AfterFunc(3*time.Second, func() { mustClose(t, first) })
		second := mustOpen(t, path, testSchema("a"))
		if got := dump(t, second, "a", nil, nil); got != "k=v" {
			t.Errorf("stored %q", got)
		}
	})
}

// An open that fails half way, even by a panic inside of bbolt, leaves no lock behind.
func TestFailedOpenLeavesNoLock(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testSchema("a"))
	mustClose(t, s)
	if _, err := Open(path, Schema{Name: "other", Version: 1}, Options{LockTimeout: time.Millisecond}); !errors.Is(err, ErrOtherSchema) {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, path, testSchema("a")))

	f, err := openLocked(path, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	err = isolated(func() error { panic("assertion failed: in bbolt, with the file open") })
	if !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	if err := release(f); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path, testSchema("a"))
}

const lockChildEnv = "FIELDGW_STORE_LOCK_CHILD"

// The lock of a directory keeps another process out, which learns who holds it; it outlives the holder's children and
// ends with Release or with the process, and its file stays.
func TestLockDir(t *testing.T) {
	fsys := durable.OS()
	if dir := os.Getenv(lockChildEnv); dir != "" {
		_, err := LockDir(fsys, dir, "fieldgwctl")
		fmt.Printf("locked=%v says=%v\n", errors.Is(err, ErrLocked), err)
		return
	}
	dir := t.TempDir()
	lock, err := LockDir(fsys, dir, "fieldgwd")
	if err != nil {
		t.Fatal(err)
	}
	child := func() string {
		t.Helper()
		cmd := exec.Command(os.Args[0], "-test.run=^TestLockDir$")
		cmd.Env = append(os.Environ(), lockChildEnv+"="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	want := fmt.Sprintf("held by fieldgwd, pid %d", os.Getpid())
	if out := child(); !strings.Contains(out, "locked=true") || !strings.Contains(out, want) {
		t.Errorf("another process: %s, want %q", out, want)
	}
	if _, err := LockDir(fsys, dir, "fieldgwd"); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), want) {
		t.Errorf("twice in one process: %v", err)
	}
	var h holder
	data, err := os.ReadFile(filepath.Join(dir, lockName))
	if err != nil || json.Unmarshal(data, &h) != nil || h.PID != os.Getpid() || h.Program != "fieldgwd" || h.BootID == "" {
		t.Errorf("the lock file says %q, %v", data, err)
	}
	flags, err := unix.FcntlInt(lock.file.Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v: the lock would be inherited", flags, err)
	}
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(sleeper.Process.Kill(), ignoreExit(sleeper.Wait())); err != nil {
			t.Error(err)
		}
	}()
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if out := child(); !strings.Contains(out, "locked=false") {
		t.Errorf("after release: %s", out)
	}
	// The child took the lock and is gone.
	lock, err = LockDir(fsys, dir, "fieldgwd")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// The holder is described as far as it can be known.
func TestDescribeHolder(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	name, pid := strings.TrimSpace(string(comm)), strconv.Itoa(os.Getpid())
	path := filepath.Join(t.TempDir(), lockName)
	for content, want := range map[string]string{
		"":     "another process",
		"junk": "another process",
		`{"pid":` + pid + `,"program":"` + name + `-and-more-than-the-kernel-keeps"}`: name + "-and-more-than-the-kernel-keeps, pid " + pid + `, running as "` + name + `"`,
		`{"pid":` + pid + `,"program":"` + name + `"}`:                                name + ", pid " + pid,
		`{"pid":` + pid + `,"program":"fieldgwd"}`:                                    "fieldgwd, pid " + pid + `, running as "` + name + `"`,
		`{"pid":2147483647,"program":"fieldgwd"}`:                                     "fieldgwd, pid 2147483647 (not visible from here)",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := describeHolder(durable.OS(), path); got != want {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
	// Whoever took the lock a moment ago has not written its name yet.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	time.AfterFunc(lockPoll, func() {
		written <- os.WriteFile(path, []byte(`{"pid":`+pid+`,"program":"`+name+` rebuild"}`), 0o600)
	})
	if got := describeHolder(durable.OS(), path); got != name+" rebuild, pid "+pid {
		t.Errorf("a new holder: %q", got)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}
