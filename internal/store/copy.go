package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"maps"
	"os"
	"slices"

	bolt "go.etcd.io/bbolt"
)

const (
	// copyFill is how full the copy's pages are made. Full ones would each be split by the first value that grows.
	copyFill = 0.9
	// copyOverhead is what an entry costs in memory beside its bytes, roughly.
	copyOverhead = 64
)

// copier writes entries into a new database, in transactions of about maxBatchBytes.
type copier struct {
	file    *os.File
	db      *bolt.DB
	pending []entry
	bytes   int
	err     error // the first
	broken  bool  // bbolt's locks may be held for ever
	digest  maphash.Hash
}

type entry struct {
	bucket     string
	key, value []byte
}

// newCopier makes a database of the empty file at path.
func newCopier(path string, pageSize int) (*copier, error) {
	f, err := openForLock(path)
	if err != nil {
		return nil, err
	}
	c := &copier{file: f}
	err = isolated(func() (err error) {
		c.db, err = bolt.Open(path, filePerm, &bolt.Options{
			Timeout: lockPoll, PageSize: pageSize,
			OpenFile: func(string, int, fs.FileMode) (*os.File, error) { return f, nil },
		})
		return err
	})
	if err != nil {
		return nil, errors.Join(err, release(f))
	}
	return c, nil
}

// add copies an entry; an error shows in c.err.
func (c *copier) add(bucket string, key, value []byte) {
	if c.err != nil {
		return
	}
	mix(&c.digest, bucket, key, value)
	c.pending = append(c.pending, entry{bucket, bytes.Clone(key), bytes.Clone(value)})
	if c.bytes += len(key) + len(value) + copyOverhead; c.bytes >= maxBatchBytes {
		c.flush()
	}
}

// flush commits what is pending, and makes the buckets named.
func (c *copier) flush(buckets ...string) {
	if c.err != nil {
		return
	}
	c.err = isolated(func() error {
		return c.db.Update(func(raw *bolt.Tx) error {
			for _, name := range buckets {
				if _, err := raw.CreateBucketIfNotExists([]byte(name)); err != nil {
					return fmt.Errorf("bucket %s: %w", name, err)
				}
			}
			return putAll(raw, c.pending)
		})
	})
	c.broken = errors.Is(c.err, ErrDamaged)
	c.pending, c.bytes = c.pending[:0], 0
}

func putAll(raw *bolt.Tx, entries []entry) error {
	var b *bolt.Bucket
	name := ""
	for _, e := range entries {
		if b == nil || e.bucket != name {
			var err error
			if b, err = raw.CreateBucketIfNotExists([]byte(e.bucket)); err != nil {
				return fmt.Errorf("bucket %s: %w", e.bucket, err)
			}
			b.FillPercent, name = copyFill, e.bucket
		}
		if err := b.Put(e.key, e.value); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	return nil
}

func (c *copier) close() error {
	if c.broken {
		return release(c.file)
	}
	return isolated(c.db.Close)
}

// mix adds an entry to a digest.
func mix(h *maphash.Hash, bucket string, key, value []byte) {
	var lengths [24]byte
	binary.LittleEndian.PutUint64(lengths[:], uint64(len(bucket)))
	binary.LittleEndian.PutUint64(lengths[8:], uint64(len(key)))
	binary.LittleEndian.PutUint64(lengths[16:], uint64(len(value)))
	h.Write(lengths[:])
	h.WriteString(bucket)
	h.Write(key)
	h.Write(value)
}

// copied is what a copy must hold: what its source was found to hold.
type copied struct {
	*contents
	seed   maphash.Seed
	digest uint64 // of all entries, in order
}

// duplicate fills a new file at temp with all that g holds, byte for byte, damaged values too. The source is read with
// pread and verified as Open would; when that finds damage the store fails.
func (s *Store) duplicate(g *generation, temp string) (want *copied, err error) {
	f, err := s.opts.FS.OpenRead(s.path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := sameFile(f, g.file)
	if err != nil {
		return nil, err
	}
	if err := touch(s.opts.FS, temp); err != nil {
		return nil, err
	}
	c, err := newCopier(temp, g.pageSize)
	if err != nil {
		return nil, fmt.Errorf("write the copy: %w", err)
	}
	want = &copied{contents: newContents(), seed: c.digest.Seed()}
	stop := func() error { return errors.Join(c.err, s.usable()) }
	err = want.read(f, info.Size(), c.add, stop)
	if err == nil {
		err = want.sound()
	}
	if err != nil && stop() == nil {
		return nil, errors.Join(s.fail(damaged(err)), c.close())
	}
	if err == nil {
		c.flush(slices.Collect(maps.Keys(want.buckets))...)
	}
	if c.err != nil {
		err = fmt.Errorf("write the copy: %w", c.err)
	}
	want.digest = c.digest.Sum64()
	return want, errors.Join(err, c.close())
}

// errCopy is returned when a copy does not hold what its source held.
var errCopy = errors.New("the copy differs from its source")

// finishCopy cuts the copy to its pages, makes it durable, and reads it back, from the medium as far as the kernel lets
// that be asked for.
func (s *Store) finishCopy(temp string, want *copied) (page metaPage, err error) {
	f, err := s.opts.FS.OpenWrite(temp)
	if err != nil {
		return metaPage{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return metaPage{}, err
	}
	page, _, err = readMeta(f, info.Size())
	if err != nil {
		return metaPage{}, err
	}
	size := int64(page.limit) * page.pageSize
	if err := errors.Join(f.Truncate(size), f.Sync()); err != nil {
		return metaPage{}, err
	}
	_ = f.DropCache() // advice: without it the check is of the page cache only
	var digest maphash.Hash
	digest.SetSeed(want.seed)
	got := newContents()
	err = got.read(f, size, func(bucket string, key, value []byte) { mix(&digest, bucket, key, value) }, s.usable)
	if err != nil {
		return metaPage{}, err
	}
	switch {
	case got.badMeta, got.leaked > 0, len(got.unreadable) > 0, got.badValues != want.badValues,
		!maps.Equal(got.buckets, want.buckets), !maps.Equal(got.tallies, want.tallies), !maps.Equal(got.meta, want.meta),
		digest.Sum64() != want.digest:
		return metaPage{}, fmt.Errorf("%w: %d buckets instead of %d", errCopy, len(got.buckets), len(want.buckets))
	}
	return got.page, nil
}
