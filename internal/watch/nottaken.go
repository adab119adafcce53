package watch

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// NotTaken is a path that is not an attachment, or not yet, and why. A file that is complete and waits for the taker has
// the code queued.
type NotTaken struct {
	Watch string
	// Path is absolute.
	Path   attachment.Name
	Code   attachment.Code
	Detail string
	// Since is when the reason began, by the wall clock.
	Since time.Time
	// Size is the file's size in bytes when it was last looked at; 0 for what is not a regular file.
	Size int64
}

// Pages of NotTaken.
const (
	defaultPage = 100
	largestPage = 1000
)

// NotTaken returns a page of what was not taken, sorted by the bytes of the path, and the cursor of the next page, which
// is empty at the end. An empty cursor, or one that is not understood, begins at the start. A limit outside 1 to 1000
// means 100. The list is what the last scans and events showed; it is not durable.
func (w *Watcher) NotTaken(limit int, cursor string) ([]NotTaken, string) {
	if limit < 1 || limit > largestPage {
		limit = defaultPage
	}
	p := page{limit: limit, after: decodeCursor(cursor)}
	for _, t := range w.trees {
		t.collect(&p)
	}
	return p.finish()
}

// key is the order of the list: by path, then by watch.
type key struct{ path, watch string }

func (k key) compare(o key) int {
	return cmp.Or(strings.Compare(k.path, o.path), strings.Compare(k.watch, o.watch))
}

// page collects the first entries after a key, in any order, and never holds many more than it will return.
type page struct {
	limit int
	after key
	found []NotTaken
	// more: there are entries after last, which is the greatest of a full page so far.
	more bool
	last key
}

func (n NotTaken) key() key { return key{n.Path.Exact(), n.Watch} }

func (p *page) add(k key, item func() NotTaken) {
	if k.compare(p.after) <= 0 || p.more && k.compare(p.last) > 0 {
		return
	}
	p.found = append(p.found, item())
	if len(p.found) >= 2*p.limit+breath {
		p.trim()
	}
}

func (p *page) trim() {
	slices.SortFunc(p.found, func(a, b NotTaken) int { return a.key().compare(b.key()) })
	if len(p.found) > p.limit {
		p.more = true
		clear(p.found[p.limit:])
		p.found = p.found[:p.limit]
		p.last = p.found[p.limit-1].key()
	}
}

func (p *page) finish() ([]NotTaken, string) {
	p.trim()
	if !p.more {
		return p.found, ""
	}
	return p.found, encodeCursor(p.last)
}

// A cursor is the last key in base64: paths are not always text. No path holds the zero byte that ends it.
func encodeCursor(k key) string {
	return base64.RawURLEncoding.EncodeToString([]byte(k.path + "\x00" + k.watch))
}

func decodeCursor(cursor string) key {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return key{}
	}
	path, watch, _ := strings.Cut(string(raw), "\x00")
	return key{path, watch}
}

func (t *tree) collect(p *page) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.code != "" {
		p.add(key{t.root.Path, t.root.Name}, func() NotTaken {
			return NotTaken{
				Watch: t.root.Name, Path: attachment.NameOf(t.root.Path),
				Code: t.state.code, Detail: t.state.detail, Since: t.state.since,
			}
		})
	}
	t.collectBelow(p, t.top, t.root.Path)
}

func (t *tree) collectBelow(p *page, n *node, path string) {
	for name, e := range n.files {
		at := join(path, name)
		p.add(key{at, t.root.Name}, func() NotTaken {
			return NotTaken{
				Watch: t.root.Name, Path: attachment.NameOf(at), Code: e.code, Detail: e.detail, Since: e.since,
				Size: e.seen.id.Size,
			}
		})
	}
	for name, kid := range n.kids {
		t.collectBelow(p, kid, join(path, name))
	}
}
