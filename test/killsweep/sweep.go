package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// The programs that are killed.
const (
	device = "fieldgwd"
	server = "fieldgw-server"
)

var targets = map[string][]string{"device": {device}, "server": {server}, "both": {device, server}}

const (
	// cleanRuns are made to learn how many operations there are. The number differs by a few from run to run, since
	// goroutines share reads and commits differently.
	cleanRuns = 3
	// beyond is how far the sweep goes past the largest number seen.
	beyond = 10
	// secondLife is how many operations of a program that starts again are tried for a second kill: more than its
	// recovery takes.
	secondLife = 120
	// progressEvery is how often the sweep says how far it is.
	progressEvery = 15 * time.Second
)

// kill is an order to die: "at:n" before operation n, "after:n" right after it, "point:name:k" at a named point. Orders
// joined by "+" are for the lives of the program, one after the other. An empty place kills nobody.
type kill struct{ program, place string }

// env is what internal/durable is told in the life that follows so many deaths. dir holds what it writes.
func (k kill) env(dir string, deaths int) []string {
	env := []string{"FIELDGW_COUNT_FILE=" + filepath.Join(dir, "trace")}
	orders := strings.Split(k.place, "+")
	if k.place == "" || deaths >= len(orders) {
		return env
	}
	side, rest, _ := strings.Cut(orders[deaths], ":")
	return append(env, "FIELDGW_KILL_"+strings.ToUpper(side)+"="+rest)
}

// sweep is a campaign: options, and what came of it.
type sweep struct {
	out      io.Writer
	every    int
	seed     uint64
	parallel int
	only     string
	again    bool
	bin      string
	keep     string
	// most bounds the number of kills, evenly spread; 0 is no bound.
	most int

	mu         sync.Mutex
	runs, hits int // runs made, and those in which the program died of its first order
	second     int // those in which it died again
	points     map[string]int
	violations int
}

// run sweeps one program.
func (s *sweep) run(ctx context.Context, program string) error {
	clean, err := s.clean(ctx, program)
	if err != nil {
		return err
	}
	kills := s.plan(program, clean)
	fmt.Fprintf(s.out, "%s: %d operations and commits in a clean run, %d kills to do, seed %d\n", program, clean.operations, len(kills), s.seed)
	s.runs, s.hits, s.second, s.points = 0, 0, 0, map[string]int{}
	before := s.violations
	started := time.Now()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go s.progress(ctx, program, len(kills))
	var group errgroup.Group
	group.SetLimit(s.parallel)
	for _, k := range kills {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return s.one(ctx, k) })
	}
	err = errors.Join(group.Wait(), ctx.Err())
	fmt.Fprintf(s.out, "%s: %d operations, %d runs, %d kills done, %d of them once more while starting again, "+
		"%d runs ended before their operation, %d violations, %s\n", program, clean.operations, s.runs, s.hits, s.second,
		s.runs-s.hits, s.violations-before, time.Since(started).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(s.points)) {
		fmt.Fprintf(s.out, "  named point %-22s %3d kills\n", name, s.points[name])
	}
	return err
}

// clean runs the scenario without a kill and returns the largest counts seen.
func (s *sweep) clean(ctx context.Context, program string) (most trace, err error) {
	most.points = map[string]int{}
	for range cleanRuns {
		t, err := scenario(ctx, s, kill{program: program})
		if err != nil {
			return most, fmt.Errorf("clean run: %w", err)
		}
		most.operations = max(most.operations, t.operations)
		for name, n := range t.points {
			most.points[name] = max(most.points[name], n)
		}
	}
	return most, nil
}

// plan lists the kills of a sweep, in an order that mixes early and late ones.
func (s *sweep) plan(program string, clean trace) []kill {
	if s.only != "" {
		return []kill{{program, s.only}}
	}
	var kills []kill
	for n := 1 + int(s.seed%uint64(s.every)); n <= clean.operations+beyond; n += s.every {
		kills = append(kills, kill{program, fmt.Sprintf("at:%d", n)}, kill{program, fmt.Sprintf("after:%d", n)})
	}
	for name, times := range clean.points {
		for k := 1; k <= times; k += s.every {
			kills = append(kills, kill{program, fmt.Sprintf("point:%s:%d", name, k)})
		}
	}
	slices.SortFunc(kills, func(a, b kill) int { return strings.Compare(a.place, b.place) })
	random := rand.New(rand.NewPCG(s.seed, 1))
	random.Shuffle(len(kills), func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
	if s.most > 0 && len(kills) > s.most {
		kills = kills[:s.most]
	}
	if s.again {
		for i := range kills {
			kills[i].place += fmt.Sprintf("+at:%d", 1+random.IntN(secondLife))
		}
	}
	return kills
}

// one makes one run with a kill and counts what came of it. A violation is told and does not end the sweep.
func (s *sweep) one(ctx context.Context, k kill) error {
	t, err := scenario(ctx, s, k)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	if t.deaths > 1 {
		s.second++
	}
	if t.deaths > 0 {
		s.hits++
		if name, ok := strings.CutPrefix(k.place, "point:"); ok {
			name, _, _ = strings.Cut(name, ":")
			s.points[name]++
		}
	}
	if err != nil {
		s.violations++
		target := map[string]string{device: "device", server: "server"}[k.program]
		fmt.Fprintf(s.out, "VIOLATION %s %s (%s)\n  %v\n  replay: go run ./test/killsweep -target %s -seed %d -only %s -keep DIR\n",
			k.program, k.place, t.killed, err, target, s.seed, k.place)
	}
	return nil
}

func (s *sweep) progress(ctx context.Context, program string, all int) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.mu.Lock()
			fmt.Fprintf(s.out, "%s: %d of %d runs, %d kills, %d violations\n", program, s.runs, all, s.hits, s.violations)
			s.mu.Unlock()
		}
	}
}
