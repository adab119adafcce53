package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

func testSchema(buckets ...string) Schema {
	return Schema{Name: "test", Version: 1, Buckets: buckets}
}

func tempPath(t testing.TB) string { return filepath.Join(t.TempDir(), "store.db") }

func mustOpen(t testing.TB, path string, schema Schema) *Store {
	t.Helper()
	s, err := Open(path, schema, Options{})
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

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// put stores pairs of key and value in one Update.
func put(t testing.TB, s *Store, bucket string, pairs ...string) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *Tx) error {
		for i := 0; i < len(pairs); i += 2 {
			if err := tx.Bucket(bucket).Put([]byte(pairs[i]), []byte(pairs[i+1])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// dump reads a bucket as "key=value ..." and notes damaged values as "key!".
func dump(t testing.TB, s *Store, bucket string, prefix, from []byte) string {
	t.Helper()
	var parts []string
	err := s.View(func(tx *Tx) error {
		return tx.Bucket(bucket).Scan(prefix, from, func(key, value []byte, bad error) error {
			if bad != nil {
				parts = append(parts, string(key)+"!")
			} else {
				parts = append(parts, fmt.Sprintf("%s=%s", key, value))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(parts, " ")
}

func checkClean(t testing.TB, s *Store) {
	t.Helper()
	findings, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Errorf("check: %v", f)
	}
}

// What was committed is there after a restart, with counts, sequences and the epoch, and no goroutine stays behind.
func TestReopen(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := tempPath(t)
	schema := testSchema("a", "b")
	s, err := Open(path, schema, Options{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "a", "k1", "v1", "k2", "", "k3", "v3")
	err = s.Update(t.Context(), func(tx *Tx) error {
		for range 3 {
			if _, err := tx.Bucket("b").NextSequence(); err != nil {
				return err
			}
		}
		return errors.Join(tx.Bucket("a").Delete([]byte("k1")), tx.Bucket("a").Delete([]byte("absent")))
	})
	if err != nil {
		t.Fatal(err)
	}
	epoch, created := s.Epoch(), s.Stats().CreatedAt
	if epoch == "" || time.Since(created).Abs() > time.Hour {
		t.Errorf("epoch %q, created %v", epoch, created)
	}
	mustClose(t, s)

	s, err = Open(path, schema, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Epoch() != epoch || !s.Stats().CreatedAt.Equal(created) || s.Path() != path {
		t.Errorf("epoch %q, created %v, path %s after reopen", s.Epoch(), s.Stats().CreatedAt, s.Path())
	}
	if got, want := dump(t, s, "a", nil, nil), "k2= k3=v3"; got != want {
		t.Errorf("a holds %q, want %q", got, want)
	}
	err = s.View(func(tx *Tx) error {
		a := tx.Bucket("a")
		if v, err := a.Get([]byte("k2")); v == nil || len(v) != 0 || err != nil {
			t.Errorf("empty value reads as %v, %v", v, err)
		}
		if v, err := a.Get([]byte("k1")); v != nil || err != nil {
			t.Errorf("deleted key reads as %q, %v", v, err)
		}
		if a.Count() != 2 || tx.Bucket("b").Count() != 0 || !a.Has([]byte("k3")) || a.Has([]byte("k1")) || tx.Writable() {
			t.Errorf("count %d, has k3 %v", a.Count(), a.Has([]byte("k3")))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var n uint64
	if err := s.Update(t.Context(), func(tx *Tx) (err error) { n, err = tx.Bucket("b").NextSequence(); return err }); err != nil || n != 4 {
		t.Errorf("next number %d, %v; want 4", n, err)
	}
	checkClean(t, s)
	if st := s.Stats(); st.FileBytes <= 0 || st.PageSize <= 0 || st.Commits != 1 || st.Requests < 1 {
		t.Errorf("stats %+v", st)
	}
	mustClose(t, s)
	mustClose(t, s)
}

// A closed store says so, whatever is asked.
func TestClosed(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a"))
	mustClose(t, s)
	nothing := func(*Tx) error { t.Error("function of a closed store was run"); return nil }
	_, cerr := s.Check(t.Context())
	for name, err := range map[string]error{"View": s.View(nothing), "Update": s.Update(t.Context(), nothing), "Check": cerr} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
	if s.Err() != nil || s.Stats().FileBytes != 0 {
		t.Errorf("err %v, stats %+v", s.Err(), s.Stats())
	}
}

// Scan starts and ends where it is told, Last finds the greatest key with a prefix.
func TestScanAndLast(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a", "empty"))
	put(t, s, "a", "a1", "1", "b1", "2", "b2", "3", "b\xff\xff", "4", "c1", "5", "\xff", "6", "\xff\xff", "7")
	for _, tt := range []struct{ prefix, from, want string }{
		{"", "", "a1=1 b1=2 b2=3 b\xff\xff=4 c1=5 \xff=6 \xff\xff=7"},
		{"b", "", "b1=2 b2=3 b\xff\xff=4"},
		{"b", "b2", "b2=3 b\xff\xff=4"},
		{"b", "a", "b1=2 b2=3 b\xff\xff=4"},
		{"b", "c", ""},
		{"\xff", "", "\xff=6 \xff\xff=7"},
		{"x", "", ""},
	} {
		if got := dump(t, s, "a", []byte(tt.prefix), []byte(tt.from)); got != tt.want {
			t.Errorf("scan of %q from %q: %q, want %q", tt.prefix, tt.from, got, tt.want)
		}
	}
	for prefix, want := range map[string]string{"": "\xff\xff=7", "a": "a1=1", "b": "b\xff\xff=4", "b1": "b1=2", "\xff": "\xff\xff=7", "x": "=", "A": "="} {
		err := s.View(func(tx *Tx) error {
			key, value, err := tx.Bucket("a").Last([]byte(prefix))
			if got := fmt.Sprintf("%s=%s", key, value); got != want {
				t.Errorf("last of %q: %q, want %q", prefix, got, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	err := s.View(func(tx *Tx) error {
		seen := 0
		err := tx.Bucket("a").Scan(nil, nil, func(_, _ []byte, _ error) error {
			if seen++; seen == 2 {
				return fmt.Errorf("enough: %w", ErrStop)
			}
			return nil
		})
		if err != nil || seen != 2 {
			t.Errorf("stopped scan: %v after %d", err, seen)
		}
		if err := tx.Bucket("a").Scan(nil, nil, func(_, _ []byte, _ error) error { return os.ErrDeadlineExceeded }); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a scan's own error came out as %v", err)
		}
		key, _, err := tx.Bucket("empty").Last(nil)
		if key != nil || err != nil {
			t.Errorf("last of an empty bucket: %q, %v", key, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What a caller gets or gives never aliases what the store holds.
func TestCopies(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a"))
	key, value := []byte("key"), []byte("value")
	err := s.Update(t.Context(), func(tx *Tx) error {
		if err := tx.Bucket("a").Put(key, value); err != nil {
			return err
		}
		copy(key, "xxx")
		copy(value, "xxxxx")
		got, err := tx.Bucket("a").Get([]byte("key"))
		clear(got)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := dump(t, s, "a", nil, nil); got != "key=value" {
		t.Errorf("stored %q", got)
	}
	var kept []byte
	err = s.View(func(tx *Tx) (err error) {
		kept, err = tx.Bucket("a").Get([]byte("key"))
		kept[0] = 'V' // would be a fault in the map
		return err
	})
	if err != nil || string(kept) != "Value" {
		t.Errorf("kept %q, %v", kept, err)
	}
}

// Every refused write is named, and leaves the transaction usable.
func TestRefusedWrites(t *testing.T) {
	s := mustOpen(t, tempPath(t), testSchema("a"))
	err := s.Update(t.Context(), func(tx *Tx) error {
		a := tx.Bucket("a")
		for name, tt := range map[string]struct {
			key, value []byte
			want       error
		}{
			"empty key":  {nil, []byte("v"), ErrEmptyKey},
			"long key":   {make([]byte, MaxKey+1), nil, ErrTooLarge},
			"long value": {[]byte("k"), make([]byte, MaxValue+1), ErrTooLarge},
		} {
			if err := a.Put(tt.key, tt.value); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return errors.Join(a.Put(bytes.Repeat([]byte("k"), MaxKey), make([]byte, MaxValue)), a.Put([]byte("k"), nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(func(tx *Tx) error {
		a := tx.Bucket("a")
		_, serr := a.NextSequence()
		for name, err := range map[string]error{"Put": a.Put([]byte("k"), nil), "Delete": a.Delete([]byte("k")), "NextSequence": serr} {
			if !errors.Is(err, ErrReadOnly) {
				t.Errorf("%s in a View: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checkClean(t, s)
}

// JSON comes back as it went in, and anything that is not exactly one fitting text is a damaged value.
func TestJSON(t *testing.T) {
	type item struct {
		Name string `json:"name"`
		N    int    `json:"n"`
	}
	s := mustOpen(t, tempPath(t), testSchema("a"))
	put(t, s, "a", "trailing", `{"name":"x"} {}`, "cut", `{"name":`, "type", `{"n":"text"}`, "empty", "")
	err := s.Update(t.Context(), func(tx *Tx) error {
		if err := PutJSON(tx.Bucket("a"), []byte("bad"), func() {}); err == nil {
			t.Error("a function was stored as JSON")
		}
		return PutJSON(tx.Bucket("a"), []byte("good"), item{"x", 7})
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(func(tx *Tx) error {
		a := tx.Bucket("a")
		if v, found, err := GetJSON[item](a, []byte("good")); v != (item{"x", 7}) || !found || err != nil {
			t.Errorf("good: %v, %v, %v", v, found, err)
		}
		if v, found, err := GetJSON[item](a, []byte("absent")); v != (item{}) || found || err != nil {
			t.Errorf("absent: %v, %v, %v", v, found, err)
		}
		for _, key := range []string{"trailing", "cut", "type", "empty"} {
			v, found, err := GetJSON[item](a, []byte(key))
			var bad *BadValueError
			if v != (item{}) || !found || !errors.Is(err, ErrBadValue) || !errors.As(err, &bad) || string(bad.Key) != key {
				t.Errorf("%s: %v, %v, %v", key, v, found, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A file of another kind or of a later version is refused by name and not touched; so is an impossible schema.
func TestSchemaRefused(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, Schema{Name: "device-queue", Version: 3, Buckets: []string{"a"}})
	put(t, s, "a", "k", "v")
	mustClose(t, s)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		schema Schema
		want   error
	}{
		"other name":        {Schema{Name: "server", Version: 3, Buckets: []string{"a"}}, ErrOtherSchema},
		"older program":     {Schema{Name: "device-queue", Version: 2, Buckets: []string{"a"}}, ErrNewerSchema},
		"no migration":      {Schema{Name: "device-queue", Version: 4, Buckets: []string{"a"}}, errSchema},
		"unknown bucket":    {Schema{Name: "device-queue", Version: 3, Buckets: []string{"a", "b"}}, ErrDamaged},
		"no name":           {Schema{Version: 3}, errSchema},
		"no version":        {Schema{Name: "device-queue"}, errSchema},
		"bucket of ours":    {Schema{Name: "device-queue", Version: 3, Buckets: []string{"fieldgw.meta"}}, errSchema},
		"bucket twice":      {Schema{Name: "device-queue", Version: 3, Buckets: []string{"a", "a"}}, errSchema},
		"bucket of no name": {Schema{Name: "device-queue", Version: 3, Buckets: []string{""}}, errSchema},
	} {
		s, err := Open(path, tt.schema, Options{})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err == nil {
			mustClose(t, s)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a refused file was changed (%v)", err)
	}
}

// Migrations run in order and at once: a step that fails leaves the old version; buckets are made and emptied ones removed.
func TestMigration(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testSchema("old", "kept"))
	put(t, s, "old", "k1", "v1", "k2", "v2")
	put(t, s, "kept", "k", "v")
	mustClose(t, s)

	move := func(tx *Tx) error {
		var keys [][]byte
		err := tx.Bucket("old").Scan(nil, nil, func(key, value []byte, bad error) error {
			keys = append(keys, bytes.Clone(key))
			return errors.Join(bad, tx.Bucket("new").Put(key, bytes.ToUpper(value)))
		})
		for _, key := range keys {
			err = errors.Join(err, tx.Bucket("old").Delete(key))
		}
		return err
	}
	schema := Schema{Name: "test", Version: 3, Buckets: []string{"kept", "new"}, Migrations: map[int]func(*Tx) error{
		1: move,
		2: func(tx *Tx) error { return errors.Join(tx.Bucket("new").Put([]byte("k3"), []byte("3")), os.ErrInvalid) },
	}}
	if _, err := Open(path, schema, Options{}); !errors.Is(err, os.ErrInvalid) {
		t.Fatalf("failing migration: %v", err)
	}
	schema.Migrations[2] = func(tx *Tx) error { return nil }
	schema.Migrations[1] = func(tx *Tx) error { return nil }
	if _, err := Open(path, schema, Options{}); !errors.Is(err, errSchema) {
		t.Fatalf("migration that leaves keys in a bucket to be removed: %v", err)
	}
	s = mustOpen(t, path, testSchema("old", "kept"))
	if got := dump(t, s, "old", nil, nil); got != "k1=v1 k2=v2" {
		t.Fatalf("after failed migrations: %q", got)
	}
	mustClose(t, s)

	schema.Migrations[1] = move
	s = mustOpen(t, path, schema)
	if got := dump(t, s, "new", nil, nil) + " " + dump(t, s, "kept", nil, nil); got != "k1=V1 k2=V2 k=v" {
		t.Errorf("after migration: %q", got)
	}
	checkClean(t, s)
	mustClose(t, s)
	s = mustOpen(t, path, Schema{Name: "test", Version: 3, Buckets: []string{"kept", "new"}})
	checkClean(t, s)
}

// A crash while a store is made leaves no half store: whichever operation fails, the next Open has a sound empty one.
func TestCreateIsAllOrNothing(t *testing.T) {
	for n := 0; ; n++ {
		path := tempPath(t)
		count, hit := 0, durable.Op("")
		fsys := durable.Hooked(func(c durable.Call) error {
			defer func() { count++ }()
			if count >= n {
				if hit == "" {
					hit = c.Op
				}
				return unix.EIO // and everything after it too, as when the process is gone
			}
			return nil
		})
		s, err := Open(path, testSchema("a"), Options{FS: fsys})
		if hit == "" {
			if err != nil || n < 8 {
				t.Fatalf("after %d operations: %v", n, err)
			}
			mustClose(t, s)
			return
		}
		if err == nil || !errors.Is(err, unix.EIO) {
			t.Fatalf("operation %d (%s) failed and Open said %v", n, hit, err)
		}
		var log bytes.Buffer
		s, err = Open(path, testSchema("a"), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatalf("operation %d (%s), then: %v", n, hit, err)
		}
		put(t, s, "a", "k", "v")
		checkClean(t, s)
		mustClose(t, s)
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(entries) != 1 {
			t.Errorf("operation %d (%s): left %v, %v\n%s", n, hit, entries, err, &log)
		}
	}
}

// A full volume at creation has that name.
func TestCreateWithoutSpace(t *testing.T) {
	fsys := durable.Hooked(func(c durable.Call) error {
		if c.Op == durable.OpSync {
			return unix.ENOSPC
		}
		return nil
	})
	path := tempPath(t)
	if _, err := Open(path, testSchema("a"), Options{FS: fsys}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

// Check says what it cannot do, and finds a file that was replaced under the store.
func TestCheckOfReplacedFile(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testSchema("a"))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Check(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled check: %v", err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	findings, err := s.Check(t.Context())
	if err != nil || len(findings) != 1 || findings[0].Kind != KindStructure {
		t.Errorf("findings %v, %v", findings, err)
	}
}

// BenchmarkOpen measures Open of a store with 100,000 values of 1 KiB in the page cache.
func BenchmarkOpen(b *testing.B) {
	path := tempPath(b)
	schema := testSchema("items")
	s := mustOpen(b, path, schema)
	fill100k(b, s)
	mustClose(b, s)
	for b.Loop() {
		s, err := Open(path, schema, Options{})
		if err != nil {
			b.Fatal(err)
		}
		mustClose(b, s)
	}
}

// BenchmarkCheck measures Check of the same.
func BenchmarkCheck(b *testing.B) {
	s := mustOpen(b, tempPath(b), testSchema("items"))
	fill100k(b, s)
	for b.Loop() {
		checkClean(b, s)
	}
}

func fill100k(b *testing.B, s *Store) {
	value := make([]byte, 1024)
	for i := 0; i < 100_000; i += 1000 {
		err := s.Update(b.Context(), func(tx *Tx) error {
			for j := range 1000 {
				if err := tx.Bucket("items").Put(fmt.Appendf(nil, "item-%08d", i+j), value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
