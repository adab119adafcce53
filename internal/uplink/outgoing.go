package uplink

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

const (
	// keepEvery is how long a confirmed offset may wait for its record while an append lasts.
	keepEvery = time.Second
	// hearWithin is how long a full window waits for the first confirmation of an append.
	hearWithin = 5 * time.Second
)

// errDeaf ends an append whose window is full while nothing was ever confirmed: what is between may keep interim answers.
var errDeaf = errors.New("nothing is confirmed before the append ends")

// told is the offset that the server confirmed last while an append lasts. It is heard of in the transport's goroutine.
type told struct {
	mu     sync.Mutex
	offset int64
	heard  bool
	news   chan struct{}
}

func (t *told) init(offset int64) { t.offset, t.news = offset, make(chan struct{}, 1) }

// hear takes note of a confirmation. One that goes back is not believed: the final answer, or the session, tells.
func (t *told) hear(offset int64) {
	t.mu.Lock()
	t.heard = true
	t.offset = max(t.offset, offset)
	t.mu.Unlock()
	select {
	case t.news <- struct{}{}:
	default:
	}
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
	window           int64
	told             *told
	kept             time.Time // when an offset was recorded last
	closing          sync.Once
	closed           chan struct{}
}

func newOutgoing(ctx context.Context, d *delivery, from, n, window int64, t *told) *outgoing {
	return &outgoing{
		ctx: ctx, d: d, at: from, end: from + n, checked: from + min(n, d.u.pace.top()), window: window, told: t,
		kept: time.Now(), closed: make(chan struct{}),
	}
}

// newReading reads the whole payload, each segment compared with its digest as it is reached.
func newReading(ctx context.Context, d *delivery) *outgoing {
	o := newOutgoing(ctx, d, 0, d.m.Length, 0, nil)
	o.checked = 0
	return o
}

// Close ends a Read that waits.
func (o *outgoing) Close() error {
	o.closing.Do(func() { close(o.closed) })
	return nil
}

// Read implements io.Reader. Errors: those of the payload, ErrRecord, errDeaf, the ended context's.
func (o *outgoing) Read(p []byte) (int, error) {
	left := o.end - o.at
	if left == 0 {
		return 0, io.EOF
	}
	if o.window > 0 {
		room, err := o.room()
		if err != nil {
			return 0, err
		}
		left = min(left, room)
	}
	if o.at == o.checked {
		// To the end of the segment, so that none is read twice.
		n := min(attachment.SegmentSize-o.at%attachment.SegmentSize, o.end-o.at)
		if err := o.d.payload.Check(o.ctx, o.at, n); err != nil {
			return 0, err
		}
		o.checked += n
	}
	n, err := o.d.payload.ReadAt(p[:min(int64(len(p)), left, o.checked-o.at)], o.at)
	o.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// room is how many bytes may go; it waits until there is one.
func (o *outgoing) room() (int64, error) {
	for {
		offset, heard := o.told.last()
		room := o.d.confirmed + o.window - o.at
		if offset > o.d.confirmed && offset <= o.at && (room <= 0 || time.Since(o.kept) >= keepEvery) {
			if err := o.d.commit(o.ctx, offset); err != nil {
				return 0, err
			}
			o.kept = time.Now()
			continue
		}
		if room > 0 {
			return room, nil
		}
		if err := o.await(heard); err != nil {
			return 0, err
		}
	}
}

// await waits for the next confirmation; for the first one of the append not for long.
func (o *outgoing) await(heard bool) error {
	var deaf <-chan time.Time
	if !heard {
		timer := time.NewTimer(hearWithin)
		defer timer.Stop()
		deaf = timer.C
	}
	select {
	case <-o.told.news:
		return nil
	case <-deaf:
		return errDeaf
	case <-o.closed:
		return context.Canceled
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	}
}
