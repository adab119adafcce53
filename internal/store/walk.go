package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// errStructure marks damage of the file's structure, found without bbolt.
var errStructure = errors.New("bad structure")

const (
	maxLevels = 20  // of one tree: with two entries a page, the least there can be, a million pages
	maxDamage = 100 // structural findings after which a walk gives up
	stopEvery = 256 // pages between two questions to stop
)

// walker reads one transaction's state of the file, page by page, with pread: whatever the bytes are, it neither faults
// nor loops. It visits every page once and every key in order.
type walker struct {
	r    io.ReaderAt
	meta metaPage
	// visit is called for every value of every bucket, with slices that are valid only inside it.
	visit func(bucket string, key, stored []byte)
	// stop is asked now and then; its error ends the walk. Nil: never.
	stop func() error

	used, free bitmap
	bufs       [2 * maxLevels][]byte // the root bucket's levels, then those of the bucket being read
	pages      uint64
	buckets    map[string]uint64 // keys found in each
	damage     []string
	leaked     uint64 // pages that nothing refers to
}

type bitmap []uint64

func newBitmap(n uint64) bitmap    { return make(bitmap, n/64+1) }
func (b bitmap) has(i uint64) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitmap) set(i uint64)      { b[i/64] |= 1 << (i % 64) }
func (b bitmap) test(i, n uint64) bool { // reports whether one of n bits from i on is set
	for ; n > 0; i, n = i+1, n-1 {
		if b.has(i) {
			return true
		}
	}
	return false
}

func newWalker(r io.ReaderAt, m metaPage, visit func(bucket string, key, stored []byte)) *walker {
	return &walker{
		r: r, meta: m, visit: visit,
		used: newBitmap(m.limit), free: newBitmap(m.limit),
		buckets: map[string]uint64{},
	}
}

// errTooMuch ends a walk that has found enough.
var errTooMuch = errors.New("too much damage")

func (w *walker) report(format string, args ...any) error {
	w.damage = append(w.damage, fmt.Sprintf(format, args...))
	if len(w.damage) >= maxDamage {
		return errTooMuch
	}
	return nil
}

// walk reads everything. Damage is in w.damage afterwards; an error is a failed read or that of stop.
func (w *walker) walk() error {
	err := w.freelist()
	if err == nil {
		err = w.tree(w.meta.root, 1, nil, nil, w.bucket)
	}
	if errors.Is(err, errTooMuch) {
		return nil
	}
	if err != nil || len(w.damage) > 0 {
		return err
	}
	for id := uint64(firstPage); id < w.meta.limit; id++ {
		if !w.used.has(id) && !w.free.has(id) {
			w.leaked++
		}
	}
	return nil
}

// load reads the page id with its overflow into the buffer of its level. ok is false when it was reported as damaged.
func (w *walker) load(id uint64, level int) (p page, ok bool, err error) {
	if w.stop != nil && w.pages%stopEvery == 0 {
		if err := w.stop(); err != nil {
			return page{}, false, err
		}
	}
	w.pages++
	if id < firstPage || id >= w.meta.limit {
		return page{}, false, w.report("page %d is outside of the %d in use", id, w.meta.limit)
	}
	size := int(w.meta.pageSize)
	if len(w.bufs[level]) < size {
		w.bufs[level] = make([]byte, size)
	}
	off := int64(id) * w.meta.pageSize
	if _, err := w.r.ReadAt(w.bufs[level][:size], off); err != nil {
		return page{}, false, fmt.Errorf("read page %d: %w", id, err)
	}
	span := uint64(order.Uint32(w.bufs[level][12:])) + 1
	if span > w.meta.limit-id || span > maxSpan/uint64(size) {
		return page{}, false, w.report("page %d claims %d pages", id, span)
	}
	if span > 1 {
		whole := size * int(span)
		if len(w.bufs[level]) < whole {
			w.bufs[level] = append(w.bufs[level][:size], make([]byte, whole-size)...)
		}
		if _, err := w.r.ReadAt(w.bufs[level][size:whole], off+int64(size)); err != nil {
			return page{}, false, fmt.Errorf("read page %d: %w", id, err)
		}
		size = whole
	}
	p = pageAt(w.bufs[level][:size])
	switch {
	case p.id != id:
		return page{}, false, w.report("page %d says that it is page %d", id, p.id)
	case w.used.test(id, span):
		return page{}, false, w.report("page %d is used twice", id)
	case w.free.test(id, span):
		return page{}, false, w.report("page %d is used and free", id)
	}
	for i := range span {
		w.used.set(id + i)
	}
	return p, true, nil
}

// freelist reads the list of free pages, before anything else so that load can tell a page that is used and free.
func (w *walker) freelist() error {
	if w.meta.freelist == noFreelist {
		return w.report("there is no list of free pages")
	}
	p, ok, err := w.load(w.meta.freelist, 0)
	if !ok {
		return err
	}
	if p.flags != flagFreelist {
		return w.report("page %d is of kind %#x, the list of free pages should be there", p.id, p.flags)
	}
	ids, count := p.buf[pageHeader:], uint64(p.count)
	if count == manyFree {
		count, ids = order.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return w.report("page %d: %d free pages do not fit into it", p.id, count)
	}
	last := uint64(firstPage - 1)
	for i := range count {
		id := order.Uint64(ids[i*8:])
		if id <= last || id >= w.meta.limit || w.used.has(id) {
			if err := w.report("page %d: free page %d after %d of %d", p.id, id, last, w.meta.limit); err != nil {
				return err
			}
			continue
		}
		w.free.set(id)
		last = id
	}
	return nil
}

// tree walks the tree below page id, whose keys begin with low and lie below high; nil is no bound.
func (w *walker) tree(id uint64, level int, low, high []byte, leaf func(element) error) error {
	if level%maxLevels == 0 {
		return w.report("page %d: the tree is deeper than %d levels", id, maxLevels)
	}
	p, ok, err := w.load(id, level)
	if !ok {
		return err
	}
	if p.flags == flagLeaf {
		return w.leaf(p, low, high, leaf)
	}
	if p.flags != flagBranch || p.count == 0 {
		return w.report("page %d is of kind %#x with %d entries, a branch or leaf should be there", id, p.flags, p.count)
	}
	e, err := w.first(p, low, high)
	for i := 0; i < p.count && err == nil && e != nil; i++ {
		var next *element
		if i+1 < p.count {
			if next, err = w.entry(p, i+1, e.key, high); err != nil || next == nil {
				return err
			}
		}
		upper := high
		if next != nil {
			upper = next.key
		}
		err = w.tree(e.child, level+1, e.key, upper, leaf)
		e = next
	}
	return err
}

// leaf hands every entry of a leaf page on.
func (w *walker) leaf(p page, low, high []byte, leaf func(element) error) error {
	if p.count == 0 && low != nil {
		return w.report("page %d is an empty leaf of a larger tree", p.id)
	}
	for i := range p.count {
		var e *element
		var err error
		if i == 0 {
			e, err = w.first(p, low, high)
		} else {
			e, err = w.entry(p, i, low, high)
		}
		if err != nil || e == nil {
			return err
		}
		if err := leaf(*e); err != nil {
			return err
		}
		low = e.key
	}
	return nil
}

// first decodes the first entry of a page. Its key is the one by which the branch above knows the page: bbolt keeps them
// equal at every commit, and finds the entry to replace by it, so that another key there turns the next write into two
// references to one page.
func (w *walker) first(p page, low, high []byte) (*element, error) {
	e, err := w.entry(p, 0, nil, high)
	if e != nil && low != nil && !bytes.Equal(e.key, low) {
		return nil, w.report("page %d does not begin with the key under which it is filed", p.id)
	}
	return e, err
}

// entry decodes entry i of p and holds its key against its neighbours: above low, the one before it, and below high. A nil
// entry was reported.
func (w *walker) entry(p page, i int, low, high []byte) (*element, error) {
	e, ok := p.element(i)
	if !ok {
		return nil, w.report("page %d: entry %d points out of the page", p.id, i)
	}
	if bytes.Compare(e.key, low) <= 0 || high != nil && bytes.Compare(e.key, high) >= 0 {
		return nil, w.report("page %d: key %d is out of order", p.id, i)
	}
	return &e, nil
}

// bucket walks the bucket that an entry of the root tree describes.
func (w *walker) bucket(e element) error {
	name := string(e.key)
	if e.flags != elementIsBucket || len(e.value) < bucketHeader {
		return w.report("%q in the root is not a bucket", e.key)
	}
	w.buckets[name] = 0
	value := func(e element) error {
		if e.flags != 0 {
			return w.report("bucket %s: key %q is marked as a bucket", name, e.key)
		}
		w.buckets[name]++
		w.visit(name, e.key, e.value)
		return nil
	}
	root := order.Uint64(e.value)
	if root != 0 {
		return w.tree(root, maxLevels+1, nil, nil, value)
	}
	inline := e.value[bucketHeader:]
	if len(inline) < pageHeader {
		return w.report("bucket %s is cut", name)
	}
	p := pageAt(inline)
	if p.flags != flagLeaf {
		return w.report("bucket %s: inline page is of kind %#x", name, p.flags)
	}
	return w.leaf(p, nil, nil, value)
}
