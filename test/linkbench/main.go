// Command linkbench measures how much of a bad link a transfer uses: the real daemon sends one file to the real server
// through a link with a round trip, a rate, resets and blackholes, and curl uploads the same file whole through a link of the
// same kind, in the same minute. It asserts nothing; `make linkbench` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// conditions is one kind of link.
type conditions struct {
	rtt   time.Duration
	rate  int64   // bytes per second
	reset float64 // probability that a connection breaks, for each MiB that passes
	hole  time.Duration
}

func mbit(n float64) int64 { return int64(n * 1e6 / 8) }

// links are the kinds that are measured.
func links() []conditions {
	const ms = time.Millisecond
	return []conditions{
		{rtt: 20 * ms, rate: mbit(100)}, {rtt: 100 * ms, rate: mbit(20)}, {rtt: 300 * ms, rate: mbit(20)},
		{rtt: 600 * ms, rate: mbit(20)}, {rtt: 600 * ms, rate: mbit(100)}, {rtt: 1200 * ms, rate: mbit(10)},
		{rtt: 600 * ms, rate: mbit(1)}, {rtt: 300 * ms, rate: mbit(0.064)},
		{rtt: 100 * ms, rate: mbit(10), reset: 0.05}, {rtt: 600 * ms, rate: mbit(20), reset: 0.05},
		{rtt: 100 * ms, rate: mbit(10), hole: 20 * time.Second},
	}
}

func (c conditions) String() string {
	parts := []string{fmt.Sprintf("%d ms", c.rtt.Milliseconds()), fmt.Sprintf("%g Mbit/s", float64(c.rate)*8/1e6)}
	if c.reset > 0 {
		parts = append(parts, fmt.Sprintf("%g %% resets per MiB", 100*c.reset))
	}
	if c.hole > 0 {
		parts = append(parts, fmt.Sprintf("blackhole of %s half-way", c.hole))
	}
	return strings.Join(parts, ", ")
}

// size is that of a file that takes the link so long.
func (c conditions) size(seconds int64) int64 { return max(c.rate*seconds, 256<<10) }

func main() {
	seconds := flag.Int64("seconds", 15, "how long the file would take the bare link")
	uplink := flag.String("uplink", "", "lines for the daemon's [uplink], separated by semicolons")
	only := flag.String("only", "", "measure only links whose description contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seconds, strings.ReplaceAll(*uplink, ";", "\n"), *only); err != nil {
		fmt.Fprintln(os.Stderr, "linkbench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seconds int64, uplink, only string) (err error) {
	base, err := os.MkdirTemp("", "fgwlink")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(base)) }()
	b, err := newBench(ctx, base, uplink)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	fmt.Println("| link | file | fieldgw: share of the link | sent of the file | curl -T: share of the link | tries |\n|---|---|---|---|---|---|")
	for i, c := range links() {
		if !strings.Contains(c.String(), only) {
			continue
		}
		if err := b.measure(ctx, filepath.Join(base, fmt.Sprint("file-", i)), c, c.size(seconds)); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}
