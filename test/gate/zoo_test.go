package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/test/rig"
)

var (
	zooRounds = flag.Int("gate.zoo", 1, "rounds of the writer zoo")
	zooLarge  = flag.Int64("gate.zoo-large", 64<<20, "bytes of the large file in the writer zoo")
)

// zooSettle is longer than any pause that a writer makes between closing a file and opening it again, on a busy machine
// as well.
const zooSettle = 1500 * time.Millisecond

// The ways in which programs make files, all at once and under load, some with the file open and silent for longer than
// the settle time: every file is taken exactly once, with the content that its writer left in the end.
func TestWriterZoo(t *testing.T) {
	for round := range *zooRounds {
		for _, adopt := range []string{"move", "copy"} {
			t.Run(fmt.Sprintf("%02d-%s", round, adopt), func(t *testing.T) {
				zooRound(t, adopt, *seed+uint64(round))
			})
		}
	}
}

func zooRound(t *testing.T, adopt string, seed uint64) {
	r := newRig(t, rig.Options{Adopt: adopt, Settle: zooSettle.String()})
	must(t, "start", r.StartDaemon(t.Context()))
	// What is asked here is what was taken; nothing needs to be sent.
	if _, stderr, code, err := r.Ctl(t.Context(), "pause"); err != nil || code != 0 {
		t.Fatalf("pause: exit %d, %v: %s", code, err, stderr)
	}
	stop := load(t)
	defer stop()

	var (
		mu     sync.Mutex
		want   = map[string]string{} // by writer and base name, which no writer uses twice
		group  sync.WaitGroup
		source = t.TempDir()
	)
	for i, w := range zoo {
		if reason := w.missing(); reason != "" {
			t.Logf("NOT RUN: %s: %s", w.name, reason)
			continue
		}
		group.Go(func() {
			writer := &writer{
				t: t, ctx: t.Context(), rnd: rand.New(rand.NewPCG(seed, uint64(i))),
				source: filepath.Join(source, w.name), dir: filepath.Join(r.Capture(), w.name), left: map[string]string{},
			}
			if err := errors.Join(os.MkdirAll(writer.source, 0o755), os.MkdirAll(writer.dir, 0o755)); err != nil {
				t.Error(err)
				return
			}
			if err := w.write(writer); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for name, digest := range writer.left {
				want[filepath.Join(w.name, name)] = digest
			}
		})
	}
	group.Wait()
	takenOnce(t, r, want)
}

// takenOnce waits until as many files are taken as were written, gives what should not be taken time to show, and compares.
func takenOnce(t *testing.T, r *rig.Rig, want map[string]string) {
	t.Helper()
	got := map[string][]string{}
	look := func() (bool, error) {
		clear(got)
		items, err := r.Items(t.Context())
		for _, i := range items {
			key := filepath.Join(i.Parent.LocalID.Exact(), i.Filename.Exact())
			got[key] = append(got[key], i.SHA256.String())
		}
		return len(items) >= len(want), err
	}
	err := rig.Until(t.Context(), 3*time.Minute, "custody of every file", look)
	<-time.After(2 * zooSettle)
	if _, lerr := look(); lerr != nil {
		t.Error(lerr)
	}
	for _, rel := range slices.Sorted(maps.Keys(want)) {
		switch {
		case len(got[rel]) == 0:
			t.Errorf("%s was not taken", rel)
		case len(got[rel]) > 1 || got[rel][0] != want[rel]:
			t.Errorf("%s was taken as %v, and its content is %s", rel, got[rel], want[rel])
		}
		delete(got, rel)
	}
	for rel, digests := range got {
		t.Errorf("%s was taken as %v, and nobody left such a file", rel, digests)
	}
	must(t, "take", err)
	t.Logf("%d files taken once, whole", len(want))
}

// load keeps the processors and the disk busy until it is told to stop.
func load(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	dir := t.TempDir()
	for n := range runtime.NumCPU() {
		group.Go(func() {
			block := make([]byte, 1<<20)
			for i := 0; ctx.Err() == nil; i++ {
				sum := sha256.Sum256(block)
				copy(block, sum[:])
				if i%64 != 0 {
					continue
				}
				f, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
				if err == nil {
					_, err = f.Write(block)
					err = errors.Join(err, f.Sync(), f.Close())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func digestReader(r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return hex.EncodeToString(h.Sum(nil)), err
}
