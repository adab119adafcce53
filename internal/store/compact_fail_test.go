package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// A copy that fails leaves the old file in use, says so once, and is not tried at every commit.
func TestCompactFails(t *testing.T) {
	path := tempPath(t)
	var log bytes.Buffer // written by the writer goroutine, read after settle
	syncs, full := 0, true
	opts := eager
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	opts.FS = durable.Hooked(func(c durable.Call) error {
		if c.Op == durable.OpSync && strings.Contains(c.Path, newMark) {
			if syncs++; full && syncs > 1 { // the first is that of the creation
				return unix.ENOSPC
			}
		}
		return nil
	})
	s := openWith(t, path, opts)
	update(t, s, grow(1000))
	update(t, s, shrink(600, 1000))
	st := update(t, s, shrink(599, 600))
	tries := syncs - 1
	if st.Compactions != 0 || tries != 1 || s.Err() != nil || len(entries(t, path)) != 1 {
		t.Fatalf("%d tries, %+v, store %v, files %v", tries, st, s.Err(), entries(t, path))
	}
	update(t, s, shrink(595, 599))
	if syncs-1 != tries {
		t.Error("tried again at once")
	}
	update(t, s, shrink(400, 595))
	if syncs-1 != tries+1 || strings.Count(log.String(), "cannot compact") != 1 || !strings.Contains(log.String(), ErrNoSpace.Error()) {
		t.Errorf("%d tries after the free share grew\n%s", syncs-1, &log)
	}
	full = false
	s.upkeep.failedAt = time.Now().Add(-compactAgain)
	if st := update(t, s, shrink(399, 400)); st.Compactions != 1 || !s.upkeep.failedAt.IsZero() {
		t.Errorf("an hour later: %+v", st)
	}
	if got, err := content(s, "a"); err != nil || len(got) != 399 {
		t.Errorf("%d entries, %v", len(got), err)
	}
	checkClean(t, s)
}

// A volume that could not take the copy is not filled with it.
func TestCompactWithoutRoom(t *testing.T) {
	s := openWith(t, tempPath(t), Options{})
	if err := s.roomFor(s.gen, 1<<60); !errors.Is(err, ErrNoSpace) {
		t.Errorf("room for an exbibyte: %v", err)
	}
	if err := s.roomFor(s.gen, 1); err != nil {
		t.Error(err)
	}
}

// A damaged value goes into the copy as it is; damage of the structure stops the store before anything is replaced, and
// so does another file under the store's name stop the compaction.
func TestCompactOfDamagedFile(t *testing.T) {
	open := func(opts Options) (*Store, string) {
		path := tempPath(t)
		opts.CompactBytes = 1 << 40
		s := openWith(t, path, opts)
		update(t, s, grow(300))
		put(t, s, "b", "bad", "a damaged value", "good", "a sound value")
		update(t, s, shrink(100, 300))
		s.opts.CompactBytes = eager.CompactBytes
		return s, path
	}
	patch := func(path string, at int64, data []byte) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(data, at); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, path := open(eager)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	patch(path, int64(bytes.LastIndex(file, []byte("a damaged"))), []byte("A"))
	if st := update(t, s, shrink(99, 100)); st.Compactions != 1 {
		t.Errorf("with a damaged value: %+v", st)
	}
	if got := dump(t, s, "b", nil, nil); got != "bad! good=a sound value" {
		t.Errorf("after the compaction: %q", got)
	}

	s, path = open(eager)
	if file, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	// The first leaf of bucket a, which the commit below does not touch, in two keys of wrong order.
	patch(path, int64(bytes.LastIndex(file, bulkKey(1))), []byte("zulk"))
	update(t, s, func(tx *Tx) error { return tx.Bucket("b").Put([]byte("k"), nil) })
	if st := s.Stats(); !errors.Is(s.Err(), ErrDamaged) || st.Compactions != 0 || len(entries(t, path)) != 1 {
		t.Errorf("with a damaged page: store %v, %+v, files %v", s.Err(), st, entries(t, path))
	}

	s, path = open(eager)
	if err := errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, []byte("another"), 0o600)); err != nil {
		t.Fatal(err)
	}
	update(t, s, shrink(99, 100))
	data, err := os.ReadFile(path)
	if s.Err() != nil || s.Stats().Compactions != 0 || string(data) != "another" || err != nil {
		t.Errorf("with another file in its place: store %v, %+v, %q, %v", s.Err(), s.Stats(), data, err)
	}
}

// A copy that is not what was copied is found, whatever became of it, and never gets the store's name.
func TestCompactBadCopy(t *testing.T) {
	for name, spoil := range map[string]func(f *os.File, data []byte) error{
		"value": func(f *os.File, data []byte) error {
			_, err := f.WriteAt([]byte{7}, int64(bytes.LastIndex(data, bulkValue(5, 1024)))+500)
			return err
		},
		"page": func(f *os.File, data []byte) error {
			_, err := f.WriteAt([]byte("zulk"), int64(bytes.LastIndex(data, bulkKey(7))))
			return err
		},
		"sound but other value": func(f *os.File, _ []byte) error {
			db, err := bolt.Open(f.Name(), filePerm, &bolt.Options{Timeout: time.Minute})
			if err != nil {
				return err
			}
			err = db.Update(func(raw *bolt.Tx) error {
				return raw.Bucket([]byte("a")).Put(bulkKey(5), newSealer("a").seal(bulkKey(5), bulkValue(6, 1024)))
			})
			return errors.Join(err, db.Close())
		},
		"cut":   func(f *os.File, data []byte) error { return f.Truncate(int64(len(data) / 4)) },
		"empty": func(f *os.File, _ []byte) error { return f.Truncate(0) },
		"older": func(f *os.File, _ []byte) error { // a sound store with other content
			path := tempPath(t)
			other := openWith(t, path, Options{})
			put(t, other, "a", "k", "v")
			mustClose(t, other)
			data, err := os.ReadFile(path)
			if err == nil {
				_, err = f.WriteAt(data, 0)
			}
			return err
		},
	} {
		path, spoilt := tempPath(t), false
		s, want := ripe(t, path, func(c durable.Call) error {
			if c.Op != durable.OpOpen || !strings.Contains(c.Path, newMark) {
				return nil
			}
			spoilt = true
			data, err := os.ReadFile(c.Path)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(c.Path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			return errors.Join(spoil(f, data), f.Close())
		})
		st := update(t, s, shrink(40, 41))
		if !spoilt || st.Compactions != 0 || s.Err() != nil || s.upkeep.failedAt.IsZero() {
			t.Errorf("%s: spoilt %v, %+v, store %v", name, spoilt, st, s.Err())
		}
		checkOld(t, name, s)
		mustClose(t, s)
		whole(t, name, path, want)
	}
}

// Close ends a compaction that is under way, which leaves nothing behind.
func TestCloseEndsCompaction(t *testing.T) {
	path := tempPath(t)
	var s *Store
	closed := make(chan error, 1)
	opts := eager
	opened := false
	opts.FS = durable.Hooked(func(c durable.Call) error {
		if opened && c.Op == durable.OpCreate {
			go func() { closed <- s.Close() }()
			for s.usable() == nil {
				runtime.Gosched()
			}
		}
		return nil
	})
	s = openWith(t, path, opts)
	opened = true
	update(t, s, grow(500))
	put(t, s, "b", "k", "v")
	if err := s.Update(t.Context(), shrink(50, 500)); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil || s.Stats().Compactions != 0 || len(entries(t, path)) != 1 {
		t.Errorf("closed with %v, %+v, files %v", err, s.Stats(), entries(t, path))
	}
	s = openWith(t, path, Options{})
	if got, err := content(s, "a", "b"); err != nil || len(got) != 51 {
		t.Errorf("%d entries, %v", len(got), err)
	}
}

// BenchmarkCompact measures what a compaction takes and spares: 100,000 values of 1 KiB of which 10,000 are left.
func BenchmarkCompact(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		path := tempPath(b)
		s := openWith(b, path, Options{CompactBytes: 1 << 40})
		for i := 0; i < 100_000; i += 1000 {
			update(b, s, func(tx *Tx) error {
				for j := range 1000 {
					if err := tx.Bucket("a").Put(bulkKey(i+j), make([]byte, 1024)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		for i := 10_000; i < 100_000; i += 1000 {
			update(b, s, shrink(i, i+1000))
		}
		small := func() { update(b, s, func(tx *Tx) error { return tx.Bucket("a").Put(bulkKey(5), make([]byte, 300)) }) }
		small()
		b.ReportMetric(float64(written(b, small)), "bytes/commit-before")
		b.ReportMetric(float64(onDisk(b, path)), "bytes-before")
		s.opts.CompactBytes = defaultCompactBytes
		b.StartTimer()
		small()
		b.StopTimer()
		if s.Stats().Compactions != 1 {
			b.Fatalf("%+v", s.Stats())
		}
		small()
		b.ReportMetric(float64(written(b, small)), "bytes/commit-after")
		b.ReportMetric(float64(onDisk(b, path)), "bytes-after")
		mustClose(b, s)
		b.StartTimer()
	}
}

// written is what the process writes during fn, in bytes, on average of 20 runs.
func written(b *testing.B, fn func()) int64 {
	read := func() (n int64) {
		data, err := os.ReadFile("/proc/self/io")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := fmt.Sscanf(string(data[bytes.Index(data, []byte("wchar:")):]), "wchar: %d", &n); err != nil {
			b.Fatal(err)
		}
		return n
	}
	before := read()
	for range 20 {
		fn()
	}
	return (read() - before) / 20
}
