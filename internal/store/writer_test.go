package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

// hold stops the writer inside an Update until release is called, so that a test can fill the queue behind it.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	inside, leave, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.Update(t.Context(), func(*Tx) error {
			close(inside)
			<-leave
			return nil
		})
	}()
	<-inside
	return func() {
		t.Helper()
		close(leave)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// enqueue starts an Update and returns when it stands in the queue as number n.
func enqueue(t *testing.T, s *Store, n int, ctx context.Context, fn func(*Tx) error) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- r.(error)
			}
		}()
		done <- s.Update(ctx, fn)
	}()
	for len(s.queue) < n {
		runtime.Gosched()
	}
	return done
}

// One request that fails after writing takes nothing of its neighbours with it: they commit, together and in order, and
// each handler runs once, in the same order.
func TestBatchIsolation(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a"))
	release := hold(t, s)
	var order []int // by the writer goroutine only
	results := make([]<-chan error, 9)
	for i := range results {
		results[i] = enqueue(t, s, i+1, t.Context(), func(tx *Tx) error {
			a := tx.Bucket("a")
			tx.OnCommit(func() { order = append(order, i) })
			switch i {
			case 2: // fails before it writes
				return os.ErrInvalid
			case 4, 6: // fails after it wrote
				seq, err := a.NextSequence()
				return errors.Join(a.Put([]byte("k0"), []byte("spoiled")), a.Delete([]byte("k1")), err, fmt.Errorf("%d: %w", seq, os.ErrExist))
			case 7:
				if err := a.Put([]byte("k7"), nil); err != nil {
					return err
				}
				panic("a fault of the caller")
			}
			seq, err := a.NextSequence()
			return errors.Join(err, a.Put(fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "%d", seq)))
		})
	}
	commits := s.Stats().Commits
	release()
	for i, r := range results {
		err := <-r
		var p *PanicError
		switch {
		case i == 2 && errors.Is(err, os.ErrInvalid), (i == 4 || i == 6) && errors.Is(err, os.ErrExist):
		case i == 7 && errors.As(err, &p) && p.Value == "a fault of the caller" && strings.Contains(string(p.Stack), "TestBatchIsolation"):
		case i != 2 && i != 4 && i != 6 && i != 7 && err == nil:
		default:
			t.Errorf("request %d: %v", i, err)
		}
	}
	if got, want := dump(t, s, "a", nil, nil), "k0=1 k1=2 k3=3 k5=4 k8=5"; got != want {
		t.Errorf("stored %q, want %q", got, want)
	}
	if want := []int{0, 1, 3, 5, 8}; !slices.Equal(order, want) {
		t.Errorf("handlers ran in order %v, want %v", order, want)
	}
	if n := s.Stats().Commits - commits; n != 1 {
		t.Errorf("%d commits for one queue", n)
	}
	checkClean(t, s)
}

// A request that leaves before it was started is never run; one that is running gets its outcome.
func TestUpdateCancelled(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a"))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(*Tx) error { t.Error("a cancelled request was run"); return nil }
	if err := s.Update(cancelled, never); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	release := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := enqueue(t, s, 1, ctx, never)
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while waiting: %v", err)
	}
	release()

	ctx, cancel = context.WithCancel(t.Context())
	err := s.Update(ctx, func(tx *Tx) error {
		cancel()
		return tx.Bucket("a").Put([]byte("k"), []byte("v"))
	})
	if err != nil {
		t.Errorf("cancelled while running: %v", err)
	}
	if got := dump(t, s, "a", nil, nil); got != "k=v" {
		t.Errorf("stored %q", got)
	}
}

// 64 writers share commits, see each of their writes once, and lose nothing; a check beside them finds nothing.
func TestManyWriters(t *testing.T) {
	const writers, each = 64, 40
	s := mustOpen(t, tempPath(t), testSchema("a", "journal"))
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			if findings, err := s.Check(t.Context()); err != nil || len(findings) > 0 {
				t.Errorf("check: %v, %v", findings, err)
			}
		}
	})
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				err := s.Update(t.Context(), func(tx *Tx) error {
					seq, err := tx.Bucket("journal").NextSequence()
					if err != nil {
						return err
					}
					err = tx.Bucket("journal").Put(fmt.Appendf(nil, "%08d", seq), fmt.Appendf(nil, "%d/%d", w, i))
					return errors.Join(err, tx.Bucket("a").Put(fmt.Appendf(nil, "%02d", w), fmt.Appendf(nil, "%d", i)))
				})
				if err != nil {
					t.Error(err)
				}
				err = s.View(func(tx *Tx) error {
					v, err := tx.Bucket("a").Get(fmt.Appendf(nil, "%02d", w))
					if string(v) != fmt.Sprint(i) {
						t.Errorf("writer %d reads %q after it wrote %d", w, v, i)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	seen := map[string]bool{}
	for i, entry := range strings.Fields(dump(t, s, "journal", nil, nil)) {
		key, value, _ := strings.Cut(entry, "=")
		if key != fmt.Sprintf("%08d", i+1) || seen[value] {
			t.Errorf("entry %d is %s", i+1, entry)
		}
		seen[value] = true
	}
	if len(seen) != writers*each {
		t.Errorf("%d entries, want %d", len(seen), writers*each)
	}
	if st := s.Stats(); st.Requests < writers*each || st.Commits >= writers*each {
		t.Errorf("%d requests in %d commits", st.Requests, st.Commits)
	}
	checkClean(t, s)
}

// A transaction is closed to further requests once it holds enough, and what is left keeps its place.
func TestBatchIsBounded(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a"))
	release := hold(t, s)
	value := make([]byte, maxBatchBytes/4)
	var results []<-chan error
	for i := range 10 {
		results = append(results, enqueue(t, s, i+1, t.Context(), func(tx *Tx) error {
			if n := tx.Bucket("a").Count(); n != uint64(i) {
				t.Errorf("request %d runs after %d others", i, n)
			}
			return tx.Bucket("a").Put(fmt.Appendf(nil, "%d", i), value)
		}))
	}
	release()
	for _, r := range results {
		if err := <-r; err != nil {
			t.Error(err)
		}
	}
	if n := s.Stats().Commits; n != 3 {
		t.Errorf("%d commits for ten quarters of the limit", n)
	}
}

// Closing answers what was queued; nothing is left waiting.
func TestCloseAnswersQueue(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testSchema("a"))
	release := hold(t, s)
	var results []<-chan error
	for i := range 5 {
		results = append(results, enqueue(t, s, i+1, t.Context(), func(tx *Tx) error {
			return tx.Bucket("a").Put(fmt.Appendf(nil, "%d", i), nil)
		}))
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	<-s.closing
	release()
	for i, r := range results {
		if err := <-r; err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	s = mustOpen(t, path, testSchema("a"))
	if got := dump(t, s, "a", nil, nil); got != "0= 1= 2= 3= 4=" {
		t.Errorf("stored %q", got)
	}
}

// A mistake of the caller in a View or a handler comes out on the caller's goroutine and leaves the store working.
func TestCallerPanics(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a"))
	put(t, s, "a", "k1", "v", "k2", "v")
	panics := func(name string, fn func() error) (value any) {
		t.Helper()
		defer func() { value = recover() }()
		t.Errorf("%s returned %v", name, fn())
		return nil
	}
	var nothing *Bucket
	nilPointer := func(*Tx) error { return fmt.Errorf("%s", nothing.name) }
	unknown := func(tx *Tx) error { return tx.Bucket("b").Put([]byte("k"), nil) }
	scan := func(tx *Tx) error {
		return tx.Bucket("a").Scan(nil, nil, func(key, _ []byte, _ error) error { return tx.Bucket("a").Delete([]byte("k2")) })
	}
	handler := func(tx *Tx) error { tx.OnCommit(func() { panic("handler") }); return nil }
	for name, fn := range map[string]func(*Tx) error{"nil pointer": nilPointer, "unknown bucket": unknown} {
		if v := panics("View: "+name, func() error { return s.View(fn) }); v == nil {
			t.Errorf("View: %s: no panic", name)
		}
	}
	for name, fn := range map[string]func(*Tx) error{"nil pointer": nilPointer, "unknown bucket": unknown, "scan": scan, "handler": handler} {
		v := panics("Update: "+name, func() error { return s.Update(t.Context(), fn) })
		if p, ok := v.(*PanicError); !ok || p.Error() == "" {
			t.Errorf("Update: %s: panic value %v", name, v)
		}
	}
	if got := dump(t, s, "a", nil, nil); got != "k1=v k2=v" || s.Err() != nil {
		t.Errorf("stored %q, err %v", got, s.Err())
	}
	checkClean(t, s)
}

// A function that ends the writer's goroutine, as t.Fatal does, fails the store with a name; nobody waits for ever.
func TestGoexitInUpdate(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testSchema("a"))
	put(t, s, "a", "k", "v")
	release := hold(t, s)
	first := enqueue(t, s, 1, t.Context(), func(tx *Tx) error {
		if err := tx.Bucket("a").Put([]byte("k"), []byte("lost")); err != nil {
			return err
		}
		runtime.Goexit()
		return nil
	})
	second := enqueue(t, s, 2, t.Context(), func(tx *Tx) error { return nil })
	release()
	for name, err := range map[string]error{"the function": <-first, "its neighbour": <-second, "later": s.View(func(*Tx) error { return nil })} {
		if !errors.Is(err, ErrAborted) {
			t.Errorf("%s: %v", name, err)
		}
	}
	<-s.Failed()
	mustClose(t, s)
	s = mustOpen(t, path, testSchema("a"))
	if got := dump(t, s, "a", nil, nil); got != "k=v" {
		t.Errorf("stored %q", got)
	}
}

// The setting of the calling goroutine for memory faults is its own again after a View.
func TestViewRestoresFaultSetting(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a"))
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(false))
	for _, setting := range []bool{false, true} {
		debug.SetPanicOnFault(setting)
		err := s.View(func(*Tx) error {
			if !debug.SetPanicOnFault(true) {
				t.Error("a fault inside a View would end the process")
			}
			return nil
		})
		if got := debug.SetPanicOnFault(setting); got != setting || err != nil {
			t.Errorf("setting %v became %v, %v", setting, got, err)
		}
	}
}

// A View that is left by runtime.Goexit gives its snapshot back.
func TestGoexitInView(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.View(func(*Tx) error { runtime.Goexit(); return nil })
	}()
	<-done
	mustClose(t, s) // would wait for it
}

// BenchmarkUpdate measures small Updates by one and by 64 callers.
func BenchmarkUpdate(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			s := mustOpen(b, tempPath(b), testSchema("a"))
			value := make([]byte, 300)
			b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
			if callers == 1 {
				for i := 0; b.Loop(); i++ {
					put(b, s, "a", fmt.Sprint(i%10000), string(value))
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					put(b, s, "a", fmt.Sprint(i%10000), string(value))
				}
			})
			st := s.Stats()
			b.ReportMetric(float64(st.Requests)/float64(st.Commits), "requests/commit")
		})
	}
}

// BenchmarkView measures the fixed cost of a View with one Get.
func BenchmarkView(b *testing.B) {
	s := mustOpen(b, tempPath(b), testSchema("a"))
	put(b, s, "a", "k", "v")
	for b.Loop() {
		if err := s.View(func(tx *Tx) error { _, err := tx.Bucket("a").Get([]byte("k")); return err }); err != nil {
			b.Fatal(err)
		}
	}
}
