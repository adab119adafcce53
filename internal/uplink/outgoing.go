package uplink

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

const (
	// keepEvery is how long a confirmed offset may wait for its record while an append lasts; it does not wait where the
	// window is full and a keepShare of it is confirmed.
	keepEvery = time.Second
	keepShare = 8
	// hearFirst and hearNext are how long a full window waits for the first confirmation of an append, and for a further one.
	hearFirst = 5 * time.Second
	hearNext  = 30 * time.Second
)

// errUnheard ends an append whose window stays full: the server is asked what it has.
var errUnheard = errors.New("nothing more is confirmed while the append lasts")

// told is what the server confirmed while an append lasts. It hears of it in the transport's goroutine.
type told struct {
	mu     sync.Mutex
	sent   int64 // how far the bytes were handed over
	offset int64
	heard  bool // of more than was known before
	news   chan struct{}
}

func newTold(offset int64) *told {
	return &told{sent: offset, offset: offset, news: make(chan struct{}, 1)}
}

// hear takes note of a confirmation. One that goes back, or beyond what was sent, is not believed: the final answer, or the
// session, tells.
func (t *told) hear(offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset <= t.offset || offset > t.sent {
		return
	}
	t.offset, t.heard = offset, true
	select {
	case t.news <- struct{}{}:
	default:
	}
}

func (t *told) handedOver(to int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = max(t.sent, to)
}

func (t *told) last() (offset int64, heard bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.offset, t.heard
}

// limits are those of a session's appends, in bytes; 0 for none.
type limits struct {
	min, max int64
	streams  bool
}

// outgoing gives an append its bytes. What lies beyond the first chunk is compared with its digests as it is reached. With a
// window it gives no more than that beyond what is confirmed and recorded, and records what was confirmed as it goes; it
// is the only user of its delivery then, for the delivery waits.
type outgoing struct {
	ctx              context.Context
	d                *delivery
	at, end, checked int64
	begun            bool
	before           *atomic.Int64 // how many bytes were checked before, until a first reader takes them for so
	window           int64
	told             *told     // nil without a window
	kept             time.Time // when an offset was recorded last
	closing          sync.Once
	closed           chan struct{}
}

func newOutgoing(ctx context.Context, d *delivery, from, n, window int64, t *told, checked *atomic.Int64) *outgoing {
	return &outgoing{
		ctx: ctx, d: d, at: from, end: from + n, before: checked, window: window, told: t,
		kept: time.Now(), closed: make(chan struct{}),
	}
}

// Close ends a Read that waits.
func (o *outgoing) Close() error {
	o.closing.Do(func() { close(o.closed) })
	return nil
}

// Read implements io.Reader. Errors: those of the payload, ErrRecord, errUnheard, the ended context's.
func (o *outgoing) Read(p []byte) (int, error) {
	left := o.end - o.at
	if left == 0 {
		return 0, io.EOF
	}
	if o.told != nil {
		room, err := o.room()
		if err != nil {
			return 0, err
		}
		left = min(left, room)
	}
	if !o.begun {
		o.begun, o.checked = true, o.at+o.before.Swap(0)
	}
	if o.at == o.checked {
		// To the end of the segment, so that none is read twice.
		n := min(attachment.SegmentSize-o.at%attachment.SegmentSize, o.end-o.at)
		if err := o.d.payload.Check(o.ctx, o.at, n); err != nil {
			return 0, err
		}
		o.checked += n
	}
	n, err := o.d.u.limiter.Take(o.ctx, int(min(int64(len(p)), left, o.checked-o.at)))
	if err != nil {
		return 0, err
	}
	n, err = o.d.payload.ReadAt(p[:n], o.at)
	o.at += int64(n)
	if o.told != nil {
		o.told.handedOver(o.at)
	}
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// room is how many bytes may go; it waits until there is one.
func (o *outgoing) room() (int64, error) {
	for {
		offset, heard := o.told.last()
		room, gain := o.d.confirmed+o.window-o.at, offset-o.d.confirmed
		if gain > 0 && (time.Since(o.kept) >= keepEvery || room <= 0 && gain >= o.window/keepShare) {
			if err := o.d.commit(o.ctx, offset); err != nil {
				return 0, err
			}
			o.kept = time.Now()
			continue
		}
		if room > 0 {
			return room, nil
		}
		if err := o.await(heard, gain > 0); err != nil {
			return 0, err
		}
	}
}

// await waits for the next confirmation, and not for long where there is a gain to be recorded.
func (o *outgoing) await(heard, gain bool) error {
	limit := hearFirst
	switch {
	case gain:
		limit = keepEvery - time.Since(o.kept)
	case heard:
		limit = hearNext
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-o.told.news:
		return nil
	case <-timer.C:
		if gain {
			return nil
		}
		return errUnheard
	case <-o.closed:
		return context.Canceled
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	}
}

// listening remembers whether what a server confirms while an append lasts arrives here: a proxy may keep it, or the bytes.
type listening struct {
	mu     sync.Mutex
	missed int // long appends in a row of which nothing was heard
	until  time.Time
}

const (
	// maxMissed long appends of which nothing is heard end them, for as long as missedFor: one may be the link's fault, and
	// another place may have another proxy.
	maxMissed = 2
	missedFor = time.Hour
)

// pays reports whether appends may be longer than a chunk.
func (l *listening) pays() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !time.Now().Before(l.until)
}

// note takes note of whether anything was heard of an append that needed it, and reports whether that ends long appends.
func (l *listening) note(heard bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed++; heard {
		l.missed = 0
	}
	if l.missed < maxMissed {
		return false
	}
	l.missed, l.until = 0, time.Now().Add(missedFor)
	return true
}
