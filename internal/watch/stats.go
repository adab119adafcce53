package watch

import (
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Stats is a snapshot of all roots, in the order of the options.
type Stats struct{ Roots []RootStats }

// RootStats is a snapshot of one root. Counters count since the start of the process.
type RootStats struct {
	Watch, Path string
	// Available: the root can be listed. Reason and Detail say why not, or, with Available, why there are no events.
	Available bool
	Reason    attachment.Code
	Detail    string
	Since     time.Time
	// Watches is how many directories give events now. Dirs and NotWatched are those that the last complete scan found,
	// and those of them that give none.
	Watches, Dirs, NotWatched int
	// LastScan is the end of the last complete scan, zero before the first; LastScanTook is how long it took.
	LastScan     time.Time
	LastScanTook time.Duration
	// NotWatchedWhy is the reason of one of those.
	NotWatchedWhy string
	// Unchanged are those of Dirs that the last complete scan did not list, because nothing in them had changed.
	Unchanged int
	// Polled says why the root is scanned every few seconds; empty when it is not.
	Polled string
	// FoundByRescan counts candidates that a scan found and no event had announced although their directory was watched.
	FoundByRescan int64
	// Overflows counts how often events were lost and everything was scanned.
	Overflows int64
	// Observed are files that settle, are held back or are with the taker; Offered are those of them with the taker or on
	// the way there; Listed are paths that are only listed; Known are files that stay in place.
	Observed, Offered, Listed, Known int
	// Left is how many paths the last complete scan left to a later one because a limit was reached.
	Left int
}

// Stats returns a snapshot. It does not wait for any file system.
func (w *Watcher) Stats() Stats {
	s := Stats{Roots: make([]RootStats, 0, len(w.trees))}
	for _, t := range w.trees {
		s.Roots = append(s.Roots, t.snapshot())
	}
	return s
}

func (t *tree) snapshot() RootStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Watch, s.Path = t.root.Name, t.root.Path
	s.Available, s.Reason, s.Detail, s.Since = t.available(), t.state.code, t.state.detail, t.state.since
	s.Observed, s.Offered, s.Listed = t.count[fresh]+t.count[held], len(t.offered), t.count[listed]
	s.Known = len(t.stays.marks)
	return s
}
