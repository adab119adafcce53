package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Writers, each with keys of its own and a model of them, and readers that hold snapshots to what the writers note in the
// same transactions, while the file is replaced over and over.
func TestCompactModel(t *testing.T) {
	rnd := seed(t)
	path := tempPath(t)
	opts := eager
	opts.CompactBytes = 128 << 10
	s := openWith(t, path, opts)
	const writers, steps = 4, 60
	models := make([]map[string]string, writers)
	var work, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range writers {
		models[w] = map[string]string{}
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		work.Go(func() { writeModel(t, s, w, steps, models[w], rnd) })
	}
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.View(func(tx *Tx) error { return consistent(tx, writers) }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	readers.Go(func() {
		for range 3 {
			checkClean(t, s)
		}
	})
	work.Wait()
	close(stop)
	readers.Wait()
	settle(t, s)
	st := s.Stats()
	t.Logf("%d compactions in %d commits", st.Compactions, st.Commits)
	if st.Compactions < 3 || s.Err() != nil {
		t.Errorf("%+v, store %v", st, s.Err())
	}
	for range 2 {
		want := map[string]string{}
		for _, m := range models {
			maps.Copy(want, m)
		}
		got, err := content(s, "a")
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%d entries, want %d; %v", len(got), len(want), err)
		}
		checkClean(t, s)
		mustClose(t, s)
		s = openWith(t, path, opts)
	}
	if names := entries(t, path); !slices.Equal(names, []string{"store.db"}) {
		t.Errorf("files %v", names)
	}
}

// writeModel makes random changes to the keys of writer w, now and then large deletions, and reads each back.
func writeModel(t *testing.T, s *Store, w, steps int, model map[string]string, rnd *rand.Rand) {
	prefix := fmt.Sprintf("%d-", w)
	for step := range steps {
		next := maps.Clone(model)
		if rnd.IntN(6) == 0 {
			clear(next)
		}
		for range rnd.IntN(20) {
			next["a/"+prefix+strconv.Itoa(rnd.IntN(300))] = string(bulkValue(rnd.IntN(256), rnd.IntN(6000)))
		}
		err := s.Update(t.Context(), func(tx *Tx) error {
			a, sum := tx.Bucket("a"), 0
			for key := range model {
				if _, ok := next[key]; !ok {
					if err := a.Delete([]byte(key[2:])); err != nil {
						return err
					}
				}
			}
			for key, value := range next {
				sum += len(value)
				if old, ok := model[key]; ok && old == value {
					continue
				}
				if err := a.Put([]byte(key[2:]), []byte(value)); err != nil {
					return err
				}
			}
			n, err := tx.Bucket("b").NextSequence()
			note := fmt.Sprintf("%d %d %d", len(next), sum, n)
			return errors.Join(err, tx.Bucket("b").Put([]byte(prefix), []byte(note)))
		})
		if err != nil {
			t.Errorf("writer %d, step %d: %v", w, step, err)
			return
		}
		clear(model)
		maps.Copy(model, next)
		err = s.View(func(tx *Tx) error {
			for key, value := range model {
				if got, err := tx.Bucket("a").Get([]byte(key[2:])); string(got) != value || err != nil {
					return fmt.Errorf("key %s: %d bytes, want %d: %w", key, len(got), len(value), err)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("writer %d, step %d: %v", w, step, err)
		}
	}
}

// consistent holds each writer's keys in a snapshot to its note.
func consistent(tx *Tx, writers int) error {
	for w := range writers {
		prefix := fmt.Appendf(nil, "%d-", w)
		note, err := tx.Bucket("b").Get(prefix)
		if err != nil || note == nil {
			return err
		}
		var count, sum, n int
		if _, err := fmt.Sscanf(string(note), "%d %d %d", &count, &sum, &n); err != nil {
			return err
		}
		err = tx.Bucket("a").Scan(prefix, nil, func(_, value []byte, bad error) error {
			count--
			sum -= len(value)
			return bad
		})
		if err != nil || count != 0 || sum != 0 {
			return fmt.Errorf("writer %d: %d keys and %d bytes are missing: %w", w, count, sum, err)
		}
	}
	return nil
}
