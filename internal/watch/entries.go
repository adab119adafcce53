package watch

import (
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Everything here is called with t.mu held, by the loop.

// place counts an entry against a class. Without room the entry is forgotten, for a later scan to find again.
func (t *tree) place(e *entry, c class) bool {
	if e.class == c {
		return true
	}
	limit := [classes]int{t.limits.fresh, t.limits.held, t.limits.listed}[c]
	if t.count[c] >= limit {
		t.postpone(c)
		t.forget(e)
		return false
	}
	t.count[e.class]--
	t.count[c]++
	e.class = c
	return true
}

// postpone notes that a path is left to a later scan, which must not conclude that an event was missed.
func (t *tree) postpone(c class) {
	t.walk.left++
	t.full = t.full || c == fresh
	t.left = true
}

// newEntry puts a path under observation or on the list; nil when there is no room.
func (t *tree) newEntry(n *node, name string, c class, scan uint64) *entry {
	limit := [classes]int{t.limits.fresh, t.limits.held, t.limits.listed}[c]
	if t.count[c] >= limit {
		t.postpone(c)
		return nil
	}
	t.count[c]++
	e := &entry{dir: n, name: name, class: c, scan: scan, index: -1}
	if n.files == nil {
		n.files = map[string]*entry{}
	}
	n.files[name] = e
	return e
}

// forget drops an entry. What is with the taker stays known until it is answered.
func (t *tree) forget(e *entry) {
	t.unschedule(e)
	if e.phase == offered {
		delete(t.offered, relOf(e.dir.rel(), e.name))
		if t.next == e {
			t.next = nil
		}
	}
	// The phase keeps the queue from following an entry that is not there any more.
	e.phase = passive
	t.count[e.class]--
	if e.dir.files[e.name] == e {
		delete(e.dir.files, e.name)
		if len(e.dir.files) == 0 {
			e.dir.files = nil
		}
	}
}

// show sets the reason that people see. Its time is kept while the reason stays the same.
func (t *tree) show(e *entry, code attachment.Code, detail string) {
	if e.code != code {
		e.since = t.wall()
	}
	e.code, e.detail = code, detail
}

// restart begins the observation of a file anew, because it is new or has changed.
func (t *tree) restart(e *entry, now time.Duration, o observation) {
	if e.phase == offered {
		delete(t.offered, relOf(e.dir.rel(), e.name))
		if t.next == e {
			t.next = nil
		}
	}
	e.phase, e.changed, e.answered = settling, false, false
	e.seen = o
	if !t.place(e, fresh) {
		return
	}
	t.show(e, attachment.NotTakenSettling, "")
	t.schedule(e, now+t.timesIn(e.dir).settle)
}

// park keeps a file back for a reason until due, or without a time until a scan sees it.
func (t *tree) park(e *entry, c class, code attachment.Code, detail string, due time.Duration) {
	if !t.place(e, c) {
		return
	}
	e.phase, e.answered = parked, false
	t.show(e, code, detail)
	if due > 0 {
		t.schedule(e, due)
	} else {
		t.unschedule(e)
	}
}

// list shows a path that will not become a candidate as it is.
func (t *tree) list(n *node, name string, code attachment.Code, detail string, size int64, scan uint64) *entry {
	e := n.files[name]
	if e != nil && e.phase != passive {
		if e.phase == offered && t.next != e {
			return nil
		}
		t.forget(e)
		e = nil
	}
	if e == nil {
		if e = t.newEntry(n, name, listed, scan); e == nil {
			return nil
		}
		e.phase = passive
	}
	e.scan, e.directory = scan, false
	e.seen.id.Size = size
	t.show(e, code, detail)
	return e
}

// listDirectory shows the condition of a directory below the root.
func (t *tree) listDirectory(n *node, name string, code attachment.Code, detail string, scan uint64) {
	if e := t.list(n, name, code, detail, 0, scan); e != nil {
		e.directory = true
	}
}

// drop takes a directory out of the tree, with everything below it.
func (t *tree) drop(n *node, path string) {
	for _, kid := range n.kids {
		t.drop(kid, join(path, kid.name))
	}
	for _, e := range n.files {
		if e.phase != offered || t.next == e {
			t.forget(e)
		}
	}
	n.gone = true
	if n.watched {
		n.watched = false
		t.stats.Watches--
	}
	t.registry.release(path)
	if n.parent != nil && n.parent.kids[n.name] == n {
		delete(n.parent.kids, n.name)
		if len(n.parent.kids) == 0 {
			n.parent.kids = nil
		}
	}
}
