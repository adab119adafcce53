package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/watch"
)

// perDir is how many of the files lie in one directory.
const perDir = 10_000

// crowd runs the watcher alone over very many files that all stay in place, and prints how long new files take to be
// offered: while the first scan is under way, when every file was offered once, and while a scan of everything is under way.
func crowd(ctx context.Context, dir string, files int) error {
	began := time.Now()
	for i := range files {
		if i%perDir == 0 {
			if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(i/perDir)), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i/perDir), fmt.Sprintf("DSC_%07d.JPG", i)), []byte("x"), 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%d files of one byte made in %s\n", files, time.Since(began).Round(time.Second))
	w, err := watch.New(watch.Options{Roots: []watch.Root{{Name: "crowd", Path: dir, Recursive: true, Settle: 100 * time.Millisecond}}})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	fresh, offered := make(chan string), make(chan int, 1)
	go func() {
		n := 0
		for c := range w.Candidates() {
			w.Done(c, watch.Disposition{Kind: watch.Stays})
			if strings.HasPrefix(filepath.Base(c.RelPath), "new-") {
				fresh <- c.RelPath
			} else if n++; n == files {
				offered <- n
			}
		}
	}()
	began = time.Now()
	err = errors.Join(
		arrive(ctx, dir, "first-scan", fresh, w),
		settle(ctx, began, offered, w),
		arrive(ctx, dir, "all-known", fresh, w),
		rescan(ctx, dir, fresh, w),
	)
	stop()
	return errors.Join(err, <-ended)
}

// arrive makes a file in a new directory and one in a full one, and waits until both are offered.
func arrive(ctx context.Context, dir, when string, fresh <-chan string, w *watch.Watcher) error {
	for _, place := range []string{"record-" + when, "0"} {
		if err := os.MkdirAll(filepath.Join(dir, place), 0o755); err != nil {
			return err
		}
		began, scan := time.Now(), w.Stats().Roots[0].LastScan
		if err := os.WriteFile(filepath.Join(dir, place, "new-"+when), []byte("x"), 0o644); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case name := <-fresh:
			s := w.Stats().Roots[0]
			fmt.Printf("%-11s %-30s offered after %s (scan ended meanwhile: %v); known %d, observed %d, RSS %s\n",
				when, name, time.Since(began).Round(time.Millisecond), s.LastScan != scan, s.Known, s.Observed, rss())
		}
	}
	return nil
}

func settle(ctx context.Context, began time.Time, offered <-chan int, w *watch.Watcher) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(30 * time.Second):
			s := w.Stats().Roots[0]
			fmt.Printf("%s: known %d, observed %d, left to a later scan %d, last scan took %s, RSS %s\n", time.Since(began).Round(time.Second),
				s.Known, s.Observed, s.Left, s.LastScanTook.Round(time.Millisecond), rss())
		case n := <-offered:
			fmt.Printf("%d files offered within %s; RSS %s\n", n, time.Since(began).Round(time.Second), rss())
			return nil
		}
	}
}

func rescan(ctx context.Context, dir string, fresh <-chan string, w *watch.Watcher) error {
	w.Rescan("")
	if err := arrive(ctx, dir, "rescan", fresh, w); err != nil {
		return err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	s := w.Stats().Roots[0]
	fmt.Printf("a scan of everything took %s; %d found by rescan, %d overflows; heap in use %d MiB, RSS %s\n",
		s.LastScanTook.Round(time.Millisecond), s.FoundByRescan, s.Overflows, mem.HeapInuse>>20, rss())
	return nil
}

// rss is the resident memory of this process (proc_pid_statm(5)).
func rss() string {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err.Error()
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.1f MiB", float64(pages)*float64(os.Getpagesize())/(1<<20))
}
