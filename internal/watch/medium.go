package watch

import (
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
)

// mediumOf describes the filesystem of a directory; one that does not answer is trusted in nothing.
func (t *tree) mediumOf(path string) durable.Medium {
	m, err := t.fs.Medium(path)
	if err != nil {
		return durable.Medium{Name: "an unknown filesystem", CoarseTimes: true}
	}
	return m
}

// timesIn are the times that hold for the files of a directory.
func (t *tree) timesIn(n *node) times {
	at := t.times
	if n.medium.CoarseTimes {
		at.settle, at.quiet = max(at.settle, quietCoarse), max(at.quiet, quietCoarse)
	}
	return at
}

// checkMarker returns errNoMarker unless the file that proves the medium is there, or none is needed.
func (t *tree) checkMarker() error {
	if t.root.Marker == "" {
		return nil
	}
	info, err := t.fs.Lstat(join(t.root.Path, t.root.Marker))
	if err != nil || !info.Mode().IsRegular() {
		return errNoMarker
	}
	return nil
}

// isMarker reports whether a name in a directory is the marker.
func (t *tree) isMarker(n *node, name string) bool {
	return t.root.Marker != "" && relOf(n.rel(), name) == t.root.Marker
}

// exchanged reports whether another directory stands at the root than the one that a walk began with.
func (t *tree) exchanged() bool {
	t.mu.Lock()
	available := t.available()
	t.mu.Unlock()
	if !available {
		return false
	}
	info, err := t.fs.Lstat(t.root.Path)
	return err != nil || inodeOf(info) != t.top.id || t.checkMarker() != nil
}

// forgetMedium drops all that is known about files and directories: numbers of inodes and times mean something on one
// medium only. Called with t.mu held.
func (t *tree) forgetMedium() {
	t.drop(t.top, t.root.Path)
	t.top, t.stays, t.anew = newNode(nil, ""), newStays(t.limits.stays), false
}

// polled notes after a walk whether the root is scanned every few seconds, and why. Called with t.mu held.
func (t *tree) polled() {
	why := ""
	switch {
	case t.root.Poll:
		why = "as configured"
	case t.walk.foreign != "":
		why = t.walk.foreign + " does not tell what others change on it"
	}
	if why != t.stats.Polled && why != "" {
		t.log.Info("capture directory is scanned every few seconds", slog.String(logging.KeyPath, t.root.Path), slog.String(logging.KeyReason, why))
	}
	t.stats.Polled = why
}

// interval is between two periodic walks. A root that is not there costs next to nothing to look for, and nothing else tells
// that it was made again or that its marker came. Called with t.mu held.
func (t *tree) interval() time.Duration {
	if t.stats.Polled != "" || !t.available() {
		return min(t.rescan, pollInterval)
	}
	return t.rescan
}
