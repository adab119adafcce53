package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
)

const (
	defaultLockTimeout = 5 * time.Second
	maxSize32          = 512 << 20
)

// Open opens the store at path, or makes an empty one where nothing is, and migrates it to the schema's version. Only one
// Store at a time has a file open; the caller holds the DirLock of its directory.
//
// The whole file is read and verified before bbolt or a migration touches it. Errors: ErrDamaged, ErrOtherSchema,
// ErrNewerSchema, ErrLocked, ErrNoSpace; an error of a migration, with everything rolled back; or those of the file system.
// Where the file existed and Open failed, its bytes are as they were.
func Open(path string, schema Schema, opts Options) (*Store, error) {
	if err := schema.check(); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	opts = opts.withDefaults()
	exists, err := opts.FS.Exists(path)
	if err == nil && !exists {
		err = create(path, schema, opts.FS)
	}
	if err != nil {
		return nil, err
	}
	f, err := openLocked(path, opts.LockTimeout)
	if err != nil {
		return nil, err
	}
	// Not before the file is locked: they may be those of the one who has it.
	err = clearLeftovers(path, opts.FS, opts.Logger)
	var s *Store
	var found *contents
	if err == nil {
		s, found, err = open(path, f, schema, opts)
	}
	if err != nil {
		// bbolt may have closed the file, or have panicked and left it open.
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), release(f))
	}
	if err := s.migrate(schema, found); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: migrate from version %d: %w", path, found.version, err), s.Close())
	}
	return s, nil
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = durable.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = defaultLockTimeout
	}
	if o.MaxSize <= 0 && strconv.IntSize == 32 {
		o.MaxSize = maxSize32
	}
	if o.CompactBytes <= 0 {
		o.CompactBytes = defaultCompactBytes
	}
	if o.CompactPercent <= 0 {
		o.CompactPercent = defaultCompactPercent
	}
	if o.Reserve == 0 {
		o.Reserve = defaultReserve
	}
	return o
}

// errSchema is returned by Open for a schema that cannot be: a mistake in the program.
var errSchema = errors.New("impossible schema")

// ours begins the names of the store's own buckets.
const ours = "fieldgw."

func (schema Schema) check() error {
	if schema.Name == "" || schema.Version < 1 {
		return fmt.Errorf("%w: name %q, version %d", errSchema, schema.Name, schema.Version)
	}
	for i, name := range schema.Buckets {
		if name == "" || strings.HasPrefix(name, ours) || slices.Contains(schema.Buckets[:i], name) {
			return fmt.Errorf("%w: bucket %q", errSchema, name)
		}
	}
	return nil
}

// open verifies a locked file and hands it to bbolt. It starts the writer.
func open(path string, f *os.File, schema Schema, opts Options) (*Store, *contents, error) {
	found, err := inspect(path, f, schema, opts.FS)
	if err != nil {
		return nil, nil, err
	}
	gen, err := newGeneration(f, found.page, opts)
	if err != nil {
		return nil, nil, err
	}
	s := &Store{
		path: path, opts: opts, sealers: map[string]sealer{},
		epoch: found.meta[keyEpoch], created: found.created,
		gen: gen, badValues: found.badValues,
		queue: make(chan *request, maxBatch), closing: make(chan struct{}), writerDone: make(chan struct{}),
		failed: make(chan struct{}), abandoned: make(chan struct{}),
	}
	for _, name := range schema.Buckets {
		s.sealers[name] = newSealer(name)
	}
	if found.badMeta {
		opts.Logger.Warn("the older one of the two meta pages is damaged; nothing is lost with it", logging.KeyPath, path)
	}
	if found.leaked > 0 {
		opts.Logger.Warn("pages of the store file are neither used nor free", logging.KeyPath, path, logging.KeyCount, found.leaked)
	}
	if found.badValues > 0 {
		opts.Logger.Warn("stored values are damaged", logging.KeyPath, path, logging.KeyCount, found.badValues, logging.KeyErr, found.firstBad)
	}
	s.secure(gen)
	go s.write()
	return s, found, nil
}
