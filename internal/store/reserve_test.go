package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The reserve is there from Open on and after every commit, however the file grows, within its permitted size; without one
// the file has only what it needs.
func TestReserve(t *testing.T) {
	path := tempPath(t)
	const reserve = 1 << 20
	s := openWith(t, path, Options{Reserve: reserve})
	for i := range 40 {
		st := s.Stats()
		if st.Reserved < reserve || st.Reserved > reserve+2*reserveStep || st.NoReserve {
			t.Fatalf("after %d commits: %+v", i, st)
		}
		if size := onDisk(t, path); size < reserve {
			t.Fatalf("after %d commits the file takes %d bytes", i, size)
		}
		update(t, s, func(tx *Tx) error { return tx.Bucket("a").Put(bulkKey(i), make([]byte, 100_000)) })
	}
	checkClean(t, s)

	path = tempPath(t)
	s = openWith(t, path, Options{Reserve: -1})
	if st := s.Stats(); st.Reserved != 0 || onDisk(t, path) > 256<<10 {
		t.Errorf("without reserve: %+v, %d bytes on the disk", st, onDisk(t, path))
	}
	path = tempPath(t)
	s = openWith(t, path, Options{MaxSize: 1 << 20})
	if size := onDisk(t, path); size > 1<<20+64<<10 || s.Stats().Reserved == 0 {
		t.Errorf("%d bytes on the disk where 1 MiB is permitted, %+v", size, s.Stats())
	}
}

const mountChildEnv = "FIELDGW_STORE_MOUNT_CHILD"

// inMount runs the test that calls it again in a child that may mount what it wants, and reports whether this is it.
func inMount(t *testing.T) (child bool) {
	t.Helper()
	if os.Getenv(mountChildEnv) == t.Name() {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("not run: mounting a file system needs root")
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), mountChildEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || bytes.Contains(out, []byte("no mount")) {
		t.Skipf("not run: cannot mount here: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// A disk that others have filled to the last block takes hundreds of commits more with a reserve, and next to none
// without; both stores go on when there is room again.
func TestReserveOnFullDisk(t *testing.T) {
	if !inMount(t) {
		return
	}
	const want = 100
	counts := map[int64]int{}
	for _, reserve := range []int64{0, -1} {
		dir := mountExt4(t, 48<<20)
		if dir == "" {
			return
		}
		path, ballast := filepath.Join(dir, "store.db"), filepath.Join(dir, "ballast")
		s := openWith(t, path, Options{Reserve: reserve})
		put(t, s, "a", "first", "v")
		settle(t, s)
		fillDisk(t, ballast)
		n := 0
		for err := error(nil); err == nil && n < 5*want; n++ {
			err = s.Update(t.Context(), func(tx *Tx) error { return tx.Bucket("a").Put(bulkKey(n), bulkValue(n, 300)) })
			if err != nil && (!errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFull) || s.Err() != nil) {
				t.Fatalf("reserve %d, commit %d: %v", reserve, n, err)
			}
			if err != nil {
				n--
			}
		}
		counts[reserve] = n
		checkClean(t, s)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		put(t, s, "b", "room", "again")
		mustClose(t, s)
		s = openWith(t, path, Options{Reserve: reserve})
		if got, err := content(s, "a"); err != nil || len(got) != n+1 {
			t.Errorf("reserve %d: %d entries, want %d; %v", reserve, len(got), n+1, err)
		}
		checkClean(t, s)
		mustClose(t, s)
	}
	t.Logf("commits of 300 bytes on a full disk: %d with the reserve (at most %d tried), %d without", counts[0], 5*want, counts[-1])
	if counts[0] < want || counts[-1] > want/2 {
		t.Errorf("%v", counts)
	}
}

// mountExt4 makes a file system of its own in an image; "" where that is impossible.
func mountExt4(t *testing.T, size int64) (dir string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	dir = t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			fmt.Printf("no mount: %s: %v %s\n", args[0], err, out)
			return ""
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// mount mounts a file system that needs no device; "" where that is impossible.
func mount(t *testing.T, kind, options string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
		fmt.Printf("no mount: %v\n", err)
		return ""
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk takes every block that can be had.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		_, err := f.Write(make([]byte, size))
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			size /= 2
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Bavail > 0 {
		t.Fatalf("%d blocks are still free, %v", st.Bavail, err)
	}
}

// A file system without fallocate(2) is no error, and Stats says so.
func TestReserveImpossible(t *testing.T) {
	if !inMount(t) {
		return
	}
	dir := mount(t, "ramfs", "")
	if dir == "" {
		return
	}
	var log bytes.Buffer
	s := openWith(t, filepath.Join(dir, "store.db"), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	st := update(t, s, grow(10))
	if !st.NoReserve || st.Reserved != 0 || log.Len() > 0 {
		t.Errorf("%+v, log %s", st, &log)
	}
}

// A volume too full for the reserve is told once; the reserve comes when there is room, not with every commit before.
func TestReserveComesLater(t *testing.T) {
	if !inMount(t) {
		return
	}
	dir := mount(t, "tmpfs", "size=8m")
	if dir == "" {
		return
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := openWith(t, filepath.Join(dir, "store.db"), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if st := update(t, s, grow(10)); st.Reserved != 0 || st.NoReserve || strings.Count(log.String(), "cannot reserve") != 1 {
		t.Errorf("without room: %+v, log %s", st, &log)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if st := update(t, s, grow(11)); st.Reserved != 0 {
		t.Errorf("tried again within the interval: %+v", st)
	}
	s.upkeep.reserveAt = time.Now().Add(-time.Second)
	if st := update(t, s, grow(12)); st.Reserved < defaultReserve || !strings.Contains(log.String(), "complete again") {
		t.Errorf("with room: %+v, log %s", st, &log)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines: %s", n, &log)
	}
}
