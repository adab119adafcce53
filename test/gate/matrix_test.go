package gate

import (
	"cmp"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

var (
	matrix = flag.String("gate.matrix", "pairs", "cells of the plant-room matrix: pairs (every pair of values meets) or full")
	only   = flag.String("gate.cell", "", "one cell of the plant-room matrix alone, as its line names it")
)

// dimension is one thing that differs between the cells of the matrix.
type dimension struct {
	name   string
	values []string
}

// The values of the dimensions. A new value is one word here and what the play of a cell does for it.
const (
	momentAfter, momentManifest, momentPayload = "after-submit", "manifest-write", "first-payload"
	storageNormal, storageWarn, storageStop    = "normal", "warn", "stop"
	tokenValid, tokenExpires                   = "valid", "expires"
	clockRight, clock1970                      = "0", "1970"
	parentBefore, parentAfter                  = "parent-before", "parent-after"
)

// The matrix. Windows, metered links and batteries come with the sensors of policy, previews and records of their own with
// their subsystems: each is a line here. Until records are synchronised, a parent's arrival at the server is the arrival of
// its server ID with a registration.
var dimensions = []dimension{
	{"shutdown", []string{momentAfter, momentManifest, momentPayload}},
	{"storage", []string{storageNormal, storageWarn, storageStop}},
	{"credentials", []string{tokenValid, tokenExpires}},
	{"clock", []string{clockRight, "-30m", "-10m", "10m", "30m", clock1970}},
	{"parent", []string{parentBefore, parentAfter}},
}

// cell is one combination, by the value of each dimension.
type cell []string

func (c cell) String() string { return strings.Join(c, ",") }

func (c cell) of(name string) string {
	return c[slices.IndexFunc(dimensions, func(d dimension) bool { return d.name == name })]
}

func (c cell) is(value string) bool { return slices.Contains(c, value) }

// random depends on the seed and the cell alone, so that one cell is replayed as it was among others.
func (c cell) random(seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.String())) // a hash takes everything
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// product is every combination.
func product(ds []dimension) []cell {
	cells := []cell{nil}
	for _, d := range ds {
		var longer []cell
		for _, c := range cells {
			for _, v := range d.values {
				longer = append(longer, append(slices.Clone(c), v))
			}
		}
		cells = longer
	}
	return cells
}

// pair is two values of different dimensions, by their places.
type pair struct{ d1, v1, d2, v2 string }

func pairsOf(ds []dimension, c cell) (pairs []pair) {
	for i := range c {
		for j := range i {
			pairs = append(pairs, pair{ds[j].name, c[j], ds[i].name, c[i]})
		}
	}
	return pairs
}

// covering selects cells in which every pair of values meets: again and again the cell with the most pairs that were in none
// before, in an order that the seed shuffles.
func covering(ds []dimension, seed uint64) (chosen []cell) {
	all := product(ds)
	rnd := rand.New(rand.NewPCG(seed, 3))
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	left := map[pair]bool{}
	for _, c := range all {
		for _, p := range pairsOf(ds, c) {
			left[p] = true
		}
	}
	fresh := func(c cell) (n int) {
		for _, p := range pairsOf(ds, c) {
			if left[p] {
				n++
			}
		}
		return n
	}
	for len(left) > 0 {
		best := slices.MaxFunc(all, func(a, b cell) int { return cmp.Compare(fresh(a), fresh(b)) })
		for _, p := range pairsOf(ds, best) {
			delete(left, p)
		}
		chosen = append(chosen, best)
	}
	return chosen
}

// Every pair of values meets in the selection, whatever the seed; it is a small part of the product, and the same again for
// the same seed.
func TestCoveringMeetsEveryPair(t *testing.T) {
	all := product(dimensions)
	for seed := range uint64(20) {
		met := map[pair]bool{}
		chosen := covering(dimensions, seed)
		for _, c := range chosen {
			for _, p := range pairsOf(dimensions, c) {
				met[p] = true
			}
		}
		for _, c := range all {
			for _, p := range pairsOf(dimensions, c) {
				if !met[p] {
					t.Fatalf("seed %d: %v never meet", seed, p)
				}
			}
		}
		if len(chosen) > len(all)/6 {
			t.Errorf("seed %d: %d of %d cells", seed, len(chosen), len(all))
		}
		if !slices.EqualFunc(chosen, covering(dimensions, seed), slices.Equal[cell]) {
			t.Errorf("seed %d: another selection at the second time", seed)
		}
	}
}

// The programs of the matrix are built once, by the first test that needs them.
var buildOnce = sync.OnceValues(func() (string, error) {
	into := filepath.Join(filepath.Dir(bin), "matrix")
	return into, buildMatrix(buildContext, filepath.Dir(bin), into)
})

func matrixPrograms(t *testing.T) string {
	t.Helper()
	into, err := buildOnce()
	must(t, "build programs with a clock of their own", err)
	return into
}

// cellsToRun are the cells that the flags ask for.
func cellsToRun(t *testing.T) []cell {
	t.Helper()
	all := product(dimensions)
	switch {
	case *only != "":
		all = slices.DeleteFunc(all, func(c cell) bool { return c.String() != *only })
		if len(all) == 0 {
			t.Fatalf("-gate.cell=%s: no such cell", *only)
		}
		return all
	case *matrix == "full":
		return all
	case *matrix != "pairs":
		t.Fatalf("-gate.matrix=%s: want pairs or full", *matrix)
	}
	return covering(dimensions, *seed)
}

// The plant-room release gate: the daemon is shut down (killed or stopped, by the seed) 1 to 15 s after submit, while a
// manifest is being written, or while the first payload is on its way, with the link cut before the first acknowledgement;
// with too little space, a token that expires in mid-transfer, a wrong clock, and the parent known to the server before or
// after its attachment. After the restart every secured file is there, nothing shows as delivered that is not, and in the
// end everything is delivered once.
func TestPlantRoomMatrix(t *testing.T) {
	programs := matrixPrograms(t)
	takeSeed(t)
	cells := cellsToRun(t)
	t.Logf("%d of %d cells, seed %d", len(cells), len(product(dimensions)), *seed)
	sum := summary{}
	var group errgroup.Group
	group.SetLimit(3 * runtime.NumCPU()) // a cell waits most of its time
	for _, c := range cells {
		group.Go(func() error {
			t.Run(c.String(), func(t *testing.T) {
				began := time.Now()
				p := &play{t: t, cell: c, rnd: c.random(*seed)}
				defer func() {
					result := sum.add(t, c, p)
					t.Logf("%-52s %s | %s, %s", c, p.story, result, time.Since(began).Round(100*time.Millisecond))
					if t.Failed() {
						t.Logf("replay: go test ./test/gate -run 'TestPlantRoomMatrix$' -gate.seed=%d -gate.matrix=%s -gate.cell=%s", *seed, *matrix, c)
					}
				}()
				p.run(programs)
			})
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", sum.table())
}

// summary counts results by the values of the dimensions.
type summary struct {
	mu     sync.Mutex
	counts map[[2]string]map[string]int
}

// add takes note of a cell that ended and returns its result in a word.
func (s *summary) add(t *testing.T, c cell, p *play) string {
	result := "ok"
	switch {
	case t.Failed():
		result = "FAILED"
	case t.Skipped():
		result = "not run"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[[2]string]map[string]int{}
	}
	for i, v := range c {
		key := [2]string{dimensions[i].name, v}
		if s.counts[key] == nil {
			s.counts[key] = map[string]int{}
		}
		s.counts[key][result]++
		s.counts[key]["secured"] += p.secured
		s.counts[key]["early"] += p.early
		s.counts[key]["delivered"] += p.delivered
	}
	return result
}

func (s *summary) table() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%-12s %-15s %4s %7s %7s %10s %15s %15s\n", "", "", "ok", "failed", "not run", "in custody", "shown too early", "delivered once")
	for _, d := range dimensions {
		for _, v := range d.values {
			n := s.counts[[2]string{d.name, v}]
			fmt.Fprintf(&text, "%-12s %-15s %4d %7d %7d %10d %15d %15d\n", d.name, v, n["ok"], n["FAILED"], n["not run"], n["secured"], n["early"], n["delivered"])
		}
	}
	return text.String()
}
