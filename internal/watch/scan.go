package watch

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// walkAll scans the whole root. Files that no event announced are counted when they are offered. A walk that is only
// periodic passes over directories that have not changed.
func (t *tree) walkAll(ctx context.Context) {
	began := t.now()
	t.walking++
	t.mu.Lock()
	if t.anew {
		t.forgetMedium()
	}
	s := &scanner{tree: t, ctx: ctx, deep: true, walk: true, missing: !t.left}
	s.lazy = !t.wanted && !t.left && !t.root.Poll && t.walking > 1 && t.lazy+1 < thoroughEvery
	t.wanted, t.full, t.left, t.walk = false, false, false, walkCount{}
	t.mu.Unlock()
	s.scan(t.top, t.root.Path)
	exchanged := t.exchanged()

	t.mu.Lock()
	defer t.mu.Unlock()
	t.polled()
	t.walkEnd = t.now()
	t.walkCost = t.walkEnd - began
	t.periodic = t.walkEnd + max(t.interval(), rescanFactor*t.walkCost)
	switch {
	case ctx.Err() != nil:
		return
	case exchanged || t.anew:
		// One half is of one medium, the rest of another, or of none. Nothing follows from what was not seen.
		t.wanted, t.anew = true, true
		return
	}
	if t.lazy++; !s.lazy {
		t.lazy = 0
		if t.available() {
			t.stays.sweep(t.walking)
		}
	}
	t.finishWalk()
}

// scanDirty scans the directories that events marked, each at its own pace. Only what is new below them is entered.
func (t *tree) scanDirty(ctx context.Context) {
	now := t.now()
	var due []*node
	t.mu.Lock()
	later := t.dirty[:0]
	for _, n := range t.dirty {
		switch {
		case n.gone:
			n.dirty = false
		case n.nextScan() <= now && !n.listing:
			n.dirty = false
			due = append(due, n)
		default:
			later = append(later, n)
		}
	}
	clear(t.dirty[len(later):])
	t.dirty = later
	t.mu.Unlock()
	for _, n := range due {
		if ctx.Err() != nil {
			return
		}
		if !n.gone {
			s := &scanner{tree: t, ctx: ctx}
			s.scan(n, t.pathOf(n))
		}
	}
}

func (t *tree) pathOf(n *node) string {
	if n.parent == nil {
		return t.root.Path
	}
	return join(t.root.Path, n.rel())
}

// scanner is one pass over a directory and, where that is asked for or the directory is new, over what lies below it.
type scanner struct {
	tree    *tree
	ctx     context.Context
	deep    bool // enter every directory, not only new ones
	walk    bool // part of a walk
	lazy    bool // pass over directories that have not changed
	missing bool // what is new should have been told by an event: scans before left nothing out
	visited int
	inner   time.Duration // spent below the directory at hand and on other work
}

// scan looks at one directory: is it there, is it the one that was there, is it watched, what is in it. The watch comes
// before the listing, so that whatever is made meanwhile is seen by one of the two.
func (s *scanner) scan(n *node, path string) {
	t := s.tree
	info, err := t.fs.Lstat(path)
	if err == nil && !info.IsDir() {
		err = unix.ENOTDIR
	}
	if err == nil && n.parent == nil {
		err = t.checkMarker()
	}
	if err != nil {
		t.missing(n, path, info, err)
		return
	}
	began := t.now()
	if !t.enter(s, n, path, info) {
		return
	}
	if s.lazy && n.unchanged() {
		s.pass(n, path)
		return
	}
	t.scans++
	number := t.scans
	outer := s.inner
	s.inner = 0
	n.listing = true
	err = t.fs.List(path, func(d fs.DirEntry) error { return s.visit(n, path, d, number) })
	n.listing = false
	whole := t.now() - began
	own := whole - s.inner
	s.inner = outer + whole
	t.leave(s, n, path, listing{began, own, number, err})
}

// pass leaves a directory unlisted and looks at those in it.
func (s *scanner) pass(n *node, path string) {
	t := s.tree
	t.mu.Lock()
	t.walk.unchanged++
	t.readable(n)
	kids := slices.Collect(maps.Values(n.kids))
	t.mu.Unlock()
	for _, kid := range kids {
		if s.breathe() != nil || n.gone {
			return
		}
		if !kid.gone {
			s.scan(kid, join(path, kid.name))
		}
	}
}

// listing is how a listing of one directory went.
type listing struct {
	began, cost time.Duration
	number      uint64
	err         error
}

// missing notes that a directory is not there, or is something else. Nothing more is concluded from it.
func (t *tree) missing(n *node, path string, info fs.FileInfo, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if parent := n.parent; parent != nil {
		t.drop(n, path)
		if info == nil && !durable.IsNotExist(err) {
			t.listDirectory(parent, n.name, attachment.NotTakenUnreadable, err.Error(), n.scan)
		}
		return
	}
	detail := "it does not exist"
	switch {
	case errors.Is(err, errNoMarker):
		detail = "the card is not mounted: " + attachment.Printable(t.root.Marker) + " is missing"
	case info != nil && info.Mode()&fs.ModeSymlink != 0:
		detail = "it is a symbolic link, which is not followed: name the directory itself"
	case info != nil:
		detail = "it is not a directory"
	case !durable.IsNotExist(err):
		detail = cause(err)
	}
	t.drop(n, path)
	t.top = newNode(nil, "")
	t.unavailable(attachment.NotTakenUnavailable, detail)
}

// enter sees to it that the directory is the one known and that it is watched; false when it is not to be listed.
func (t *tree) enter(s *scanner, n *node, path string, info fs.FileInfo) bool {
	id := inodeOf(info)
	if other := t.registry.holder(id); other != "" && other != path {
		if t.sameDirectory(path, other) {
			t.twice(n, path, other)
			return false
		}
		t.registry.release(other)
	}
	medium := n.medium
	switch {
	case n.id == id:
	case n.parent != nil && n.parent.id.device == id.device:
		medium = n.parent.medium
	default:
		medium = t.medium(path)
	}
	t.mu.Lock()
	if n.id != id {
		// Another directory, if one was known here: it need not wait for that one's pace.
		n.id, n.medium, n.listed, n.ended, n.changed = id, medium, false, 0, 0
	}
	if changed := durable.ChangeTime(info); changed != n.changed {
		n.changed, n.changedSince = changed, t.now()
	}
	t.mu.Unlock()

	err := t.registry.add(path, id)

	t.mu.Lock()
	defer t.mu.Unlock()
	if watched := err == nil; watched != n.watched {
		n.watched = watched
		if watched {
			t.stats.Watches++
		} else {
			t.stats.Watches--
		}
	}
	if s.walk {
		t.walk.dirs++
		if medium.Foreign {
			t.walk.foreign = medium.Name
		}
	}
	switch {
	case err == nil, errors.Is(err, errNoSource):
		t.clearCondition(n, attachment.NotTakenNotWatched)
	case durable.IsNotExist(err), errors.Is(err, fs.ErrPermission):
		// The listing meets the same and says so.
	default:
		t.walk.unwatched++
		t.walk.why = noEvents(err)
		t.unwatched(n, t.walk.why)
	}
	return true
}

// sameDirectory reports whether two paths lead to one directory. Equal numbers alone do not prove it on filesystems that
// invent them, so the times must agree as well; a directory that changes between the two looks gets another chance.
func (t *tree) sameDirectory(path, other string) bool {
	for range 3 {
		a, err := t.fs.Lstat(path)
		if err != nil {
			return false
		}
		b, err := t.fs.Lstat(other)
		if err != nil || !b.IsDir() || inodeOf(a) != inodeOf(b) {
			return false
		}
		if a.ModTime().Equal(b.ModTime()) {
			return true
		}
	}
	return false
}

// twice refuses a directory that is reached by two paths, by a bind mount: its files would be taken under both.
func (t *tree) twice(n *node, path, other string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	detail := "the same directory as " + attachment.Printable(other) + ", where it is watched"
	if n.parent == nil {
		t.drop(n, path)
		t.top = newNode(nil, "")
		t.unavailable(attachment.NotTakenUnavailable, detail)
		return
	}
	parent, name, scan := n.parent, n.name, n.scan
	t.drop(n, path)
	t.listDirectory(parent, name, attachment.NotTakenSpecial, detail, scan)
}

// leave ends a listing: what was there before and was not seen any more is forgotten.
func (t *tree) leave(s *scanner, n *node, path string, l listing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.gone {
		return
	}
	n.ended, n.cost = t.now(), l.cost
	if l.err != nil {
		n.changed = 0 // what is in it is not known
	}
	switch err := l.err; {
	case err == nil:
		for _, e := range n.files {
			if e.scan < l.number && (e.phase != offered || t.next == e) {
				t.forget(e)
			}
		}
		for _, kid := range n.kids {
			if kid.scan < l.number {
				t.drop(kid, join(path, kid.name))
			}
		}
		n.began, n.listed = l.began, true
		t.readable(n)
	case s.ctx.Err() != nil:
	case durable.IsNotExist(err):
		if n.parent != nil {
			t.drop(n, path)
		}
	case errors.Is(err, fs.ErrPermission):
		t.unreadable(n, attachment.NotTakenPermission, "")
	default:
		t.unreadable(n, attachment.NotTakenUnreadable, cause(err))
	}
	if n.parent != nil && !n.watched && n.kids == nil && n.files == nil && !n.gone {
		// Nothing is remembered about it, so it need not be known either.
		t.drop(n, path)
	}
}
