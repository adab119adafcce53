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
		txid:     order.Uint64(b[48:]),
	}
	return m, m.pageSize >= minPageSize && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
}

// metaAt reads the meta page at an offset. ok says that bbolt accepts it; whole, that its page header is right too, which
// only bbolt's check looks at.
func metaAt(r io.ReaderAt, off, size int64) (m metaPage, ok, whole bool, err error) {
	var b [pageHeader + metaSize]byte
	if off+int64(len(b)) > size {
		return metaPage{}, false, false, nil
	}
	if _, err := r.ReadAt(b[:], off); err != nil {
		return metaPage{}, false, false, fmt.Errorf("read meta page: %w", err)
	}
	m, ok = parseMeta(b[pageHeader:])
	p := pageAt(b[:])
	return m, ok, ok && p.flags == flagMeta && p.id == uint64(off/m.pageSize), nil
}

// readMeta returns the newest valid meta page of a file of size bytes, the one that bbolt will use. bad says that one of
// the two is damaged. An error is damage of both, of the length, or a failed read.
func readMeta(r io.ReaderAt, size int64) (best metaPage, bad bool, err error) {
	if size == 0 {
		return metaPage{}, false, fmt.Errorf("%w: it is empty (0 bytes)", errStructure)
	}
	best, ok, whole0, err := metaAt(r, 0, size)
	if err != nil {
		return metaPage{}, false, err
	}
	if ok {
		second, ok, whole1, err := metaAt(r, best.pageSize, size)
		if err != nil {
			return metaPage{}, false, err
		}
		if ok && second.pageSize == best.pageSize && second.txid > best.txid {
			best = second
		}
		return best, !whole0 || !whole1, fits(best, size)
	}
	// Without the first, the size of a page is not known: the second lies at one of a few places.
	for off := int64(minPageSize); off <= maxPageSize; off <<= 1 {
		second, ok, _, err := metaAt(r, off, size)
		if err != nil {
			return metaPage{}, false, err
		}
		if ok && second.pageSize == off {
			return second, true, fits(second, size)
		}
	}
	return metaPage{}, false, fmt.Errorf("%w: none of its %d bytes is a valid meta page", errStructure, size)
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
