package store

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
)

// The page format of bbolt's file version 2 (package internal/common of go.etcd.io/bbolt: page.go, meta.go, bucket.go).
// Numbers are in the byte order of the machine that wrote them. It is read here a second time because bbolt trusts it:
// a child pointer that leads back up makes bbolt recurse until the process dies, one that leads nowhere is a fault in a
// goroutine of its own that nobody can recover, and an empty file is taken for a new one.
const (
	pageHeader   = 16 // id uint64, flags uint16, count uint16, overflow uint32
	elementSize  = 16 // leaf: flags, pos, ksize, vsize uint32; branch: pos, ksize uint32, page uint64
	bucketHeader = 16 // root page uint64, sequence uint64; root 0 means that a leaf page follows inline
	metaSize     = 64 // the last eight bytes are an FNV-1a of the rest
	metaTxid     = 48 // where it says its transaction

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10

	elementIsBucket = 0x01

	boltMagic   = 0xED0CDAED
	boltVersion = 2

	minPageSize = 1 << 10
	maxPageSize = 1 << 16
	firstPage   = 2       // pages 0 and 1 are the meta pages
	manyFree    = 0xFFFF  // page count which says that the first element of a freelist is its true count
	maxSpan     = 1 << 28 // bytes of one page with its overflow; above that the number is taken for damage
	noFreelist  = ^uint64(0)
)

var order = binary.NativeEndian

// metaPage is a valid one of the two meta pages: the root of one committed transaction.
type metaPage struct {
	pageSize int64
	root     uint64 // page of the root bucket
	freelist uint64
	limit    uint64 // first page that is not in use ("high water mark")
	txid     uint64
}

// parseMeta decodes the meta structure that follows a page header; ok is false where bbolt would not accept it either.
func parseMeta(b []byte) (m metaPage, ok bool) {
	if len(b) < metaSize || order.Uint32(b) != boltMagic || order.Uint32(b[4:]) != boltVersion {
		return metaPage{}, false
	}
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	if order.Uint64(b[metaSize-8:]) != sum.Sum64() {
		return metaPage{}, false
	}
	m = metaPage{
		pageSize: int64(order.Uint32(b[8:])),
		root:     order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]),
		limit:    order.Uint64(b[40:]),
		txid:     order.Uint64(b[metaTxid:]),
	}
	return m, m.pageSize >= minPageSize && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
}

// metaSlot is what stands in one of the two places for a meta page.
type metaSlot struct {
	meta metaPage
	ok   bool // bbolt accepts it
	// whole says that its page header is right too, which only bbolt's check looks at.
	whole bool
	raw   [metaSize]byte
}

// metaAt reads the place at an offset.
func metaAt(r io.ReaderAt, off, size int64) (s metaSlot, err error) {
	var b [pageHeader + metaSize]byte
	if off+int64(len(b)) > size {
		return s, nil
	}
	if _, err := r.ReadAt(b[:], off); err != nil {
		return s, fmt.Errorf("read meta page: %w", err)
	}
	copy(s.raw[:], b[pageHeader:])
	s.meta, s.ok = parseMeta(s.raw[:])
	p := pageAt(b[:])
	s.whole = s.ok && p.flags == flagMeta && p.id == uint64(off/s.meta.pageSize)
	return s, nil
}

// precedes reports whether the place holds, or held before it was damaged, the transaction before m, so that nothing is
// lost with it. The two are written in turn: otherwise it is the one after m.
func (s metaSlot) precedes(m metaPage) bool {
	if s.ok {
		return s.meta.txid+1 == m.txid
	}
	if order.Uint64(s.raw[metaTxid:])+1 != m.txid {
		return false
	}
	// A single flipped bit can turn the number of the one after into that of the one before.
	order.PutUint64(s.raw[metaTxid:], m.txid+1)
	_, after := parseMeta(s.raw[:])
	return !after
}

// readMeta returns the newest meta page of a file of size bytes, the one that bbolt will use. bad says that the other one is
// damaged, which costs nothing. An error is a failed read, damage of the length or of both, or of one that may have been
// the newest: with the other one bbolt would silently go back by a transaction that was answered for.
func readMeta(r io.ReaderAt, size int64) (best metaPage, bad bool, err error) {
	if size == 0 {
		return metaPage{}, false, fmt.Errorf("%w: it is empty (0 bytes)", errStructure)
	}
	newest, err := metaAt(r, 0, size)
	if err != nil {
		return metaPage{}, false, err
	}
	// Without the first, the size of a page is not known: the second lies at one of a few places.
	from, to := int64(minPageSize), int64(maxPageSize)
	if newest.ok {
		from, to = newest.meta.pageSize, newest.meta.pageSize
	}
	var other metaSlot
	for off := from; off <= to; off <<= 1 {
		second, err := metaAt(r, off, size)
		if err != nil {
			return metaPage{}, false, err
		}
		second.ok = second.ok && second.meta.pageSize == off
		if other = second; second.ok {
			break
		}
	}
	if other.ok && (!newest.ok || other.meta.txid > newest.meta.txid) {
		newest, other = other, newest
	}
	if !newest.ok {
		return metaPage{}, false, fmt.Errorf("%w: none of its %d bytes is a valid meta page", errStructure, size)
	}
	bad = !newest.whole || !other.whole
	if bad && !other.precedes(newest.meta) {
		return metaPage{}, false, fmt.Errorf("%w: a meta page is damaged, and the last transaction may be lost with it", errStructure)
	}
	return newest.meta, bad, fits(newest.meta, size)
}

// fits says whether a file of size bytes can hold all that the meta page speaks of.
func fits(m metaPage, size int64) error {
	if m.limit > uint64(size/m.pageSize) {
		return fmt.Errorf("%w: it is cut: %d bytes where %d pages of %d are in use", errStructure, size, m.limit, m.pageSize)
	}
	return nil
}

// page is one page with its overflow, read into memory.
type page struct {
	id    uint64
	flags uint16
	count int
	buf   []byte
}

func pageAt(buf []byte) page {
	return page{id: order.Uint64(buf), flags: order.Uint16(buf[8:]), count: int(order.Uint16(buf[10:])), buf: buf}
}

// element is one entry of a branch or leaf page.
type element struct {
	key, value []byte
	child      uint64 // branch
	flags      uint32 // leaf
}

// element decodes entry i; ok is false when it points out of the page.
func (p page) element(i int) (e element, ok bool) {
	head := pageHeader + i*elementSize
	if head+elementSize > len(p.buf) {
		return element{}, false
	}
	b := p.buf[head : head+elementSize]
	var pos, ksize, vsize uint64
	if p.flags == flagBranch {
		pos, ksize, e.child = uint64(order.Uint32(b)), uint64(order.Uint32(b[4:])), order.Uint64(b[8:])
	} else {
		e.flags = order.Uint32(b)
		pos, ksize, vsize = uint64(order.Uint32(b[4:])), uint64(order.Uint32(b[8:])), uint64(order.Uint32(b[12:]))
	}
	from := uint64(head) + pos
	if pos < elementSize || from+ksize+vsize > uint64(len(p.buf)) {
		return element{}, false
	}
	e.key = p.buf[from : from+ksize]
	e.value = p.buf[from+ksize : from+ksize+vsize]
	return e, true
}
