package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/disk"
	"github.com/fieldgw/fieldgw/internal/policy"
	"github.com/fieldgw/fieldgw/internal/store"
)

// storage keeps the last reading of the disk sensor and the verdict about capturing.
type storage struct {
	sensor *disk.Sensor
	rules  policy.Storage

	mu      sync.Mutex
	reading disk.Reading
	hold    *policy.Hold
	state   policy.StorageState
	since   time.Time
	// told is whether capturing was blocked when that was last said.
	told bool
}

func newStorage(sensor *disk.Sensor, cfg config.Storage) *storage {
	return &storage{
		sensor: sensor, state: policy.StorageUnknown,
		rules: policy.Storage{WarnFree: uint64(cfg.WarnFree.Bytes()), Reserve: uint64(cfg.Reserve.Bytes())},
	}
}

// refresh reads the sensor and decides anew.
func (s *storage) refresh(ctx context.Context) {
	reading := s.sensor.Read(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = reading
	was := s.hold
	s.hold, s.state = policy.Capture(diskOf(reading), s.rules, 0, was != nil)
	if (was == nil) != (s.hold == nil) || s.since.IsZero() {
		s.since = time.Now().UTC()
	}
}

// observe is refresh for the one who tells others. It reports whether capturing was blocked or freed since it last did,
// whoever's reading showed that first.
func (s *storage) observe(ctx context.Context) (changed bool) {
	s.refresh(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = s.told != (s.hold != nil)
	s.told = s.hold != nil
	return changed
}

func diskOf(r disk.Reading) policy.Disk {
	return policy.Disk{Known: r.Known, FreeBytes: r.FreeBytes, InodesFree: r.InodesFree, InodesTotal: r.InodesTotal}
}

// blocked returns why nothing is captured; nil when files are taken.
func (s *storage) blocked() *policy.Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold
}

// short reports whether free space is known to be below the warning.
func (s *storage) short() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == policy.StorageWarn || s.state == policy.StorageReserve
}

// snapshot returns the last reading and verdict.
func (s *storage) snapshot() (disk.Reading, *policy.Hold, policy.StorageState, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reading, s.hold, s.state, s.since
}

// cheapNeed is the need, in bytes, up to which the last reading is good enough.
const cheapNeed = 1 << 20

// room decides about one adoption; intake asks it. A larger need is held against a fresh reading.
func (s *storage) room(ctx context.Context, need int64) error {
	if need > cheapNeed {
		s.refresh(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold != nil {
		return errors.New(s.hold.Detail)
	}
	if hold, _ := policy.Capture(diskOf(s.reading), s.rules, uint64(need), false); hold != nil {
		return errors.New(hold.Detail)
	}
	return nil
}

// queueShare is the part of the queue's permitted size, in per cent, up to which files are taken. The rest is for their
// deliveries: of 400 attachments each took 4.1 kB when it was captured and 2.2 kB more until it was delivered, and whatever
// was taken must be delivered and recorded as such.
const queueShare = 50

// queueFull returns a hold when the queue file has grown as far as capturing may let it; nil where its size has no limit,
// as on every system with 64-bit addresses.
func (s *session) queueFull() *policy.Hold {
	stats := s.store.Stats()
	if stats.MaxBytes == 0 || stats.UsedBytes < stats.MaxBytes*queueShare/100 {
		return nil
	}
	return &policy.Hold{
		Code: attachment.NotTakenQueueFull, Detail: fmt.Sprintf("%d of %d bytes are used", stats.UsedBytes, stats.MaxBytes),
		Ends: "a new state directory",
	}
}

// captureBlocked returns why nothing is captured: the volume, or the queue; nil when files are taken.
func (s *session) captureBlocked() *policy.Hold {
	if h := s.storage.blocked(); h != nil {
		return h
	}
	return s.queueFull()
}

// room is what intake asks before each adoption.
func (s *session) room(ctx context.Context, need int64) error {
	if h := s.queueFull(); h != nil {
		return fmt.Errorf("%w: %s", store.ErrFull, h.Detail)
	}
	return s.storage.room(ctx, need)
}
