package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seed is printed by every random test and can be given back: STORE_SEED=1234 go test -run TestName.
func seed(t testing.TB) *rand.Rand {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("STORE_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("STORE_SEED=%d", n)
	return rand.New(rand.NewPCG(n, 0))
}

// model is what a bucket should hold.
type model struct {
	values   map[string]string
	sequence uint64
}

func (m model) clone() model { return model{maps.Clone(m.values), m.sequence} }

// agree reads the bucket in every way there is and compares.
func (m model) agree(b *Bucket, rnd *rand.Rand) error {
	keys := slices.Sorted(maps.Keys(m.values))
	if b.Count() != uint64(len(keys)) {
		return fmt.Errorf("count %d, want %d", b.Count(), len(keys))
	}
	prefix, from := modelKey(rnd)[:rnd.IntN(3)], modelKey(rnd)
	if rnd.IntN(2) == 0 {
		from = nil
	}
	want := slices.DeleteFunc(slices.Clone(keys), func(k string) bool {
		return !strings.HasPrefix(k, string(prefix)) || k < string(from)
	})
	i := 0
	err := b.Scan(prefix, from, func(key, value []byte, bad error) error {
		if bad != nil || i >= len(want) || string(key) != want[i] || string(value) != m.values[want[i]] {
			return fmt.Errorf("scan of %q from %q: at %d of %d: key %q: %v", prefix, from, i, len(want), key, bad)
		}
		i++
		return nil
	})
	if err != nil || i != len(want) {
		return fmt.Errorf("scan of %q from %q: %d of %d keys: %w", prefix, from, i, len(want), err)
	}
	want = slices.DeleteFunc(keys, func(k string) bool { return !strings.HasPrefix(k, string(prefix)) })
	key, value, err := b.Last(prefix)
	if err != nil || (key == nil) != (len(want) == 0) ||
		key != nil && (string(key) != want[len(want)-1] || string(value) != m.values[string(key)]) {
		return fmt.Errorf("last of %q: %q, %w", prefix, key, err)
	}
	k := modelKey(rnd)
	v, has := m.values[string(k)]
	got, err := b.Get(k)
	if err != nil || b.Has(k) != has || (got != nil) != has || string(got) != v {
		return fmt.Errorf("get of %q: %d bytes, has %v, %w", k, len(got), b.Has(k), err)
	}
	return nil
}

func modelKey(rnd *rand.Rand) []byte {
	return fmt.Appendf(nil, "%03d-%s", rnd.IntN(600), strings.Repeat("x", rnd.IntN(2)*rnd.IntN(200)))
}

// change makes one random change to bucket and model.
func (m *model) change(b *Bucket, rnd *rand.Rand) error {
	switch rnd.IntN(8) {
	case 0, 1, 2, 3:
		key, value := modelKey(rnd), bytes.Repeat([]byte{byte(rnd.IntN(256))}, rnd.IntN(64)*rnd.IntN(64)*rnd.IntN(8))
		m.values[string(key)] = string(value)
		return b.Put(key, value)
	case 4, 5:
		key := modelKey(rnd)
		delete(m.values, string(key))
		return b.Delete(key)
	case 6: // a whole range, which leaves empty pages behind
		var keys [][]byte
		prefix := fmt.Appendf(nil, "%d", rnd.IntN(10))
		err := b.Scan(prefix, nil, func(key, _ []byte, _ error) error {
			keys = append(keys, bytes.Clone(key))
			return nil
		})
		for _, key := range keys {
			delete(m.values, string(key))
			err = errors.Join(err, b.Delete(key))
		}
		return err
	default:
		m.sequence++
		n, err := b.NextSequence()
		if n != m.sequence {
			return fmt.Errorf("number %d, want %d", n, m.sequence)
		}
		return err
	}
}

// Random transactions, some of which fail, and restarts leave exactly what a map would hold.
func TestModel(t *testing.T) {
	rnd := seed(t)
	path := tempPath(t)
	schema := testSchema("a", "b")
	s := mustOpen(t, path, schema)
	models := map[string]model{"a": {values: map[string]string{}}, "b": {values: map[string]string{}}}
	for range 400 {
		bucket := schema.Buckets[rnd.IntN(2)]
		run, fails := rand.NewPCG(rnd.Uint64(), 0), rnd.IntN(5) == 0
		var next model
		err := s.Update(t.Context(), func(tx *Tx) error {
			rnd := rand.New(run)
			next = models[bucket].clone()
			for range rnd.IntN(12) {
				if err := next.change(tx.Bucket(bucket), rnd); err != nil {
					return err
				}
				if err := next.agree(tx.Bucket(bucket), rnd); err != nil {
					return fmt.Errorf("inside the transaction: %w", err)
				}
			}
			if fails {
				return os.ErrInvalid
			}
			return nil
		})
		switch {
		case err == nil:
			models[bucket] = next
		case !fails || !errors.Is(err, os.ErrInvalid):
			t.Fatal(err)
		}
		if rnd.IntN(20) == 0 {
			checkClean(t, s)
			mustClose(t, s)
			s = mustOpen(t, path, schema)
		}
		for name, m := range models {
			if err := s.View(func(tx *Tx) error { return m.agree(tx.Bucket(name), rnd) }); err != nil {
				t.Fatalf("bucket %s: %v", name, err)
			}
		}
	}
	checkClean(t, s)
}
