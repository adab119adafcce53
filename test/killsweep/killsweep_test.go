package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/test/rig"
)

var seed = flag.Uint64("killsweep.seed", 0, "seed of the short sweep; 0 takes one from the clock and prints it")

// dir is where TestMain built the programs, in bin, with the counter.
var dir string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runMain(m))
}

func runMain(m *testing.M) int {
	var err error
	if dir, err = os.MkdirTemp("", "fgw-kill-"); err == nil {
		err = build(context.Background(), dir, filepath.Join(dir, "bin"))
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// lines passes what a sweep prints on to the test's log.
type lines struct{ t *testing.T }

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

// The programs, killed right before and right after every tenth of their operations, finish the plant-room scenario with
// everything delivered once, nothing shown early and nothing left over. The full sweep is the command's.
func TestShortKillSweep(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -killsweep.seed=%d", *seed)
	for _, program := range targets["both"] {
		t.Run(program, func(t *testing.T) {
			s := &sweep{out: lines{t}, every: 10, seed: *seed, parallel: 2, most: 24, bin: filepath.Join(dir, "bin")}
			if err := s.run(t.Context(), program); err != nil {
				t.Fatal(err)
			}
			if s.violations > 0 {
				t.Errorf("%d violations", s.violations)
			}
			if s.hits < s.runs/2 {
				t.Errorf("only %d of %d runs reached the operation they were to die at", s.hits, s.runs)
			}
		})
	}
}

// Every named point lies in the life of the scenario, so that its mapping to operations still fits the code.
func TestNamedPointsArePassed(t *testing.T) {
	for program, points := range map[string][]string{
		device: {"after-temp-close", "after-managed-move", "after-manifest-commit", "after-registration", "after-delivered-move"},
		server: {"after-temp-close", "at-chunk-boundary", "after-final-byte", "before-registration"},
	} {
		clean, err := scenario(t.Context(), &sweep{seed: 1, bin: filepath.Join(dir, "bin")}, kill{program: program})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range points {
			// One for each file at least: the chunks of a file are more.
			if clean.points[name] < len(plan) && name != "after-temp-close" || clean.points[name] == 0 {
				t.Errorf("%s passes %s %d times", program, name, clean.points[name])
			}
		}
	}
}

// Programs as they are shipped hold nothing of the kill points: neither their code nor the names of their variables.
func TestShippedProgramsCannotKillThemselves(t *testing.T) {
	shipped := filepath.Join(dir, "shipped")
	if err := rig.Build(t.Context(), shipped); err != nil {
		t.Fatal(err)
	}
	marks := []string{"FIELDGW_KILL_", "FIELDGW_COUNT_FILE", "killCounter", "CountCommit"}
	for _, program := range targets["both"] {
		for _, c := range []struct {
			bin  string
			want bool
		}{{shipped, false}, {filepath.Join(dir, "bin"), true}} {
			code, err := os.ReadFile(filepath.Join(c.bin, program))
			if err != nil {
				t.Fatal(err)
			}
			for _, mark := range marks {
				if got := bytes.Contains(code, []byte(mark)); got != c.want {
					t.Errorf("%s in %s: %v, want %v", mark, filepath.Join(filepath.Base(c.bin), program), got, c.want)
				}
			}
		}
	}
}
