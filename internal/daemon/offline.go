package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/intake"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
)

// queueFile is the name of the queue in an account's directory.
const queueFile = "queue.db"

// ErrQueueMissing is returned when there is no queue beside a spool that holds something: it was lost, and an empty one
// would forget what is owed.
var ErrQueueMissing = errors.New("the queue file is missing beside a spool that is not empty; run: fieldgwd rebuild")

// ErrQueueHealthy is returned by Rebuild when the queue can be used as it is.
var ErrQueueHealthy = errors.New("the queue can be used as it is; nothing was rebuilt")

// openQueue opens the account's queue, and makes a new one only where nothing was ever kept.
func openQueue(opts Options, acc account, sp *spool.Spool, log *slog.Logger) (*store.Store, error) {
	path := filepath.Join(acc.dir, queueFile)
	there, err := opts.FS.Exists(path)
	if err != nil {
		return nil, err
	}
	if !there {
		fresh, err := sp.Fresh()
		if err != nil {
			return nil, err
		}
		if !fresh {
			return nil, fmt.Errorf("open %s: %w", path, ErrQueueMissing)
		}
	}
	return store.Open(path, queueSchema(), store.Options{FS: opts.FS, MaxSize: opts.QueueMax, Logger: log})
}

// offline holds the state directory's lock, in the name of a command, and works on the account's files without a daemon.
func offline(opts Options, command string, work func(acc account, sp *spool.Spool) error) (err error) {
	lock, err := store.LockDir(opts.FS, opts.Config.StateDir, Program+" "+command)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	acc, err := bindAccount(opts.FS, opts.Config)
	if err != nil {
		return err
	}
	sp, err := spool.Open(opts.FS, acc.dir)
	if err != nil {
		return err
	}
	return work(acc, sp)
}

// Check holds queue and spool against each other while no daemon runs; deep reads every payload. Errors wrap
// store.ErrLocked while one does, store.ErrDamaged or ErrQueueMissing when the queue cannot be used at all.
func Check(ctx context.Context, opts Options, deep, repair bool) (findings []intake.Finding, err error) {
	err = offline(opts, "check", func(acc account, sp *spool.Spool) (err error) {
		st, err := openQueue(opts, acc, sp, opts.Logger)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		in := newIntake(opts, queue.New(st, queue.Options{Logger: opts.Logger}), sp)
		if findings, err = in.Check(ctx, intake.CheckOptions{Deep: deep}); err != nil || !repair {
			return err
		}
		if _, err := in.Repair(ctx, findings); err != nil {
			return err
		}
		findings, err = in.Check(ctx, intake.CheckOptions{Deep: deep})
		return err
	})
	return findings, err
}

func newIntake(opts Options, q *queue.Queue, sp *spool.Spool) *intake.Intake {
	return intake.New(intake.Options{FS: opts.FS, Spool: sp, Queue: q, Logger: opts.Logger})
}

// Rebuilt is what a rebuild did.
type Rebuilt struct {
	Report intake.Report
	// Counts are the attachments of the new queue by condition.
	Counts map[attachment.Condition]queue.Count
	// Kept is where the old queue file lies now; empty when there was none.
	Kept string
}

// Rebuild makes a new queue from what lies outside of it and keeps the old file beside it. The new file is complete and
// checked before it takes the old one's place; a crash in between leaves either the old queue, or none, which the daemon
// refuses and a second rebuild mends. A queue that can be used, by this version or a newer one, is left alone unless force is set.
func Rebuild(ctx context.Context, opts Options, force bool) (r Rebuilt, err error) {
	err = offline(opts, "rebuild", func(acc account, sp *spool.Spool) error {
		path := filepath.Join(acc.dir, queueFile)
		if !force {
			st, err := openQueue(opts, acc, sp, opts.Logger)
			if err == nil {
				return errors.Join(ErrQueueHealthy, st.Close())
			}
			if !unusable(err) || errors.Is(err, store.ErrNewerSchema) {
				return err
			}
		}
		temp := path + ".rebuilding"
		if err := discard(opts.FS, temp); err != nil {
			return err
		}
		if err := fill(ctx, opts, temp, sp, &r); err != nil {
			return err
		}
		return publish(opts.FS, temp, path, &r)
	})
	return r, err
}

func discard(fsys *durable.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !durable.IsNotExist(err) {
		return err
	}
	return nil
}

func fill(ctx context.Context, opts Options, path string, sp *spool.Spool, r *Rebuilt) (err error) {
	st, err := store.Open(path, queueSchema(), store.Options{FS: opts.FS, MaxSize: opts.QueueMax, Logger: opts.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	q := queue.New(st, queue.Options{Logger: opts.Logger})
	if r.Report, err = newIntake(opts, q, sp).Rebuild(ctx); err != nil {
		return err
	}
	findings, err := q.Check(ctx)
	if err != nil {
		return err
	}
	if len(findings) > 0 {
		return fmt.Errorf("the rebuilt queue is not consistent: %s %s", findings[0].ID, findings[0].Detail)
	}
	r.Counts, err = q.Counts()
	return err
}

func publish(fsys *durable.FS, temp, path string, r *Rebuilt) error {
	there, err := fsys.Exists(path)
	if err != nil {
		return err
	}
	if there {
		r.Kept = path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000")
		if err := fsys.RenameNew(path, r.Kept); err != nil {
			return fmt.Errorf("keep the old queue: %w", err)
		}
	}
	if err := fsys.RenameNew(temp, path); err != nil {
		return fmt.Errorf("publish the new queue: %w", err)
	}
	return fsys.SyncDir(filepath.Dir(path))
}

func logReport(log *slog.Logger, msg string, report intake.Report, took time.Duration) {
	attrs := []any{slog.Duration(logging.KeyDuration, took)}
	for situation, n := range report {
		attrs = append(attrs, slog.Int(string(situation), n))
	}
	log.Info(msg, attrs...)
}
