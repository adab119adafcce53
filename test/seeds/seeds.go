// Package seeds runs a randomized test once for each of many seeds, in fake time.
package seeds

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
)

// Each runs a parallel subtest, named by its seed, for each of n seeds, or for one only unless that is 0. Each has a Dir: such
// tests commit tens of thousands of times and lose no power.
func Each(t *testing.T, n int, only uint64, run func(t *testing.T, dir string, seed uint64)) {
	first := rand.Uint64() >> 16
	if only != 0 {
		first, n = only, 1
	}
	for i := range uint64(n) {
		seed := first + i
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dir := Dir(t)
			synctest.Test(t, func(t *testing.T) { run(t, dir, seed) })
		})
	}
}

// Dir is a temporary directory without a disk below it where there is one.
func Dir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "fgw-seed-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
