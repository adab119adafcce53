// Command watchcost measures what watching costs, on this machine and its filesystem: the idle daemon over many directories,
// and the watcher alone over a tree of very many files, with the time until a new one among them is offered. It asserts
// nothing; `make watchcost` runs both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	dirs := flag.Int("dirs", 10_000, "directories that the idle daemon watches; 0: leave that out")
	idle := flag.Duration("idle", 5*time.Minute, "how long it is watched")
	files := flag.Int("files", 1_000_000, "files in the tree; 0: leave that out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dirs, *idle, *files); err != nil {
		fmt.Fprintln(os.Stderr, "watchcost:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dirs int, idle time.Duration, files int) (err error) {
	base, err := os.MkdirTemp("", "fgwcost")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(base)) }()
	if dirs > 0 {
		if err := idleCost(ctx, filepath.Join(base, "idle"), dirs, idle); err != nil {
			return err
		}
	}
	if files > 0 {
		return crowd(ctx, filepath.Join(base, "crowd"), files)
	}
	return nil
}
