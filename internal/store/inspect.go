package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// contents is what inspect found in a sound file.
type contents struct {
	page       metaPage
	badMeta    bool
	leaked     uint64
	meta       map[string]string
	version    int
	created    time.Time
	tallies    map[string]tally
	buckets    map[string]uint64 // keys counted, by bucket; the internal ones too
	unreadable []string          // entries of the internal buckets that are damaged
	sealers    map[string]sealer
	badValues  int
	firstBad   error // a *BadValueError
}

func newContents() *contents {
	return &contents{meta: map[string]string{}, tallies: map[string]tally{}, sealers: map[string]sealer{}}
}

// visit checks a value, and keeps it where it belongs to the internal buckets.
func (c *contents) visit(bucket string, key, stored []byte) (bad *BadValueError) {
	if strings.HasPrefix(bucket, ours) {
		c.collect(bucket, key, stored)
		return nil
	}
	seal, ok := c.sealers[bucket]
	if !ok {
		seal = newSealer(bucket)
		c.sealers[bucket] = seal
	}
	_, damage := seal.open(key, stored)
	if damage == "" {
		return nil
	}
	bad = &BadValueError{Bucket: bucket, Key: bytes.Clone(key), Reason: damage}
	if c.badValues == 0 {
		c.firstBad = bad
	}
	c.badValues++
	return bad
}

// collect keeps an entry of the internal buckets.
func (c *contents) collect(bucket string, key, stored []byte) {
	var damage string
	var value []byte
	switch bucket {
	case metaBucket:
		if value, damage = metaSealer.open(key, stored); damage == "" {
			c.meta[string(key)] = string(value)
		}
	case tallyBucket:
		if value, damage = tallySealer.open(key, stored); damage == "" {
			t, ok := decodeTally(value)
			if !ok {
				damage = "not a count"
			}
			c.tallies[string(key)] = t
		}
	}
	if damage != "" {
		c.unreadable = append(c.unreadable, fmt.Sprintf("bucket %s: entry %q: %s", bucket, key, damage))
	}
}

// damaged is ErrDamaged with what was found. How to go on depends on whose file it is.
func damaged(what error) error {
	return fmt.Errorf("%w: %w; nothing was changed; keep the file", ErrDamaged, what)
}

func damagedf(format string, args ...any) error { return damaged(fmt.Errorf(format, args...)) }

// inspect reads the whole file with pread and decides whether it is a sound store of this schema, before anything is
// touched.
func inspect(path string, locked *os.File, schema Schema, fsys *durable.FS) (c *contents, err error) {
	f, err := fsys.OpenRead(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := sameFile(f, locked)
	if err != nil {
		return nil, err
	}
	c = newContents()
	if err := c.read(f, info.Size(), nil, nil); err != nil {
		return nil, damaged(err)
	}
	return c, c.judge(schema)
}

// read goes through all pages of a file of size bytes. each, unless nil, gets every entry of every bucket, in order, and
// stop is asked now and then whether to go on. An error is that of stop, of a read, or what is wrong with the structure.
func (c *contents) read(r io.ReaderAt, size int64, each func(bucket string, key, stored []byte), stop func() error) (err error) {
	if c.page, c.badMeta, err = readMeta(r, size); err != nil {
		return err
	}
	w := newWalker(r, c.page, func(bucket string, key, stored []byte) {
		c.visit(bucket, key, stored)
		if each != nil {
			each(bucket, key, stored)
		}
	})
	w.stop = stop
	if err := w.walk(); err != nil {
		return err
	}
	if len(w.damage) > 0 {
		return fmt.Errorf("%w: %s (the first of %d findings)", errStructure, w.damage[0], len(w.damage))
	}
	c.buckets, c.leaked = w.buckets, w.leaked
	return nil
}

// errReplaced is returned when the path leads to another file than the one that is open.
var errReplaced = errors.New("the file was replaced while it was open")

func sameFile(f *durable.File, open *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	other, err := open.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(info, other) {
		return nil, errReplaced
	}
	return info, nil
}

// judge holds what was found against the schema: first whose it is, then whether it is whole.
func (c *contents) judge(schema Schema) error {
	if len(c.unreadable) > 0 {
		return damagedf("%s", c.unreadable[0])
	}
	version, err := strconv.Atoi(c.meta[keyVersion])
	if err != nil || version < 1 || c.meta[keySchema] == "" || c.meta[keyEpoch] == "" {
		return damagedf("bucket %s does not say what the file is", metaBucket)
	}
	if c.meta[keySchema] != schema.Name {
		return fmt.Errorf("%w: %q instead of %q", ErrOtherSchema, c.meta[keySchema], schema.Name)
	}
	if version > schema.Version {
		return fmt.Errorf("%w: %d, and this program knows %d; install the newer program again", ErrNewerSchema, version, schema.Version)
	}
	c.version = version
	if c.created, err = time.Parse(time.RFC3339Nano, c.meta[keyCreated]); err != nil {
		return damagedf("bucket %s: %s: %v", metaBucket, keyCreated, err)
	}
	for v := version; v < schema.Version; v++ {
		if schema.Migrations[v] == nil {
			return fmt.Errorf("%w: no migration from version %d", errSchema, v)
		}
	}
	if problems := c.counted(); len(problems) > 0 {
		return damagedf("%s", problems[0])
	}
	if version == schema.Version {
		for _, name := range schema.Buckets {
			if _, ok := c.buckets[name]; !ok {
				return damagedf("bucket %s is missing", name)
			}
		}
	}
	return nil
}

// sound tells what is wrong with the internal buckets, in a file that was open and sound before.
func (c *contents) sound() error {
	if problems := append(c.unreadable, c.counted()...); len(problems) > 0 {
		return fmt.Errorf("%w: %s", errStructure, problems[0])
	}
	return nil
}

// counted compares the buckets found with the counts that are kept.
func (c *contents) counted() (problems []string) {
	for name, t := range c.tallies {
		if n, ok := c.buckets[name]; !ok {
			problems = append(problems, fmt.Sprintf("bucket %s is missing", name))
		} else if n != t.count {
			problems = append(problems, fmt.Sprintf("bucket %s has %d keys where %d were counted", name, n, t.count))
		}
	}
	for name := range c.buckets {
		if _, ok := c.tallies[name]; !ok && !strings.HasPrefix(name, ours) {
			problems = append(problems, fmt.Sprintf("bucket %s has no count", name))
		}
	}
	slices.Sort(problems)
	return problems
}
