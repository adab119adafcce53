package store

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// ripe makes a store that its next commit will have compacted, and tells what it will then hold. watch sees the operations
// from there on, reads apart.
func ripe(t *testing.T, path string, watch func(durable.Call) error) (s *Store, want map[string]string) {
	t.Helper()
	opts, armed := eager, false
	opts.FS = durable.Hooked(func(c durable.Call) error {
		if !armed || c.Op == durable.OpRead {
			return nil
		}
		return watch(c)
	})
	opts.CompactBytes = 1 << 40
	s = openWith(t, path, opts)
	update(t, s, grow(200))
	update(t, s, shrink(41, 200))
	want = map[string]string{}
	for i := range 40 {
		want["a/"+string(bulkKey(i))] = string(bulkValue(i, 1024))
	}
	s.opts.CompactBytes, armed = eager.CompactBytes, true
	return s, want
}

// whole opens what a crash left, and fails unless that is everything, without leftovers, and in working order.
func whole(t *testing.T, what, path string, want map[string]string) {
	t.Helper()
	s := openWith(t, path, Options{})
	if got, err := content(s, "a", "b", "empty"); err != nil || !maps.Equal(got, want) {
		t.Errorf("%s: %d entries, want %d; %v", what, len(got), len(want), err)
	}
	if names := entries(t, path); len(names) != 1 {
		t.Errorf("%s: left %v", what, names)
	}
	checkClean(t, s)
	put(t, s, "b", "later", "v")
	mustClose(t, s)
}

// Whatever operation of a compaction is the last before the process is gone, the old file or the new one is there, whole:
// the directory is copied before each and opened.
func TestCompactCrash(t *testing.T) {
	path := tempPath(t)
	type state struct{ what, path string }
	var states []state
	s, want := ripe(t, path, func(c durable.Call) error {
		st := state{fmt.Sprintf("before %s (operation %d)", c.Op, len(states)), tempPath(t)}
		if err := os.CopyFS(filepath.Dir(st.path), os.DirFS(filepath.Dir(path))); err != nil {
			return err
		}
		states = append(states, st)
		return nil
	})
	if st := update(t, s, shrink(40, 41)); st.Compactions != 1 || len(states) < 8 {
		t.Fatalf("%d operations, %+v", len(states), st)
	}
	mustClose(t, s)
	for _, st := range append(states, state{"after all", path}) {
		whole(t, st.what, st.path, want)
	}
}

// Whatever operation of a compaction fails, alone or with all that follow: the store goes on with the old file, or has
// failed with an unknown outcome, and either way nothing is lost. The rename fails in two ways: not done, and done.
func TestCompactOperationFails(t *testing.T) {
	outcomes := map[string]int{}
	for _, mode := range []string{"one", "rest", "rename done"} {
		for n, more := 0, true; more; n++ {
			path, count := tempPath(t), 0
			var hit durable.Op
			s, want := ripe(t, path, func(c durable.Call) error {
				count++
				if mode == "rename done" && c.Op == durable.OpRename {
					hit = c.Op
					left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
					return errors.Join(err, os.Rename(left[0], path), unix.EIO)
				}
				if mode != "rename done" && (count == n+1 || mode == "rest" && count > n) {
					if hit == "" {
						hit = c.Op
					}
					return unix.EIO
				}
				return nil
			})
			st := update(t, s, shrink(40, 41))
			what := fmt.Sprintf("%s: %s (operation %d)", mode, hit, n)
			more = hit != "" && mode != "rename done"
			switch {
			case s.Err() != nil:
				outcomes[mode+" failed"]++
				if !errors.Is(s.Err(), ErrUnknownOutcome) || hit == durable.OpCreate {
					t.Errorf("%s: store %v", what, s.Err())
				}
			case hit == "":
				if st.Compactions != 1 {
					t.Errorf("%s: %+v", what, st)
				}
			default:
				outcomes[mode+" goes on"]++
				if st.Compactions != 0 {
					t.Errorf("%s: %+v", what, st)
				}
				if got, err := content(s, "a", "b"); err != nil || !maps.Equal(got, want) {
					t.Errorf("%s: %d entries, %v", what, len(got), err)
				}
				checkOld(t, what, s)
			}
			mustClose(t, s)
			whole(t, what, path, want)
		}
	}
	t.Log(outcomes)
	if outcomes["one failed"] < 2 || outcomes["one goes on"] < 5 || outcomes["rename done failed"] != 1 {
		t.Errorf("outcomes %v", outcomes)
	}
}

// checkOld holds a store whose compaction failed to its bargain: the file under its name is the one it writes.
func checkOld(t *testing.T, what string, s *Store) {
	t.Helper()
	if same, err := leadsTo(s.path, s.gen.file); !same || err != nil {
		t.Errorf("%s: the store writes to a file that is not under its name (%v)", what, err)
	}
}

// During a compaction and after it, at every moment, another Open is refused as locked and removes nothing; one that
// waits for the lock of the old file gets that of the new one.
func TestCompactKeepsLock(t *testing.T) {
	path, tries := tempPath(t), 0
	second := func() error {
		_, err := Open(path, testSchema("a", "b", "empty"), Options{LockTimeout: time.Nanosecond})
		return err
	}
	type result struct {
		s   *Store
		err error
	}
	waiting, opened := false, make(chan result, 1)
	s, want := ripe(t, path, func(c durable.Call) error {
		if !waiting {
			waiting = true
			go func() {
				s, err := Open(path, testSchema("a", "b", "empty"), Options{LockTimeout: time.Minute})
				opened <- result{s, err}
			}()
		}
		tries++
		if err := second(); !errors.Is(err, ErrLocked) {
			t.Errorf("before %s: %v", c.Op, err)
		}
		return nil
	})
	if st := update(t, s, shrink(40, 41)); st.Compactions != 1 || tries < 8 {
		t.Fatalf("%d tries, %+v", tries, st)
	}
	<-s.replaced // its lock is gone with it
	if err := second(); !errors.Is(err, ErrLocked) {
		t.Errorf("after the compaction: %v", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCompactLockChild$")
	cmd.Env = append(os.Environ(), compactLockEnv+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "locked=true") {
		t.Errorf("another process: %v\n%s", err, out)
	}
	put(t, s, "b", "k", "last")
	want["b/k"] = "last"
	select {
	case r := <-opened:
		t.Fatalf("opened twice: %v", r.err)
	default:
	}
	mustClose(t, s)
	r := <-opened
	if r.err != nil {
		t.Fatal(r.err)
	}
	if got, err := content(r.s, "a", "b"); err != nil || !maps.Equal(got, want) {
		t.Errorf("%d entries, want %d; %v", len(got), len(want), err)
	}
	mustClose(t, r.s)
}

const compactLockEnv = "FIELDGW_STORE_COMPACT_LOCK_CHILD"

// The other process of TestCompactKeepsLock; alone it has nothing to do.
func TestCompactLockChild(t *testing.T) {
	if path := os.Getenv(compactLockEnv); path != "" {
		_, err := Open(path, testSchema("a", "b", "empty"), Options{LockTimeout: time.Nanosecond})
		fmt.Printf("locked=%v (%v)\n", errors.Is(err, ErrLocked), err)
	}
}

const compactKillEnv = "FIELDGW_STORE_COMPACT_KILL_CHILD"

// A process that is killed at a random moment of a compaction loses nothing that it had acknowledged.
func TestCompactKilled(t *testing.T) {
	if spec := os.Getenv(compactKillEnv); spec != "" {
		compactKillChild(t, spec)
		return
	}
	rnd := seed(t)
	left := 0
	for round := range 10 {
		path := tempPath(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestCompactKilled$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s", compactKillEnv, rnd.IntN(1000), path))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("round %d: the child was not killed: %v\n%s", round, err, out)
		}
		acked := -1
		lines := bufio.NewScanner(strings.NewReader(string(out)))
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "acked "); ok {
				if acked, err = strconv.Atoi(text); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(entries(t, path)) > 1 {
			left++
		}
		s := openWith(t, path, Options{})
		got, err := content(s, "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscanf(got["b/step"], "%d", &n); err != nil || n != acked && n != acked+1 {
			t.Errorf("round %d: step %q after %d acknowledged: %v", round, got["b/step"], acked, err)
		}
		delete(got, "b/step")
		if want := killState(n); !maps.Equal(got, want) {
			t.Errorf("round %d: %d entries at step %d, want %d", round, len(got), n, len(want))
		}
		checkClean(t, s)
		mustClose(t, s)
	}
	t.Logf("%d of 10 rounds left a temporary", left)
}

// killState is what buckets a and b hold after step n of the child: even steps fill, odd ones empty.
func killState(n int) map[string]string {
	size := 500
	if n%2 == 1 {
		size = 50
	}
	state := map[string]string{}
	for i := range size {
		state["a/"+string(bulkKey(i))] = string(bulkValue(i, 1024))
	}
	return state
}

// compactKillChild measures its first compaction, and kills itself at the given thousandth of a later one, or shortly after.
func compactKillChild(t *testing.T, spec string) {
	number, path, _ := strings.Cut(spec, ":")
	at, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	var began time.Time
	var took time.Duration
	opts := eager
	opened := false
	opts.FS = durable.Hooked(func(c durable.Call) error {
		switch {
		case !opened:
		case c.Op == durable.OpCreate && took > 0:
			time.AfterFunc(took*time.Duration(at)/900, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		case c.Op == durable.OpCreate:
			began = time.Now()
		case c.Op == durable.OpSyncDir:
			took = time.Since(began)
		}
		return nil
	})
	s := openWith(t, path, opts)
	opened = true
	for n := range 1000 {
		change := grow(500)
		if n%2 == 1 {
			change = shrink(50, 500)
		}
		err := s.Update(t.Context(), func(tx *Tx) error {
			return errors.Join(change(tx), tx.Bucket("b").Put([]byte("step"), []byte(strconv.Itoa(n))))
		})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("acked %d\n", n)
	}
}
