package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/test/damage"
)

// content reads all buckets into memory; damaged values have the value "!".
func content(s *Store, buckets ...string) (map[string]string, error) {
	all := map[string]string{}
	err := s.View(func(tx *Tx) error {
		for _, name := range buckets {
			n := uint64(0)
			err := tx.Bucket(name).Scan(nil, nil, func(key, value []byte, bad error) error {
				n++
				all[name+"/"+string(key)] = string(value)
				if bad != nil {
					all[name+"/"+string(key)] = "!"
					if !errors.Is(bad, ErrBadValue) {
						return fmt.Errorf("a damaged value is told as %w", bad)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if n != tx.Bucket(name).Count() {
				return fmt.Errorf("bucket %s: %d keys, count %d", name, n, tx.Bucket(name).Count())
			}
		}
		return nil
	})
	return all, err
}

var sampleSchema = testSchema("a", "b", "inline", "empty")

// sample is the bytes of a store with every kind of page: branches, leaves, overflow, free pages, an inline bucket. It
// also returns its content, which the last transaction changed.
func sample(t testing.TB) (file []byte, now map[string]string) {
	t.Helper()
	path := tempPath(t)
	s := mustOpen(t, path, sampleSchema)
	for step := range 3 {
		err := s.Update(t.Context(), func(tx *Tx) error {
			for i := range 400 {
				size := i % 90
				if i%50 == 0 {
					size = 9000
				}
				key, value := fmt.Appendf(nil, "key-%04d", i*3+step), bytes.Repeat([]byte{byte(i)}, size)
				if err := errors.Join(tx.Bucket("a").Put(key, value), tx.Bucket("b").Put(value[:min(size, 40)], key)); err != nil && size > 0 {
					return err
				}
			}
			return tx.Bucket("inline").Put([]byte("only"), []byte("small"))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := s.Update(t.Context(), func(tx *Tx) error {
		for i := range 300 {
			if err := tx.Bucket("a").Delete(fmt.Appendf(nil, "key-%04d", i+300)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "inline", "last", "one")
	if now, err = content(s, sampleSchema.Buckets...); err != nil {
		t.Fatal(err)
	}
	checkClean(t, s)
	mustClose(t, s)
	if file, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	m, _, err := readMeta(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return file[:int64(m.limit)*m.pageSize], now
}

// verdict opens damaged bytes as a store and fails the test unless that went as promised: a named error with the file left
// alone, or a working store that has all its keys, at most `allowed` of them with a damaged value.
func verdict(t *testing.T, what string, file []byte, allowed int, want map[string]string) (opened bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, sampleSchema, Options{})
	if err != nil {
		after, rerr := os.ReadFile(path)
		if rerr != nil || !bytes.Equal(after, file) {
			t.Errorf("%s: Open changed the file it refused", what)
		}
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: refused as %v", what, err)
		}
		return false
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
		}
	}()
	got, err := content(s, sampleSchema.Buckets...)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return true
	}
	bad, same := 0, len(got) == len(want)
	for key, found := range got {
		if found == "!" {
			bad++ // under its own key, or under another where the key was hit
		} else if value, ok := want[key]; !ok || found != value {
			same = false
		}
	}
	if !same || bad > allowed || bad != s.Stats().BadValues {
		t.Errorf("%s: opens with another content: %d keys, %d damaged", what, len(got), s.Stats().BadValues)
	}
	// It must also work: write every key anew, which cures damaged values, and be clean then.
	err = s.Update(t.Context(), func(tx *Tx) error {
		for key, value := range got {
			bucket, key, _ := strings.Cut(key, "/")
			if err := tx.Bucket(bucket).Put([]byte(key), []byte(value)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: update: %v", what, err)
	}
	findings, err := s.Check(context.WithoutCancel(t.Context()))
	harmless := slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind == KindLeak || f.Kind == KindMeta })
	for _, f := range findings {
		if !harmless || f.Kind == KindStructure || f.Kind == KindCount || f.Kind == KindValue {
			t.Errorf("%s: check: %v", what, f)
		}
	}
	if err != nil {
		t.Errorf("%s: check: %v", what, err)
	}
	return true
}

// A file that is cut, anywhere, is refused and kept; an empty one is not taken for a new store.
func TestDamageCut(t *testing.T) {
	file, now := sample(t)
	page := os.Getpagesize()
	for _, n := range []int{0, 1, 100, page - 1, page, page + 1, 2 * page, 3 * page, 4 * page, len(file) / 2, len(file) - page, len(file) - 1} {
		if verdict(t, fmt.Sprintf("cut to %d bytes", n), file[:n], 0, now) {
			t.Errorf("a file cut to %d of %d bytes was opened", n, len(file))
		}
	}
	if !verdict(t, "whole", file, 0, now) {
		t.Error("the undamaged file was refused")
	}
	for _, junk := range []string{"\x00", "x", "SQLite format 3\x00"} {
		if verdict(t, "junk", bytes.Repeat([]byte(junk), 1<<14), 0, now) {
			t.Error("a file of junk was opened")
		}
	}
}

// Damage of any page of any kind, by flipped bits, wiped bytes or another page in its place, ends in a named refusal or
// in damaged values of the keys that were hit; never in the end of the process, in missing keys, in an empty store or in the
// state before the last transaction.
func TestDamageMatrix(t *testing.T) {
	rnd := seed(t)
	file, now := sample(t)
	layout := layoutOf(t, file)
	size := layout.PageSize
	for _, kind := range []string{
		damage.Meta, damage.Freelist, damage.Branch, damage.Leaf, damage.Overflow, damage.Free,
	} {
		pages := layout.Pages[kind]
		if len(pages) == 0 {
			t.Fatalf("the sample has no %s page", kind)
		}
		opened, refused := 0, 0
		for range 50 {
			damaged := bytes.Clone(file)
			id := pages[rnd.IntN(len(pages))]
			page := damaged[id*size : (id+1)*size]
			off := rnd.IntN(size)
			if rnd.IntN(2) == 0 {
				off = rnd.IntN(200) // where the structure is
			}
			what, allowed := "", 1
			switch rnd.IntN(6) {
			case 0, 1, 2:
				page[off] ^= 1 << rnd.IntN(8)
				what = fmt.Sprintf("%s page %d: bit of byte %d flipped", kind, id, off)
			case 3:
				page[off] = byte(rnd.IntN(256))
				what = fmt.Sprintf("%s page %d: byte %d is %#x", kind, id, off, page[off])
			case 4:
				n := min(rnd.IntN(512), size-off)
				clear(page[off : off+n])
				what, allowed = fmt.Sprintf("%s page %d: bytes %d to %d wiped", kind, id, off, off+n), 512/minEntry
			case 5:
				other := rnd.IntN(len(file) / size)
				copy(page, file[other*size:(other+1)*size])
				what, allowed = fmt.Sprintf("%s page %d: page %d in its place", kind, id, other), size/minEntry
			}
			if verdict(t, what, damaged, allowed, now) {
				opened++
			} else {
				refused++
			}
		}
		t.Logf("%-8s pages: %3d damages opened, %3d refused", kind, opened, refused)
	}
}

// Any damage of the newest meta page is refused: with the older one the store would go back, silently, by a transaction that
// was answered for. Damage of the older one costs nothing.
func TestDamagedMetaPage(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testSchema("a"))
	defer mustClose(t, s)
	for range 4 { // the numbers of two neighbours differ by one bit in one of four cases
		put(t, s, "a", "key", "value")
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		layout := layoutOf(t, file)
		read := func() (metaPage, bool, error) { return readMeta(bytes.NewReader(file), int64(len(file))) }
		sound, _, err := read()
		if err != nil {
			t.Fatal(err)
		}
		for bit := range 2 * metaSize * 8 {
			page, bit := bit%2, bit/2
			off := page*layout.PageSize + pageHeader + bit/8
			file[off] ^= 1 << (bit % 8)
			m, bad, err := read()
			// Where the older one's number was hit nobody can tell that it is the older one.
			refused := page == layout.Newest || bit/64 == metaTxid/8
			if refused != errors.Is(err, errStructure) || !refused && (!bad || m != sound) {
				t.Errorf("transaction %d, meta page %d: bit %d flipped: %+v, %v, %v", sound.txid, page, bit, m, bad, err)
			}
			file[off] ^= 1 << (bit % 8)
		}
	}
}

// layoutOf is where the pages of a file lie that exists in memory only.
func layoutOf(t testing.TB, file []byte) damage.Layout {
	t.Helper()
	path := filepath.Join(t.TempDir(), "layout.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return damage.Pages(t, path)
}

// minEntry is the least space that a key and its value take in a leaf page.
const minEntry = elementSize + sumSize + 1

// A flipped byte in one value is that value's damage: the others are read, it is named by Get, Scan, Last and Check and
// logged at Open, and it can be written again or deleted.
func TestDamagedValue(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testSchema("a"))
	put(t, s, "a", "k1", "first value", "k2", "second value", "k3", "third value")
	mustClose(t, s)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.ReplaceAll(file, []byte("second value"), []byte("sEcond value"))
	damaged = bytes.ReplaceAll(damaged, []byte("third value"), []byte("thirD value"))
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err = Open(path, testSchema("a"), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, s)
	if got := dump(t, s, "a", nil, nil); got != "k1=first value k2! k3!" {
		t.Errorf("scan: %q", got)
	}
	if !strings.Contains(log.String(), "count=2") || s.Stats().BadValues != 2 {
		t.Errorf("log %q, stats %+v", &log, s.Stats())
	}
	err = s.View(func(tx *Tx) error {
		a := tx.Bucket("a")
		value, err := a.Get([]byte("k2"))
		var bad *BadValueError
		if value != nil || !errors.As(err, &bad) || bad.Bucket != "a" || string(bad.Key) != "k2" || !strings.Contains(err.Error(), `"k2"`) {
			t.Errorf("get: %q, %v", value, err)
		}
		if _, _, err := GetJSON[string](a, []byte("k2")); !errors.Is(err, ErrBadValue) {
			t.Errorf("get as JSON: %v", err)
		}
		if key, value, err := a.Last(nil); string(key) != "k3" || value != nil || !errors.Is(err, ErrBadValue) {
			t.Errorf("last: %q, %q, %v", key, value, err)
		}
		_, err = a.Get([]byte("k1"))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	findings, err := s.Check(t.Context())
	if err != nil || len(findings) != 2 || findings[0].Kind != KindValue || string(findings[0].Key) != "k2" || !strings.Contains(findings[0].String(), "k2") {
		t.Errorf("findings %v, %v", findings, err)
	}
	put(t, s, "a", "k2", "again")
	if err := s.Update(t.Context(), func(tx *Tx) error { return tx.Bucket("a").Delete([]byte("k3")) }); err != nil {
		t.Error(err)
	}
	if got := dump(t, s, "a", nil, nil); got != "k1=first value k2=again" {
		t.Errorf("after repair: %q", got)
	}
	checkClean(t, s)
}

// A read that fails while the file is verified is damage, with its cause inside; what is no regular file is told so.
func TestUnreadableFile(t *testing.T) {
	path := tempPath(t)
	mustClose(t, mustOpen(t, path, testSchema("a")))
	for n := range 4 { // two meta pages, the list of free pages, the root
		reads := 0
		fsys := durable.Hooked(func(c durable.Call) error {
			if c.Op != durable.OpRead || c.Path != path {
				return nil
			}
			if reads++; reads > n {
				return unix.EIO
			}
			return nil
		})
		if _, err := Open(path, testSchema("a"), Options{FS: fsys}); !errors.Is(err, ErrDamaged) || !errors.Is(err, unix.EIO) {
			t.Errorf("read %d fails: %v", n, err)
		}
	}
	link, fifo := path+".link", path+".fifo"
	if err := errors.Join(os.Symlink(path, link), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{filepath.Dir(path), link, fifo} {
		if _, err := Open(other, testSchema("a"), Options{}); !errors.Is(err, durable.ErrNotRegular) {
			t.Errorf("%s: %v", other, err)
		}
	}
	mustOpen(t, path, testSchema("a"))
}

// A value that goes bad in the open file is that value's damage too, and Check tells it from the others.
func TestValueDamagedWhileOpen(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testSchema("a"))
	put(t, s, "a", "k1", "first value", "k2", "second value")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("S"), int64(bytes.LastIndex(file, []byte("second value")))); err != nil {
		t.Fatal(err)
	}
	if got := dump(t, s, "a", nil, nil); got != "k1=first value k2!" || s.Err() != nil {
		t.Errorf("scan: %q, store %v", got, s.Err())
	}
	findings, err := s.Check(t.Context())
	if err != nil || len(findings) != 1 || findings[0].Kind != KindValue || string(findings[0].Key) != "k2" {
		t.Errorf("findings %v, %v", findings, err)
	}
}

// Check of a file whose pages went bad while it was open says where, and leaves bbolt's own check out.
func TestCheckOfDamagedStructure(t *testing.T) {
	path := tempPath(t)
	s := mustOpen(t, path, testSchema("a"))
	for i := range 100 {
		put(t, s, "a", fmt.Sprintf("%03d", i), strings.Repeat("v", 2000))
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	branches := layoutOf(t, file).Pages[damage.Branch]
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Branches that lead back to their own page: bbolt would follow them until the stack ends.
	for _, id := range branches {
		off := int64(id * os.Getpagesize())
		for i := range int64(order.Uint16(file[off+10:])) {
			if _, err := f.WriteAt(order.AppendUint64(nil, uint64(id)), off+pageHeader+i*elementSize+8); err != nil {
				t.Fatal(err)
			}
		}
	}
	findings, err := s.Check(t.Context())
	if err != nil || len(findings) == 0 || findings[0].Kind != KindStructure || !strings.Contains(findings[0].String(), "used twice") {
		t.Errorf("findings %v, %v", findings, err)
	}
	for _, f := range findings {
		if f.Kind == KindBolt {
			t.Errorf("bbolt's check was run: %v", f)
		}
	}
	if err := os.WriteFile(path, file, 0o600); err != nil { // or Close would be all that still works
		t.Fatal(err)
	}
	checkClean(t, s)
}

// A file that is cut while it is open fails the store: everybody gets a named error, nobody waits for ever, and the file
// is free for another process after Close.
func TestCutWhileOpen(t *testing.T) {
	for _, keep := range []int64{0, 1, 3} {
		path := tempPath(t)
		s, err := Open(path, testSchema("a"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			put(t, s, "a", fmt.Sprintf("%03d", i), strings.Repeat("v", 2000))
		}
		if err := os.Truncate(path, keep*int64(os.Getpagesize())); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for s.Err() == nil {
					err := s.View(func(tx *Tx) error {
						return tx.Bucket("a").Scan(nil, nil, func(_, _ []byte, bad error) error { return bad })
					})
					if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnknownOutcome) {
						t.Errorf("keep %d pages: view: %v", keep, err)
					}
					if i%4 != 0 {
						continue
					}
					err = s.Update(t.Context(), func(tx *Tx) error { return tx.Bucket("a").Put(fmt.Appendf(nil, "%03d", i), nil) })
					if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnknownOutcome) {
						t.Errorf("keep %d pages: update: %v", keep, err)
					}
				}
			})
		}
		wg.Wait()
		<-s.Failed()
		if err := s.View(func(*Tx) error { return nil }); err == nil || !errors.Is(err, s.Err()) {
			t.Errorf("keep %d pages: later view: %v, store: %v", keep, err, s.Err())
		}
		if err := s.Close(); err != nil {
			t.Logf("keep %d pages: close: %v", keep, err)
			continue
		}
		if _, err := Open(path, testSchema("a"), Options{}); !errors.Is(err, ErrDamaged) {
			t.Errorf("keep %d pages: reopened: %v", keep, err)
		}
	}
}

// deleteEvery deletes every n-th key of every bucket.
func deleteEvery(t testing.TB, s *Store, n int) error {
	return s.Update(t.Context(), func(tx *Tx) error {
		for _, name := range sampleSchema.Buckets {
			var keys [][]byte
			i := 0
			err := tx.Bucket(name).Scan(nil, nil, func(key, _ []byte, _ error) error {
				if i++; i%n == 0 {
					keys = append(keys, bytes.Clone(key))
				}
				return nil
			})
			for _, key := range keys {
				err = errors.Join(err, tx.Bucket(name).Delete(key))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// FuzzWalk feeds damaged files to the reader of pages: it ends, without panic, and a structure that it calls sound is
// sound for bbolt too, also after a write.
func FuzzWalk(f *testing.F) {
	file, _ := sample(f)
	f.Add(uint32(0), []byte{})
	f.Add(uint32(os.Getpagesize()*2+8), []byte{0x10, 0, 0xFF, 0xFF})
	f.Add(uint32(os.Getpagesize()*5+16), []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, off uint32, patch []byte) {
		damaged := bytes.Clone(file)
		copy(damaged[int(off)%len(damaged):], patch)
		m, badMeta, err := readMeta(bytes.NewReader(damaged), int64(len(damaged)))
		if err != nil {
			return
		}
		w := newWalker(bytes.NewReader(damaged), m, func(string, []byte, []byte) {})
		if err := w.walk(); err != nil {
			t.Fatalf("a file in memory cannot be read: %v", err)
		}
		if len(w.damage) > 0 {
			return
		}
		path := filepath.Join(t.TempDir(), "store.db")
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path, sampleSchema, Options{})
		if err != nil {
			return
		}
		if err := deleteEvery(t, s, 3); err != nil {
			t.Error(err)
		}
		findings, err := s.Check(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, f := range findings {
			if f.Kind == KindStructure || f.Kind == KindCount {
				t.Error(f)
			}
			if f.Kind == KindBolt && w.leaked == 0 && !badMeta {
				t.Error(f)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
