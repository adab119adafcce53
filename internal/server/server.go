package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	istore "github.com/fieldgw/fieldgw/internal/store"
)

// storeFile is the name of the record file in the data directory.
const storeFile = "server.db"

// Options are what a server needs.
type Options struct {
	// Dir is the data directory. It is made with mode 0700 where it is missing.
	Dir string
	// FS does the file operations; nil means durable.OS().
	FS *durable.FS
	// Logger gets one line for each reserve, verification and registration, and every fault.
	Logger *slog.Logger
	// ClientCAs are the authorities whose certificates identify devices; nil for none.
	ClientCAs *x509.CertPool
	// Limits bound the clients; zero fields mean defaults.
	Limits Limits
	// Now tells the time of records and tokens; nil means time.Now.
	Now func() time.Time
	// Room measures the free bytes of the volume; nil asks the operating system.
	Room func() (int64, error)
	// Notify, if set, is told READY=1 and STOPPING=1 (sd_notify(3)).
	Notify func(state string)
}

// Server is a receiving server over one data directory. Its methods may be called by any number of goroutines.
type Server struct {
	opts    Options
	limits  Limits
	log     *slog.Logger
	lock    *istore.DirLock
	records store.Store
	files   *store.Files
	engine  *upload.Engine
	tus     *upload.Tus
	rufh    *upload.RUFH
	admin   *admin.Admin
	handler http.Handler
	gate    *gate
}

// New locks the data directory, opens its records and brings files and records together. It starts nothing that must be
// stopped but by Close. Errors: internal/store.ErrLocked while another process has the directory, ErrRecordsMissing, and
// what opening and recovery meet.
func New(ctx context.Context, opts Options) (*Server, error) {
	s, err := open(opts, "fieldgw-server")
	if err != nil {
		return nil, err
	}
	if err := s.engine.Recover(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open makes a server without recovery, for one who only looks.
func open(opts Options, program string) (*Server, error) {
	if opts.FS == nil {
		opts.FS = durable.OS()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Server{opts: opts, limits: opts.Limits.withDefaults(), log: opts.Logger, gate: newGate()}
	if err := opts.FS.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := istore.LockDir(opts.FS, opts.Dir, program)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := opts.FS.ClearTemps(opts.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open data directory: %w", err), lock.Release())
	}
	s.files = store.NewFiles(opts.FS, opts.Dir)
	records, err := openRecords(opts, s.files)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	s.lock, s.records = lock, records
	if s.opts.Room == nil {
		s.opts.Room = s.files.Room
	}
	s.engine = upload.New(records, s.files, s.limits.upload(s.opts.Room), s.now, s.log)
	s.tus = upload.NewTus(s.engine, s.log)
	s.rufh = upload.NewRUFH(s.engine, s.log)
	s.admin = admin.New(records, s.engine, s.now, s.log)
	s.handler = s.middleware(s.counted(s.routes()))
	return s, nil
}

// ErrRecordsMissing is returned by New and Operate when received content stands beside no record file: an empty one in
// its place would disown every attachment and remove what devices have sent so far.
var ErrRecordsMissing = errors.New(storeFile + " is missing beside received content; restore it from a backup, or move the " +
	"directory accounts away to begin with nothing")

// openRecords opens the record file, or makes it where nothing was ever received.
func openRecords(opts Options, files *store.Files) (*store.Embedded, error) {
	path := filepath.Join(opts.Dir, storeFile)
	there, err := opts.FS.Exists(path)
	if err == nil && !there {
		var empty bool
		if empty, err = files.Empty(); err == nil && !empty {
			err = ErrRecordsMissing
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open records in %s: %w", opts.Dir, err)
	}
	return store.OpenEmbedded(path, opts.FS, opts.Logger)
}

// Handler answers the protocol. It may be used without Run.
func (s *Server) Handler() http.Handler { return s.handler }

// Admin does what an operator may ask of this server.
func (s *Server) Admin() *admin.Admin { return s.admin }

// Close ends what Handler still does, closes the records and releases the data directory. Uploads that move are cut with
// their prefix confirmed; new requests are refused.
func (s *Server) Close() error {
	err := s.engine.Cut()
	s.gate.shut()
	return errors.Join(err, s.records.Close(), s.lock.Release())
}

// now is the time that goes into records: UTC, in milliseconds, so that it survives its JSON form unchanged.
func (s *Server) now() time.Time { return s.opts.Now().UTC().Truncate(time.Millisecond) }
