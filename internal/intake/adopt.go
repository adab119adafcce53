package intake

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Options are what an Intake works with.
type Options struct {
	FS    *durable.FS
	Spool *spool.Spool
	Queue *queue.Queue
	// Room is asked before an adoption that needs the given bytes of new space; an error postpones it, and one that wraps
	// store.ErrFull says that the queue is what has no room. nil allows all.
	Room func(ctx context.Context, need int64) error
	// Validator looks at the structure of a payload; nil checks nothing but its length.
	Validator Validator
	// SourcePatience is how long start-up waits for the source of a half-made copy to be seen again, a card to be mounted,
	// before it keeps the half as an only copy.
	SourcePatience time.Duration
	// Medium says what a path of a watch lies on; nil means that it is never known.
	Medium func(watch, path string) Medium
	// Boot names this boot of the machine, empty when that is not known.
	Boot string
	// Now gives recorded times; nil means time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// Intake takes custody. Its methods may be called concurrently.
type Intake struct {
	Options

	mu      sync.Mutex
	trouble logging.Repeat
	began   time.Time
	// active holds the adoptions that some goroutine is working on, and the submissions.
	active map[string]bool
}

// New returns an Intake; call Recover before the first adoption.
func New(opts Options) *Intake {
	if opts.Room == nil {
		opts.Room = func(context.Context, int64) error { return nil }
	}
	if opts.Medium == nil {
		opts.Medium = func(string, string) Medium { return Medium{} }
	}
	if opts.Validator == nil {
		opts.Validator = lengthOnly{}
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Intake{Options: opts, active: map[string]bool{}, began: time.Now()}
}

// Request is a settled candidate.
type Request struct {
	Watch string
	// Path is absolute, RelPath relative to the watch's root; both are raw bytes.
	Path, RelPath string
	// Parent is the parent's local ID, empty for none.
	Parent string
	// Binding says what named the parent, or that a sidecar is to.
	Binding  attachment.Binding
	Identity attachment.SourceIdentity
	Evidence attachment.Evidence
	// Move: the watch wants the source to leave its directory.
	Move bool
	// SkipRepeated: bytes that the same watch and parent have given before are left where they are.
	SkipRepeated bool
}

// Result is what became of a request.
type Result struct {
	ID attachment.ID
	// Known: the source was taken before and stays in place; nothing was done.
	Known bool
	// Stays: the source is still in its directory.
	Stays bool
}

// Adopt takes custody of a candidate. A *NotTakenError leaves the source where it was; any other error means that the
// queue or the spool cannot be trusted to go on, and that start-up will sort out what was begun.
func (in *Intake) Adopt(ctx context.Context, req Request) (Result, error) {
	src, err := in.openSource(req.Path, req.Identity)
	if err != nil {
		return Result{}, err
	}
	a := &adoption{Intake: in, req: req, src: src, medium: in.mediumOf(req.Watch, req.Path, req.Identity.Device)}
	if info, err := src.Stat(); err == nil {
		a.changed = durable.ChangeTime(info) // before anything is read: what changes after it is not taken for read
	}
	result, err := a.run(ctx)
	return result, errors.Join(err, src.Close())
}

// adoption is one request under way.
type adoption struct {
	*Intake
	req    Request
	medium Medium
	// changed is the source's change time when it was opened.
	changed int64
	src     *durable.File
	lease   *durable.Lease
	id      attachment.ID
	// read is what the source held when it was read under the lease; nil when it was not read yet.
	read *reading
	// unsynced: the source failed to sync, now or before. It is neither moved nor cloned: its blocks may not hold its bytes.
	unsynced bool
}

func (a *adoption) run(ctx context.Context) (Result, error) {
	result, alike, err := a.lookUp()
	if err != nil || result.Known {
		return result, err
	}
	info, err := a.src.Stat()
	if err != nil {
		return Result{}, notTaken(attachment.NotTakenUnreadable, "", err)
	}
	_, links, _ := durable.IdentityOf(info)
	if a.lease, err = a.src.Lease(); errors.Is(err, durable.ErrBusy) {
		return Result{}, notTaken(attachment.NotTakenOpen, "", err)
	} else if err != nil {
		a.lease, a.req.Evidence = nil, attachment.EvidenceSettled
	} else {
		a.req.Evidence = attachment.EvidenceLease
	}
	if alike {
		if result, err := a.recognize(ctx); err != nil || result.Known {
			return result, err
		}
	}
	return a.take(ctx, links)
}

// take brings a file that is not known into custody.
func (a *adoption) take(ctx context.Context, links uint64) (_ Result, err error) {
	if a.id, err = attachment.NewID(); err != nil {
		return Result{}, err
	}
	a.hold(string(a.id))
	defer a.letGo(string(a.id))

	if a.unsynced, err = a.Queue.Unsynced(a.req.Identity); err != nil {
		return Result{}, err
	}
	if a.req.Move && a.lease != nil && links == 1 && !a.unsynced {
		err := a.move(ctx)
		if err == nil {
			return Result{ID: a.id}, nil
		}
		if !cannotMove(err) {
			return Result{}, err
		}
	}
	if _, err := a.src.Seek(0, 0); err != nil {
		return Result{}, notTaken(attachment.NotTakenUnreadable, "", err)
	}
	if err := a.copy(ctx); err != nil {
		return Result{}, err
	}
	if !a.req.Move {
		return Result{ID: a.id, Stays: true}, nil
	}
	released, err := a.releaseOpen(ctx)
	return Result{ID: a.id, Stays: !released}, err
}

func (in *Intake) hold(key string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.active[key] {
		return false
	}
	in.active[key] = true
	return true
}

func (in *Intake) letGo(key string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.active, key)
}

// distrust records that the source failed to sync, for the attempts of later processes too.
func (a *adoption) distrust(ctx context.Context) error {
	a.unsynced = true
	return storageError(a.Queue.PutUnsynced(ctx, a.req.Identity, a.Boot))
}

// cannotMove reports whether a rename is what will not do, because of another mount, a directory that may not be written
// to or blocks that cannot be trusted, so that the bytes are copied instead.
func cannotMove(err error) bool {
	return durable.IsCrossDevice(err) || errors.Is(err, errMayNotMove) || errors.Is(err, errNotSynced)
}

// openSource opens a candidate and compares it with what the watch saw.
func (in *Intake) openSource(path string, want attachment.SourceIdentity) (*durable.File, error) {
	f, err := in.FS.OpenRead(path)
	switch {
	case durable.IsNotExist(err):
		return nil, notTaken(attachment.NotTakenChanged, "the file is gone", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, notTaken(attachment.NotTakenPermission, "", err)
	case errors.Is(err, durable.ErrNotRegular):
		return nil, notTaken(attachment.NotTakenSpecial, "", err)
	case err != nil:
		return nil, notTaken(attachment.NotTakenUnreadable, "", err)
	}
	if err := sameFile(f, want); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sameFile compares an open file with an identity: a *NotTakenError says that it is another or a changed one.
func sameFile(f *durable.File, want attachment.SourceIdentity) error {
	info, err := f.Stat()
	if err != nil {
		return notTaken(attachment.NotTakenUnreadable, "", err)
	}
	if got, _, _ := durable.IdentityOf(info); attachment.SourceIdentity(got) != want {
		return notTaken(attachment.NotTakenChanged, "", nil)
	}
	return nil
}

// proceed is asked between the pieces of a long read: when the lease breaks, a program wants to write, and it must not be
// kept waiting.
func (a *adoption) proceed() error {
	if a.lease != nil && !a.lease.Held() {
		return notTaken(attachment.NotTakenOpen, "a program opened it for writing", nil)
	}
	return nil
}

func (a *adoption) intake(way attachment.Custody) queue.Intake {
	return queue.Intake{
		ID: a.id, Way: way, Parent: parentOf(a.req.Parent), Binding: a.req.Binding, Filename: attachment.NameOf(filepath.Base(a.req.Path)),
		Source: attachment.Source{
			Watch: a.req.Watch, Path: attachment.NameOf(a.req.Path), RelPath: attachment.NameOf(a.req.RelPath),
			Medium: a.medium.Name, Identity: a.req.Identity, ChangedNS: a.changed, Evidence: a.req.Evidence,
		},
		ReleaseSource: way == attachment.CustodyCopy && a.req.Move,
	}
}

func parentOf(localID string) attachment.Parent {
	if localID == "" {
		return attachment.Parent{}
	}
	return attachment.Parent{LocalID: attachment.NameOf(localID)}
}

// storageError sorts an error of staging or securing: a full volume postpones, anything else is told as it is.
func storageError(err error) error {
	var nt *NotTakenError
	switch {
	case err == nil, errors.As(err, &nt), errors.Is(err, context.Canceled), durable.IsCrossDevice(err):
		return err
	case errors.Is(err, store.ErrFull):
		return notTaken(attachment.NotTakenQueueFull, "", err)
	case durable.IsNoSpace(err), errors.Is(err, store.ErrNoSpace):
		return notTaken(attachment.NotTakenStorage, "", err)
	}
	return err
}

// askRoom asks whether there is room for an adoption of so many new bytes.
func (in *Intake) askRoom(ctx context.Context, need int64) error {
	err := in.Room(ctx, need)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrFull):
		return notTaken(attachment.NotTakenQueueFull, err.Error(), err)
	}
	return notTaken(attachment.NotTakenStorage, err.Error(), err)
}

func (in *Intake) warn(msg string, id attachment.ID, err error) {
	in.Logger.Warn(msg, slog.String(logging.KeyAttachment, string(id)), slog.Any(logging.KeyErr, err))
}
