package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// bbolt 1.5.0 has no way to wrap its file: Options.OpenFile returns an *os.File. So the faults come from below. In this
// process another file takes the place of the descriptor; in a child, seccomp answers its system calls.

// swap puts what path leads to in the place of the store's descriptor until the function that it returns is called. The
// map stays that of the real file.
func swap(t *testing.T, s *Store, path string, flag int) (restore func()) {
	t.Helper()
	fd := int(s.gen.file.Fd())
	saved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := unix.Open(path, flag|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dup := func(from int) {
		if err := errors.Join(unix.Dup3(from, fd, unix.O_CLOEXEC), unix.Close(from)); err != nil {
			t.Fatal(err)
		}
	}
	dup(other)
	return func() { dup(saved) }
}

// roomy makes a store whose file has free pages, so that a small commit need not grow it.
func roomy(t *testing.T, path string) *Store {
	t.Helper()
	s := mustOpen(t, path, testSchema("a"))
	for i := range 5 {
		put(t, s, "a", "k", strings.Repeat(strconv.Itoa(i), 20000))
	}
	put(t, s, "a", "k", "old")
	return s
}

func putOne(t *testing.T, s *Store, key, value string) error {
	return s.Update(t.Context(), func(tx *Tx) error { return tx.Bucket("a").Put([]byte(key), []byte(value)) })
}

// A full disk is an error of that Update and nothing else: what was there is there, and the store goes on when there is
// room again. In a batch each request gets its own answer.
func TestNoSpace(t *testing.T) {
	s := roomy(t, tempPath(t))
	restore := swap(t, s, "/dev/full", unix.O_RDWR)
	release := hold(t, s)
	var results []<-chan error
	ran := 0
	for i := range 3 {
		results = append(results, enqueue(t, s, i+1, t.Context(), func(tx *Tx) error {
			ran++
			tx.OnCommit(func() { t.Error("a handler of a failed commit was run") })
			return tx.Bucket("a").Put([]byte("k"), []byte("new"))
		}))
	}
	release()
	for _, r := range results {
		if err := <-r; !errors.Is(err, ErrNoSpace) || !errors.Is(err, unix.ENOSPC) || errors.Is(err, ErrFull) {
			t.Errorf("full disk: %v", err)
		}
	}
	if ran != 6 {
		t.Errorf("%d runs of 3 functions, want each together and then alone", ran)
	}
	if got := dump(t, s, "a", nil, nil); got != "k=old" || s.Err() != nil {
		t.Errorf("after a full disk: %q, %v", got, s.Err())
	}
	restore()
	put(t, s, "a", "k", "new")
	checkClean(t, s)
}

// The permitted size is kept, deletions still work, and the space they free is used.
func TestMaxSize(t *testing.T) {
	path := tempPath(t)
	s, err := Open(path, testSchema("a"), Options{MaxSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, s)
	value, stored := strings.Repeat("v", 30000), 0
	for err = nil; err == nil; stored++ {
		err = putOne(t, s, strconv.Itoa(stored), value)
	}
	stored--
	if !errors.Is(err, ErrNoSpace) || !errors.Is(err, ErrFull) || stored < 10 || stored > 40 {
		t.Fatalf("%d values of 30 kB, then %v", stored, err)
	}
	if n := strings.Count(dump(t, s, "a", nil, nil), "="); n != stored {
		t.Errorf("%d values, want %d", n, stored)
	}
	for i := range 5 {
		if err := s.Update(t.Context(), func(tx *Tx) error { return tx.Bucket("a").Delete([]byte(strconv.Itoa(i))) }); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	if err := putOne(t, s, "again", value); err != nil {
		t.Errorf("after deletions: %v", err)
	}
	checkClean(t, s)
}

// Any other failure of a commit closes the store: that Update, those behind it and all later calls say so, and a restart
// finds one of the two states.
func TestUnknownOutcome(t *testing.T) {
	for name, other := range map[string]struct {
		path string
		flag int
	}{
		"write refused": {"", unix.O_RDONLY},          // EBADF from pwrite
		"sync refused":  {"/dev/null", unix.O_RDWR},   // EINVAL from fdatasync
		"no such space": {"/dev/zero", unix.O_WRONLY}, // the same
	} {
		path := tempPath(t)
		s := roomy(t, path)
		if other.path == "" {
			other.path = path
		}
		restore := swap(t, s, other.path, other.flag)
		release := hold(t, s)
		first := enqueue(t, s, 1, t.Context(), func(tx *Tx) error { return tx.Bucket("a").Put([]byte("k"), []byte("new")) })
		release()
		if err := <-first; !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("%s: %v", name, err)
		}
		<-s.Failed()
		_, cerr := s.Check(t.Context())
		for call, err := range map[string]error{
			"Err": s.Err(), "Update": putOne(t, s, "k", "later"), "View": s.View(func(*Tx) error { return nil }), "Check": cerr,
		} {
			if !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("%s: later %s: %v", name, call, err)
			}
		}
		restore()
		mustClose(t, s)
		s = mustOpen(t, path, testSchema("a"))
		if got := dump(t, s, "a", nil, nil); got != "k=old" && got != "k=new" {
			t.Errorf("%s: after restart: %q", name, got)
		}
		checkClean(t, s)
	}
}

const commitChildEnv = "FIELDGW_STORE_COMMIT_CHILD"

var commitCalls = map[string]fileCall{
	"pwrite": {unix.SYS_PWRITE64, 0}, "fdatasync": {unix.SYS_FDATASYNC, 0}, "ftruncate": {unix.SYS_FTRUNCATE, 0}, "fsync": {unix.SYS_FSYNC, 0},
	"mmap": {unix.SYS_MMAP, 4},
}

// The error of each system call of a commit is told for what it is: of writing the pages and the meta page, of either
// fdatasync, of making the file longer, of mapping more of it. The kernel gives it: in a child, under seccomp.
func TestCommitErrors(t *testing.T) {
	if spec := os.Getenv(commitChildEnv); spec != "" {
		commitChild(t, spec)
		return
	}
	for _, tt := range []struct {
		call  string
		n     int
		errno unix.Errno
		large int // values of 7 MB in the commit, beside a small one
		want  error
		after string // what a restart finds
	}{
		{"pwrite", 1, unix.EIO, 0, ErrUnknownOutcome, "k=old"},
		{"pwrite", 1, unix.EDQUOT, 0, ErrNoSpace, "k=old"},
		{"pwrite", 3, unix.EIO, 0, ErrUnknownOutcome, "k=old"}, // the meta page, after two runs of others
		{"pwrite", 3, unix.ENOSPC, 0, ErrNoSpace, "k=old"},
		{"fdatasync", 1, unix.EIO, 0, ErrUnknownOutcome, "k=old"},
		{"fdatasync", 2, unix.EIO, 0, ErrUnknownOutcome, "k=new"},
		{"fdatasync", 1, unix.ENOSPC, 0, ErrNoSpace, "k=old"},
		{"fdatasync", 1, unix.EDQUOT, 0, ErrNoSpace, "k=old"},
		// The root of the new state is written, only not synced: no rollback, whatever the error number says.
		{"fdatasync", 2, unix.ENOSPC, 0, ErrUnknownOutcome, "k=new"},
		{"ftruncate", 1, unix.ENOSPC, 3, ErrNoSpace, "k=old"},
		{"fsync", 1, unix.EDQUOT, 3, ErrNoSpace, "k=old"}, // of the longer file
		{"ftruncate", 1, unix.EIO, 3, ErrUnknownOutcome, "k=old"},
		{"mmap", 1, unix.ENOMEM, 10, ErrUnknownOutcome, "k=old"},
	} {
		name := fmt.Sprintf("%v from %s %d", tt.errno, tt.call, tt.n)
		path := tempPath(t)
		mustClose(t, roomy(t, path))
		cmd := exec.Command(os.Args[0], "-test.run=^TestCommitErrors$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d:%d:%d:%s", commitChildEnv, tt.call, tt.n, int(tt.errno), tt.large, path))
		out, err := cmd.CombinedOutput()
		if bytes.Contains(out, []byte("no seccomp")) {
			t.Skipf("not run: %s", out)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		for text, sentinel := range map[string]error{"no space": ErrNoSpace, "unknown": ErrUnknownOutcome} {
			if got := bytes.Contains(out, []byte("outcome="+text)); got != (tt.want == sentinel) {
				t.Errorf("%s: the child says %s", name, out)
			}
		}
		if goesOn := bytes.Contains(out, []byte("later=<nil>")); goesOn != (tt.want == ErrNoSpace) {
			t.Errorf("%s: the child says %s", name, out)
		}
		s := mustOpen(t, path, testSchema("a"))
		want := tt.after
		if tt.want == ErrNoSpace {
			want += " later=x"
		}
		if got := dump(t, s, "a", nil, nil); got != want {
			t.Errorf("%s: after restart %q, want %q", name, got, want)
		}
		checkClean(t, s)
	}
}

func commitChild(t *testing.T, spec string) {
	fields := strings.SplitN(spec, ":", 5)
	var number [3]int
	for i := range number {
		var err error
		if number[i], err = strconv.Atoi(fields[1+i]); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, fields[4], testSchema("a"))
	if err := failSyscall(commitCalls[fields[0]], s.gen.file.Fd(), number[0], unix.Errno(number[1])); err != nil {
		fmt.Printf("no seccomp: %v\n", err)
		return
	}
	err := s.Update(t.Context(), func(tx *Tx) error {
		err := tx.Bucket("a").Put([]byte("k"), []byte("new"))
		for i := range number[2] {
			err = errors.Join(err, tx.Bucket("a").Put([]byte(strconv.Itoa(i)), make([]byte, 7<<20)))
		}
		return err
	})
	outcome := "other"
	if errors.Is(err, ErrNoSpace) {
		outcome = "no space"
	} else if errors.Is(err, ErrUnknownOutcome) {
		outcome = "unknown"
	}
	fmt.Printf("outcome=%s (%v)\nlater=%v\n", outcome, err, putOne(t, s, "later", "x"))
}

const fullChildEnv = "FIELDGW_STORE_FULL_CHILD"

// On a real file system that is full, Updates fail by name, what was committed stays, and the store works again when
// there is room. The file system is a tmpfs in a mount namespace of a child.
func TestFullFileSystem(t *testing.T) {
	if dir := os.Getenv(fullChildEnv); dir != "" {
		fullChild(t, dir)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("not run: mounting a small tmpfs needs root")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullFileSystem$")
	cmd.Env = append(os.Environ(), fullChildEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || bytes.Contains(out, []byte("no mount")) {
		t.Skipf("not run: no mount namespace here: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func fullChild(t *testing.T, dir string) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		fmt.Printf("no mount: %v\n", err)
		return
	}
	path, ballast := filepath.Join(dir, "store.db"), filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path, testSchema("a"))
	value, stored := strings.Repeat("v", 30000), 0
	var err error
	for ; err == nil && stored < 100; stored++ {
		err = putOne(t, s, strconv.Itoa(stored), value)
	}
	stored--
	if !errors.Is(err, ErrNoSpace) || s.Err() != nil {
		t.Fatalf("%d values on a small disk, then %v, store %v", stored, err, s.Err())
	}
	for range 3 {
		if err := putOne(t, s, "more", value); !errors.Is(err, ErrNoSpace) {
			t.Errorf("again: %v", err)
		}
	}
	if n := strings.Count(dump(t, s, "a", nil, nil), "="); n != stored {
		t.Errorf("%d values, want %d", n, stored)
	}
	checkClean(t, s)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := putOne(t, s, "more", value); err != nil {
		t.Errorf("with room again: %v", err)
	}
	mustClose(t, s)
	s = mustOpen(t, path, testSchema("a"))
	if n := strings.Count(dump(t, s, "a", nil, nil), "="); n != stored+1 {
		t.Errorf("%d values after restart, want %d", n, stored+1)
	}
	checkClean(t, s)
}
