package uplink

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

// Sizes of a chunk, in bytes: what is sent beyond the last offset that was confirmed and recorded.
const (
	DefaultChunkMax   = 8 << 20
	DefaultChunkFloor = 128 << 10
)

// DefaultChunkTime is how long a chunk takes where its size adapts: short enough to lose little, long enough for the
// answers in between not to count.
const DefaultChunkTime = 8 * time.Second

// Options are what an Uplink needs.
type Options struct {
	Driver Driver
	// ChunkMax is the largest chunk; 0 means DefaultChunkMax.
	ChunkMax int64
	// ChunkFloor is the size below which a chunk is not divided when the server refuses its size; 0 means
	// DefaultChunkFloor. It is at most ChunkMax.
	ChunkFloor int64
	// ChunkTime is how long sending one chunk should take: the size follows the speed of the link between ChunkFloor and
	// ChunkMax. 0 means that every chunk is as large as is allowed.
	ChunkTime time.Duration
	// Limiter is the rate of all deliveries together; nil does not limit.
	Limiter *Limiter
	Logger  *slog.Logger
}

// Uplink delivers attachments. Deliveries of different attachments may run at the same time.
type Uplink struct {
	driver    Driver
	pace      *pace
	limiter   *Limiter
	log       *slog.Logger
	listening listening
}

// New checks the options. Errors wrap ErrBadOptions.
func New(o Options) (*Uplink, error) {
	if o.ChunkMax == 0 {
		o.ChunkMax = DefaultChunkMax
	}
	if o.ChunkFloor == 0 {
		o.ChunkFloor = min(DefaultChunkFloor, o.ChunkMax)
	}
	switch {
	case o.Driver == nil || o.Logger == nil:
		return nil, fmt.Errorf("%w: no driver or no logger", ErrBadOptions)
	case o.ChunkFloor < 0 || o.ChunkFloor > o.ChunkMax:
		return nil, fmt.Errorf("%w: chunk floor %d, largest chunk %d", ErrBadOptions, o.ChunkFloor, o.ChunkMax)
	case o.ChunkTime < 0:
		return nil, fmt.Errorf("%w: chunk time %s", ErrBadOptions, o.ChunkTime)
	}
	return &Uplink{driver: o.Driver, pace: newPace(o), limiter: o.Limiter, log: o.Logger}, nil
}

// Resumes reports whether an interrupted transfer goes on where it was.
func (u *Uplink) Resumes() bool { return u.driver.Capabilities().Resume }

// DriverName is the driver's name in the configuration.
func (u *Uplink) DriverName() string { return u.driver.Name() }

// listened takes note of whether the server was heard while a long append lasted.
func (u *Uplink) listened(ctx context.Context, id attachment.ID, heard bool) {
	if u.listening.note(heard) {
		u.log.LogAttrs(ctx, slog.LevelWarn, "what the server confirms does not arrive before an append ends; a proxy may keep it: sending in chunks for a while",
			slog.String(logging.KeyAttachment, string(id)), slog.Duration("while", missedFor))
	}
}

// ParentOf is the parent as the protocol names it.
func ParentOf(m *attachment.Manifest) receipt.Parent {
	return receipt.Parent{LocalID: m.Parent.LocalID.Text, LocalIDRaw: m.Parent.LocalID.Raw, ServerID: m.Parent.ServerID}
}

// Deliver brings one attachment as far as it can now. confirmed is the recorded offset of the recorded session. Where the
// manifest says that the server verified every byte, only the registration is left.
//
// It returns nil once a receipt is recorded. Otherwise the error is a *Held of the gate, the ended context's, one that
// wraps ErrRecord, or a *remote.Error whose class, reason and wait say what follows; nothing that was recorded is lost by
// any of them.
func (u *Uplink) Deliver(ctx context.Context, m *attachment.Manifest, confirmed int64, p Payload, g Gate, r Recorder) error {
	d := &delivery{
		u: u, m: m, payload: p, gate: g, record: r,
		session: m.Delivery.Session, confirmed: confirmed, mediaID: m.Delivery.MediaID, verified: m.Delivery.Verified,
	}
	return d.run(ctx)
}
