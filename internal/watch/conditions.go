package watch

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/logging"
)

// cause words an error without the path, which stands beside it and may hold bytes that are no text.
func cause(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Op + ": " + at.Err.Error()
	}
	return attachment.Printable(err.Error())
}

// Everything here is called with t.mu held. A directory below the root shows its condition as an entry of its parent; the
// root's is the state of the tree.

// available reports whether the root can be listed. Without events it still can.
func (t *tree) available() bool {
	return t.state.code == "" || t.state.code == attachment.NotTakenNotWatched
}

// unavailable notes that the root cannot be listed.
func (t *tree) unavailable(code attachment.Code, detail string) {
	if t.available() || t.state.code != code || t.state.detail != detail {
		t.log.Warn("capture directory is not available", slog.String(logging.KeyPath, t.root.Path),
			slog.String(logging.KeyReason, string(code)), slog.String(logging.KeyErr, detail))
	}
	t.setState(code, detail)
	t.periodic = min(t.periodic, t.now()+pollInterval)
}

// readable notes that a directory was listed completely.
func (t *tree) readable(n *node) {
	if n.parent != nil {
		t.clearCondition(n, attachment.NotTakenPermission, attachment.NotTakenUnreadable)
		return
	}
	if !t.available() {
		t.log.Info("capture directory is available", slog.String(logging.KeyPath, t.root.Path))
	}
	if n.watched {
		t.setState("", "")
	} else {
		t.setState(attachment.NotTakenNotWatched, t.deaf)
	}
}

// unreadable notes that a directory cannot be listed, or not to its end.
func (t *tree) unreadable(n *node, code attachment.Code, detail string) {
	if n.parent == nil {
		t.unavailable(code, detail)
		return
	}
	t.listDirectory(n.parent, n.name, code, detail, n.scan)
}

// unwatched notes that a directory gives no events and is only found by the periodic scan.
func (t *tree) unwatched(n *node, detail string) {
	if n.parent == nil {
		t.deaf = detail
		return
	}
	t.listDirectory(n.parent, n.name, attachment.NotTakenNotWatched, detail, n.scan)
}

func (t *tree) clearCondition(n *node, codes ...attachment.Code) {
	if n.parent == nil {
		return
	}
	if e := n.parent.files[n.name]; e != nil && e.directory && slices.Contains(codes, e.code) {
		t.forget(e)
	}
}

// noSource notes that nothing below the root is watched. What hinders a root more is not covered up.
func (t *tree) noSource(detail string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deaf = detail
	if t.available() {
		t.setState(attachment.NotTakenNotWatched, detail)
	}
}

// setState changes what is shown about the root; an empty code means that all is well.
func (t *tree) setState(code attachment.Code, detail string) {
	if t.state.code != code {
		t.state.since = t.wall()
	}
	t.state.code, t.state.detail = code, detail
}

// finishWalk publishes what a complete walk counted, and says when watching gets worse or better.
func (t *tree) finishWalk() {
	before := t.stats.NotWatched
	t.stats.Dirs, t.stats.NotWatched, t.stats.Left = t.walk.dirs, t.walk.unwatched, t.walk.left
	t.stats.NotWatchedWhy, t.stats.Unchanged = t.walk.why, t.walk.unchanged
	t.stats.LastScan, t.stats.LastScanTook = t.wall(), t.walkCost
	switch {
	case before == 0 && t.stats.NotWatched > 0:
		t.log.Warn("directories are not watched and only scanned from time to time", slog.Int(logging.KeyCount, t.stats.NotWatched),
			slog.String(logging.KeyReason, t.stats.NotWatchedWhy))
	case before > 0 && t.stats.NotWatched == 0:
		t.log.Info("all directories are watched again")
	}
}
