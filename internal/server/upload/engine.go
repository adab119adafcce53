package upload

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/store"
)

// Limits bound what clients may ask of the data plane. Zero values are not allowed.
type Limits struct {
	// MaxAppend is the largest body of an append with checksums, in bytes: it counts wholly or not at all. Any other append
	// may be as long as the attachment.
	MaxAppend int64
	// Confirm is after how many bytes a lasting append is confirmed, if a second has not passed before.
	Confirm int64
	// Idle ends an append that received no byte for this long.
	Idle time.Duration
	// AppendsPerDevice bounds the appends of one device that move at the same time.
	AppendsPerDevice int
	// Verifications bounds the files that are read back at the same time.
	Verifications int
	// MaxLength is the largest attachment that a client may create, in bytes.
	MaxLength int64
	// SessionsPerAccount bounds the open sessions of one account.
	SessionsPerAccount int
	// Expire is how long after its last append a session may be ended.
	Expire time.Duration
	// Room tells how many bytes of the volume uploads may still take.
	Room func() (int64, error)
}

// Engine takes bytes into sessions and verifies them. It may be used by any number of goroutines; one store has one
// Engine.
type Engine struct {
	store  store.Store
	files  *store.Files
	limits Limits
	now    func() time.Time
	log    *slog.Logger

	contents contents
	flight   singleflight.Group
	reading  chan struct{} // one element for each verification under way
	buffers  sync.Pool
	stopping chan struct{} // closed by Cut

	settling  sync.Mutex // held while an unsettled session is settled
	unsettled sync.Map   // account and session, of those that Recover could not settle

	mu        sync.Mutex
	refuse    bool
	moving    map[string]*pace // by account and session
	verifying map[string]bool  // by account and session
	devices   map[string]int   // moving appends by account and device
}

// New returns an engine over records and files; now is the time that goes into records. It starts nothing.
func New(records store.Store, files *store.Files, limits Limits, now func() time.Time, log *slog.Logger) *Engine {
	return &Engine{
		store: records, files: files, limits: limits, now: now, log: log,
		reading:   make(chan struct{}, limits.Verifications),
		buffers:   sync.Pool{New: func() any { return new([copyBuffer]byte) }},
		stopping:  make(chan struct{}),
		contents:  contents{known: map[string]finding{}},
		moving:    map[string]*pace{},
		verifying: map[string]bool{},
		devices:   map[string]int{},
	}
}

// claim makes p the one append of the session, in place of an older one that hangs or, with all, of any older one. Errors:
// ErrStopping, ErrBusy, ErrTooMany, ctx.Err.
func (e *Engine) claim(ctx context.Context, who store.Identity, session string, p *pace, all bool) (release func(), err error) {
	for {
		older, err := e.enter(who, session, p)
		if err != nil {
			return nil, err
		}
		if older == nil {
			return func() { e.leave(who, session, p) }, nil
		}
		if err := e.overtake(ctx, older, all); err != nil {
			return nil, err
		}
	}
}

// enter makes p the one append of the session, unless there is one, which is returned.
func (e *Engine) enter(who store.Identity, session string, p *pace) (older *pace, err error) {
	at, device := who.Account+"/"+session, who.Account+"/"+who.Device
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.refuse:
		return nil, ErrStopping
	case e.moving[at] != nil:
		return e.moving[at], nil
	case e.devices[device] >= e.limits.AppendsPerDevice:
		return nil, ErrTooMany
	}
	e.moving[at] = p
	e.devices[device]++
	return nil, nil
}

func (e *Engine) leave(who store.Identity, session string, p *pace) {
	at, device := who.Account+"/"+session, who.Account+"/"+who.Device
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.moving, at)
	if e.devices[device]--; e.devices[device] == 0 {
		delete(e.devices, device)
	}
	close(p.gone)
}

// overtake ends an append, with its prefix confirmed, and waits until it has left. Errors: ErrBusy for one that does not
// hang, unless all is set; ctx.Err.
func (e *Engine) overtake(ctx context.Context, older *pace, all bool) error {
	if !all && !older.hangs() {
		return ErrBusy
	}
	_ = older.end(ErrOvertaken) // which fails on a connection that has ended already
	select {
	case <-older.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// yield ends an append of the session that hangs or, with all, any append. One that moves is otherwise left alone.
func (e *Engine) yield(ctx context.Context, account, session string, all bool) error {
	e.mu.Lock()
	older := e.moving[account+"/"+session]
	e.mu.Unlock()
	if older == nil {
		return nil
	}
	if err := e.overtake(ctx, older, all); !errors.Is(err, ErrBusy) {
		return err
	}
	return nil
}

// Busy reports whether an append to the session moves, or its bytes are being verified.
func (e *Engine) Busy(account, session string) bool {
	at := account + "/" + session
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.moving[at] != nil || e.verifying[at]
}

// Expired does what is left to do after a session was ended to make room for another: it removes the data file.
func (e *Engine) Expired(s store.Session) {
	e.log.Warn("idle upload session was ended to make room for another, its confirmed bytes are discarded",
		attachmentAttrs(s.Account, s.AttachmentID, slog.Int(logging.KeyAttempt, s.Generation), slog.Int64(logging.KeyOffset, s.Offset))...)
	e.discard(s)
}

// Refuse makes every new append fail with ErrStopping; those that move go on.
func (e *Engine) Refuse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = true
}

// Cut ends the appends that move, each with its prefix confirmed, and the verifications under way, which begin again
// when they are next asked for. It does not wait for them.
func (e *Engine) Cut() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.stopping:
		return nil
	default:
	}
	e.refuse = true
	close(e.stopping)
	var errs []error
	for _, p := range e.moving {
		errs = append(errs, p.end(ErrStopping))
	}
	return errors.Join(errs...)
}

// lose ends a session whose bytes are missing or cannot be trusted, and returns store.ErrGone when that is recorded.
func (e *Engine) lose(ctx context.Context, s store.Session, cause error) error {
	e.log.Error("upload session lost its bytes, the device must send them again", attachmentAttrs(s.Account, s.AttachmentID,
		slog.Int(logging.KeyAttempt, s.Generation), slog.Int64(logging.KeyOffset, s.Offset), slog.Any(logging.KeyErr, cause))...)
	if err := e.end(ctx, s, store.VoidLost); err != nil {
		return err
	}
	return store.ErrGone
}

// end voids a session and removes its data file, which nothing needs any more; what stays of it the next start removes.
func (e *Engine) end(ctx context.Context, s store.Session, why store.VoidReason) error {
	if err := e.store.Void(ctx, s.Account, s.AttachmentID, s.Generation, why); err != nil {
		return err
	}
	e.discard(s)
	return nil
}

func (e *Engine) discard(s store.Session) {
	if err := e.files.Discard(s.Account, s.ID); err != nil {
		e.log.Warn("data file of an ended upload session stays until the next start",
			attachmentAttrs(s.Account, s.AttachmentID, slog.Any(logging.KeyErr, err))...)
	}
}

// attachmentAttrs are the attributes by which a log line names an attachment.
func attachmentAttrs(account, id string, more ...any) []any {
	return append([]any{slog.String(logging.KeyAccount, account), slog.String(logging.KeyAttachment, id)}, more...)
}
