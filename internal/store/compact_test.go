package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eager has small files compacted.
var eager = Options{CompactBytes: 64 << 10, CompactPercent: 25, Reserve: 1 << 20}

func openWith(t testing.TB, path string, opts Options) *Store {
	t.Helper()
	s, err := Open(path, testSchema("a", "b", "empty"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// update is Update with a test's verdict. It returns after the upkeep that the commit led to, with what that left.
func update(t testing.TB, s *Store, fn func(*Tx) error) Stats {
	t.Helper()
	if err := s.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	return s.Stats()
}

// settle returns when the writer goroutine has done with everything before.
func settle(t testing.TB, s *Store) {
	t.Helper()
	if err := s.submit(nil, nil, func(*Tx) error { return nil }); err != nil && s.Err() == nil && !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func bulkKey(i int) []byte { return fmt.Appendf(nil, "bulk-%06d", i) }

func bulkValue(i, size int) []byte { return bytes.Repeat([]byte{byte(i)}, size) }

// grow puts n values of 1 KiB into bucket a; shrink deletes those from `from` on. Each in one transaction.
func grow(n int) func(*Tx) error {
	return func(tx *Tx) error {
		for i := range n {
			if err := tx.Bucket("a").Put(bulkKey(i), bulkValue(i, 1024)); err != nil {
				return err
			}
		}
		return nil
	}
}

func shrink(from, n int) func(*Tx) error {
	return func(tx *Tx) error {
		for i := from; i < n; i++ {
			if err := tx.Bucket("a").Delete(bulkKey(i)); err != nil {
				return err
			}
		}
		return nil
	}
}

// onDisk is the space that a file takes, in bytes.
func onDisk(t testing.TB, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// entries are the names in the directory of a path.
func entries(t testing.TB, path string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// With the thresholds of a program: a file in which most is free shrinks, once, with all that it says kept; and one in
// which less is free, by either measure, is left alone.
func TestCompact(t *testing.T) {
	path := tempPath(t)
	s := openWith(t, path, Options{})
	for range 5 {
		update(t, s, func(tx *Tx) error {
			_, err := tx.Bucket("b").NextSequence()
			return errors.Join(err, tx.Bucket("b").Put([]byte("k"), nil))
		})
	}
	const all, size = 4000, 14_000 // four pages each
	for i := 0; i < all; i += 100 {
		update(t, s, func(tx *Tx) error {
			for j := range 100 {
				if err := tx.Bucket("a").Put(bulkKey(i+j), bulkValue(i+j, size)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	// More than 20 % free, and more than 16 MiB if only a little more were.
	if st := update(t, s, shrink(3100, all)); st.Compactions != 0 || !st.LastCompaction.IsZero() || st.FreePages*st.PageSize < 12<<20 {
		t.Fatalf("before there is a reason: %+v", st)
	}
	before, sizeBefore, epoch := s.Stats(), onDisk(t, path), s.Epoch()
	st := update(t, s, shrink(400, 3100))
	if st.Compactions != 1 || time.Since(st.LastCompaction) > time.Hour || st.FreePages > 64 || st.FileBytes > before.FileBytes/3 {
		t.Errorf("before %+v\nafter  %+v", before, st)
	}
	if now := onDisk(t, path); now > sizeBefore/4 || st.Reserved < defaultReserve {
		t.Errorf("takes %d bytes, before %d; %d reserved", now, sizeBefore, st.Reserved)
	}
	for i := range 20 {
		st = update(t, s, shrink(400-i-1, 400))
	}
	if st.Compactions != 1 {
		t.Errorf("%d compactions, want no more than 1", st.Compactions)
	}
	want := map[string]string{"b/k": ""}
	for i := range 380 {
		want["a/"+string(bulkKey(i))] = string(bulkValue(i, size))
	}
	for range 2 {
		if got, err := content(s, "a", "b", "empty"); err != nil || !maps.Equal(got, want) {
			t.Errorf("%d entries, want %d; %v", len(got), len(want), err)
		}
		if s.Epoch() != epoch || !s.Stats().CreatedAt.Equal(before.CreatedAt) || fmt.Sprint(entries(t, path)) != "[store.db]" {
			t.Errorf("epoch %s, created %v, files %v", s.Epoch(), s.Stats().CreatedAt, entries(t, path))
		}
		checkClean(t, s)
		mustClose(t, s)
		s = openWith(t, path, Options{})
	}
	update(t, s, func(tx *Tx) error {
		if n, err := tx.Bucket("b").NextSequence(); n != 6 || err != nil {
			t.Errorf("next number %d, %v; want 6", n, err)
		}
		return nil
	})
}

// What must come together for a compaction, and what keeps it away after one that failed.
func TestCompactDue(t *testing.T) {
	s := openWith(t, tempPath(t), Options{CompactBytes: 1000, CompactPercent: 25})
	for _, tt := range []struct {
		free, used int64
		failed     int64         // share at the last failure
		ago        time.Duration // 0: no failure
		want       bool
	}{
		{1000, 2000, 0, 0, false},
		{1001, 2000, 0, 0, true},
		{1001, 4004, 0, 0, false},
		{1001, 4003, 0, 0, true},
		{5000, 10000, 45, time.Minute, false},
		{5500, 10000, 45, time.Minute, true},
		{5000, 10000, 45, compactAgain + time.Minute, true},
	} {
		s.upkeep = upkeep{}
		if tt.ago > 0 {
			s.upkeep = upkeep{failedAt: time.Now().Add(-tt.ago), failedShare: tt.failed}
		}
		if got := s.due(tt.free, tt.used); got != tt.want {
			t.Errorf("%+v: due %v", tt, got)
		}
	}
	mustClose(t, s)
	if s.upkeep = (upkeep{}); s.due(5000, 10000) {
		t.Error("due on a closed store")
	}
}

// A View that runs while the file is replaced reads its snapshot to the end; new ones read the new file and see later
// commits; no third file is made until it ends, and after it the old one is closed. A Check beside it all finds nothing.
func TestViewKeepsOldFile(t *testing.T) {
	path := tempPath(t)
	s := openWith(t, path, eager)
	update(t, s, grow(500))
	want, err := content(s, "a")
	if err != nil {
		t.Fatal(err)
	}
	started, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.View(func(tx *Tx) error {
			close(started)
			<-leave
			got := map[string]string{}
			err := tx.Bucket("a").Scan(nil, nil, func(key, value []byte, bad error) error {
				got["a/"+string(key)] = string(value)
				return bad
			})
			if !maps.Equal(got, want) || tx.Bucket("a").Count() != 500 {
				return fmt.Errorf("the old snapshot has %d entries, count %d: %w", len(got), tx.Bucket("a").Count(), err)
			}
			return err
		})
	}()
	<-started
	// What it holds is not free before it is another file's.
	if st := update(t, s, shrink(50, 500)); st.Compactions != 0 {
		t.Errorf("pages that a View holds led to a compaction: %+v", st)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Error(err)
	}

	// One commit later all of it is free even for a View.
	s.opts.CompactBytes = 1 << 40
	update(t, s, func(tx *Tx) error { return tx.Bucket("b").Put([]byte("k"), []byte("old")) })
	s.opts.CompactBytes = eager.CompactBytes
	started, leave = make(chan struct{}), make(chan struct{})
	if want, err = content(s, "a"); err != nil {
		t.Fatal(err)
	}
	go func() {
		done <- s.View(func(tx *Tx) error {
			close(started)
			<-leave
			n := 0
			err := tx.Bucket("a").Scan(nil, nil, func(key, value []byte, bad error) error {
				if want["a/"+string(key)] == string(value) {
					n++
				}
				return bad
			})
			if n != len(want) || tx.Bucket("a").Count() != 50 {
				return fmt.Errorf("the old snapshot has %d entries, count %d: %w", n, tx.Bucket("a").Count(), err)
			}
			return err
		})
	}()
	<-started
	first := s.enter()
	s.leave(first)
	if st := update(t, s, func(tx *Tx) error { return tx.Bucket("b").Put([]byte("k"), []byte("new")) }); st.Compactions != 1 {
		t.Fatalf("the free pages led to %d compactions", st.Compactions)
	}
	if got := dump(t, s, "b", nil, nil); got != "k=new" {
		t.Errorf("a new View reads %q", got)
	}
	checkClean(t, s)
	update(t, s, grow(500))
	update(t, s, shrink(10, 500))
	if st := update(t, s, shrink(9, 10)); st.Compactions != 1 {
		t.Errorf("%d compactions while a View holds the file before", st.Compactions)
	}
	if first.idle == nil {
		t.Fatal("the old file was not replaced")
	}
	close(leave)
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-s.replaced
	if _, err := first.file.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the old file is still open: %v", err)
	}
	if st := update(t, s, shrink(8, 9)); st.Compactions != 2 {
		t.Errorf("%d compactions after the View", st.Compactions)
	}
	checkClean(t, s)
}

// Close waits for a View of the old file, too, and leaves nothing open.
func TestCloseWaitsForOldView(t *testing.T) {
	s := openWith(t, tempPath(t), eager)
	update(t, s, grow(300))
	started, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var ended bool // by the View, before Close returns
	s.opts.CompactBytes = 1 << 40
	update(t, s, shrink(20, 300))
	update(t, s, shrink(10, 20))
	go func() {
		done <- s.View(func(tx *Tx) error {
			close(started)
			<-leave
			ended = true
			return nil
		})
	}()
	<-started
	s.opts.CompactBytes = eager.CompactBytes
	if st := update(t, s, shrink(9, 10)); st.Compactions != 1 {
		t.Fatalf("%+v", st)
	}
	old := s.replaced
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	<-s.writerDone
	select {
	case <-old:
		t.Error("the old file was closed under a View")
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
	default:
	}
	close(leave)
	if err := errors.Join(<-done, <-closed); err != nil || !ended {
		t.Errorf("ended %v, %v", ended, err)
	}
}
