package watch

import (
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// node is a directory of the tree that is watched, or leads to one that is, or holds paths under observation. It has its
// own name only, so that a tree of any depth costs little; paths are put together where they are needed.
type node struct {
	parent *node // nil for the root
	name   string
	depth  int
	kids   map[string]*node
	files  map[string]*entry

	id      inode
	medium  durable.Medium // of the directory, and of the files in it
	watched bool
	gone    bool   // taken out of the tree
	scan    uint64 // the scan of the parent that saw it last

	listing bool // its entries are being visited, and not those of a directory in it

	dirty  bool          // in the tree's queue of directories to scan
	marked time.Duration // latest event
	began  time.Duration // start of the latest complete listing
	listed bool          // there was one
	ended  time.Duration // end of the latest listing, complete or not
	cost   time.Duration // how long it took

	// changed is the change time when it was looked at last, changedSince the first look that saw it; 0: not known.
	changed      int64
	changedSince time.Duration

	// doubt is where an event should have announced this directory, since doubtSince, if a rescan was what found it.
	doubt      *node
	doubtSince time.Duration
}

func newNode(parent *node, name string) *node {
	n := &node{parent: parent, name: name, marked: -1}
	if parent != nil {
		n.depth = parent.depth + 1
	}
	return n
}

// unchanged reports whether nothing was made, renamed or removed in the directory since it was listed completely: its
// change time is the same as for a while before that listing. Two looks are compared with each other, never with a clock.
func (n *node) unchanged() bool {
	return n.listed && n.watched && !n.dirty && n.files == nil && n.medium.DirTimes &&
		n.changed != 0 && n.began-n.changedSince >= dirTimeDoubt
}

// rel is the path below the root, "" for the root itself.
func (n *node) rel() string {
	if n.parent == nil {
		return ""
	}
	names := make([]string, n.depth)
	for at := n; at.parent != nil; at = at.parent {
		names[at.depth-1] = at.name
	}
	return strings.Join(names, "/")
}

// relOf is the path below the root of an entry of the directory whose own is dir.
func relOf(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// find follows a relative path; nil when it leaves what is known.
func (n *node) find(rel string) *node {
	for rel != "" && n != nil {
		var first string
		first, rel, _ = strings.Cut(rel, "/")
		n = n.kids[first]
	}
	return n
}

// nextScan is when the directory may be scanned again.
func (n *node) nextScan() time.Duration {
	if n.ended == 0 {
		return 0
	}
	return n.ended + max(pace, paceFactor*n.cost)
}

// phase is where an entry is on its way; never persisted.
type phase int

const (
	settling phase = iota // looked at again at due
	ready                 // in the queue for probing and offering
	offered               // in the channel or with the taker
	parked                // looked at again at due, or, without one, when a scan sees it
	passive               // only listed
)

// class is what an entry counts against.
type class int

const (
	fresh class = iota
	held
	listed
	classes
)

// entry is a path under observation, or one that is listed as not taken.
type entry struct {
	dir   *node
	name  string
	phase phase
	class class
	scan  uint64 // the scan that saw it last
	// walked: a scan of everything found it, not one that an event caused.
	walked bool
	// queued: it stands in the tree's queue, whatever its phase is now.
	queued bool

	seen observation
	// altered is the change time (st_ctim) that the last look before the offer saw.
	altered int64
	// changed: while it was offered, it was seen with another identity.
	changed bool
	// again: while it was offered, the taker asked for another offer.
	again bool
	// answered: the code is the taker's and stands until the file changes or is taken.
	answered bool
	// directory: a condition of a directory, not of a file.
	directory bool

	code   attachment.Code
	detail string
	since  time.Time // wall clock, for showing

	due   time.Duration
	index int // in the agenda; -1 when not in it

	// A rescan found it: witness is where an event should have announced it, at before or later.
	witness *node
	before  time.Duration
}

// agenda is a heap (container/heap) of the entries that have a due time, earliest first.
type agenda []*entry

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].due < a[j].due }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(x any) {
	e := x.(*entry)
	e.index = len(*a)
	*a = append(*a, e)
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	e.index = -1
	return e
}
