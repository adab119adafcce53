package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/policy"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// channelName is the key of the uplink's backoff in the queue.
const channelName = "uplink"

// dispatcher hands due attachments to a bounded number of workers, as long as no hold forbids it. It sleeps until
// somebody pokes it or a wait ends.
type dispatcher struct {
	queue    *queue.Queue
	spool    *spool.Spool
	log      *slog.Logger
	client   *remote.Client // nil when no server is configured
	uplink   *uplink.Uplink
	channel  *remote.Channel
	schedule remote.Schedule
	workers  int
	accept   config.AcceptGrade
	traffic  *traffic
	windows  policy.Windows
	rnd      func() float64
	wake     chan struct{}
	// broken is why there is no uplink although one is configured.
	broken *policy.Hold
	// trusted tells whether the clock can be right, and if not, why; short whether free space is below the warning.
	trusted func(time.Time) (bool, string)
	short   func() bool
	// paused mirrors the standing decision that pauses all sending.
	paused  *atomic.Bool
	trouble logging.Repeat
	pulse   clock.Pulse

	mu    sync.Mutex
	beats map[string]*beat
	// pending are deliveries whose outcome could not be recorded; at most as many as there are workers.
	pending []unrecorded
	// unable is why the queue cannot record that anything is sent; empty while it can.
	unable attachment.Code
	// suspects are attachments whose failure held the channel since the last success: others go first.
	suspects map[attachment.ID]bool
	rate     float64 // bytes per second of the last transfers; 0 while unknown
	// quiet is until when nothing is given out, so that a fleet that is told to retry does not arrive at one moment.
	quiet time.Time
}

// beat is a worker's sign of life.
type beat struct {
	id    attachment.ID
	last  atomic.Int64 // running time of the last progress, in nanoseconds
	limit time.Duration
}

func (b *beat) now() { b.last.Store(int64(clock.Running())) }

// restarts reports whether a transfer that is interrupted begins at its first byte again.
func (d *dispatcher) restarts() bool { return d.uplink != nil && !d.uplink.Resumes() }

// poke wakes the dispatcher; it never blocks.
func (d *dispatcher) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// loadChannel continues the backoff of the process before. A wait that the clock stretches is cut to its own length.
func (d *dispatcher) loadChannel() error {
	var kept remote.ChannelState
	if _, err := d.queue.Channel(channelName, &kept); err != nil {
		return err
	}
	if latest := time.Now().Add(kept.Wait); kept.NotBefore.After(latest) {
		kept.NotBefore = latest
	}
	d.channel = remote.NewChannel(kept, d.schedule, time.Now, d.rnd)
	return nil
}

// barred returns what people, configuration and time forbid to send; nil allows. What a person put to the front is not
// bound by the windows.
func (d *dispatcher) barred(now time.Time, atFront bool) *policy.Hold {
	if d.broken != nil {
		return d.broken
	}
	s := policy.Sending{Configured: d.uplink != nil, ChannelPaused: d.paused.Load(), AtFront: atFront}
	if len(d.windows) > 0 {
		s.Windows, s.Now, s.StorageShort = d.windows, now, d.short()
		if ok, why := d.trusted(now); !ok {
			s.ClockDoubt = why
		}
	}
	return policy.Send(s)
}

// hold returns what forbids sending now; nil allows.
func (d *dispatcher) hold(now time.Time, atFront bool) *policy.Hold {
	if h := d.barred(now, atFront); h != nil {
		return h
	}
	if s := d.channel.State(); s.Held(now) {
		return &policy.Hold{Code: s.Code, Rule: "uplink.retry", Detail: s.Detail, Ends: "the next attempt"}
	}
	return nil
}

// allowed says what may be given out now, to how many workers beside those that are busy. until is when to look again at
// the latest; zero when somebody pokes.
func (d *dispatcher) allowed(now time.Time, state remote.ChannelState, busy int) (want queue.Want, until time.Time, ok bool) {
	d.mu.Lock()
	quiet := d.quiet
	d.mu.Unlock()
	if now.Before(quiet) {
		return want, quiet, false
	}
	want.Avoid = d.suspect
	if h := d.barred(now, false); h != nil {
		if !h.OfWindow() {
			return want, time.Time{}, false // a person or a configuration ends it, and pokes
		}
		want.Front, until = true, h.Until
		if m, next, err := d.queue.Waiting(want); err == nil && m == nil {
			return want, earlier(until, next), false
		}
	}
	if state.Held(now) {
		until = earlier(until, state.NotBefore)
		// A hold that rests on some items' failures alone lets one that was never tried through, as a witness.
		want.Fresh = true
		return want, until, state.Weak && busy == 0
	}
	// While the channel is under suspicion one attempt at a time is enough to find out.
	return want, until, state.Code == "" || busy == 0
}

// earlier returns the earlier of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// spread keeps everything back for a random moment of at most retrySpread.
func (d *dispatcher) spread() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.After(d.quiet) {
		d.quiet = now.Add(time.Duration(d.rnd() * float64(retrySpread)))
	}
}

// run works until ctx ends and then waits until every worker has recorded where it stopped.
func (d *dispatcher) run(ctx context.Context) error {
	var (
		workers sync.WaitGroup
		slots   = make(chan struct{}, d.workers)
		started int
	)
	for ctx.Err() == nil {
		d.pulse.Beat()
		next, spawned := d.fill(ctx, slots, func(c *queue.Claim, name string) {
			workers.Go(func() {
				defer func() { d.traffic.end(c.Manifest.ID); <-slots; d.poke() }()
				d.work(ctx, c, name)
			})
		}, &started)
		if !spawned {
			d.sleep(ctx, next)
		}
	}
	d.pulse.Rest()
	d.queue.InterruptAll(errStopping)
	workers.Wait()
	record, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	d.settlePending(record)
	return nil
}

// fill claims one attachment if a slot is free and nothing holds. next is when to look again at the latest.
func (d *dispatcher) fill(ctx context.Context, slots chan struct{}, spawn func(*queue.Claim, string), started *int) (next time.Time, spawned bool) {
	now := time.Now()
	if !d.settlePending(ctx) {
		return now.Add(troublePause), false
	}
	state := d.channel.State()
	want, until, ok := d.allowed(now, state, len(slots))
	if !ok {
		return until, false
	}
	if len(slots) == cap(slots) {
		return earlier(until, d.letPass(want)), false
	}
	if state.Code != "" && !want.Fresh && !d.ask(ctx) {
		return d.channel.State().NotBefore, false
	}
	*started++
	name := fmt.Sprintf("worker-%d", *started)
	claim, next, err := d.claim(ctx, name, want)
	d.noteRecording(ctx, err)
	if err != nil {
		if ctx.Err() == nil {
			d.trouble.Fail(ctx, d.log, "claim", "the queue cannot give out work", slog.Any(logging.KeyErr, err))
		}
		return now.Add(troublePause), false
	}
	if claim == nil {
		return earlier(next, until), false
	}
	d.traffic.begin(claim.Manifest)
	slots <- struct{}{}
	spawn(claim, name)
	return time.Time{}, true
}

// troublePause is how long the dispatcher leaves the queue alone when it cannot record anything.
const troublePause = 5 * time.Second

// ask probes the server after an outage, before an attachment is tried.
func (d *dispatcher) ask(ctx context.Context) bool {
	d.pulse.Rest() // a server that is slow to answer is no loop that is stuck
	err := d.client.Probe(ctx)
	d.pulse.Beat()
	if err == nil {
		return true
	}
	var e *remote.Error
	if errors.As(err, &e) {
		d.channel.Failure(ctx, "", e, func(context.Context) error { return err })
		d.keepChannel(ctx)
	}
	return false
}

// sleep waits for a poke, or for a time; the zero time is none.
func (d *dispatcher) sleep(ctx context.Context, until time.Time) {
	var timer <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(max(time.Until(until), time.Millisecond))
		defer t.Stop()
		timer = t.C
	}
	d.pulse.Rest()
	select {
	case <-ctx.Done():
	case <-d.wake:
	case <-timer:
	}
}

// keepChannel makes the channel's backoff durable, so that a restart does not hammer the server.
func (d *dispatcher) keepChannel(ctx context.Context) {
	state := d.channel.State()
	if err := d.queue.PutChannel(ctx, channelName, state); err != nil && ctx.Err() == nil {
		d.trouble.Fail(ctx, d.log, "channel", "the channel's backoff cannot be recorded", slog.Any(logging.KeyErr, err))
	}
	if state.Code != "" {
		d.trouble.Fail(ctx, d.log, "server", "sending is held", slog.String(logging.KeyHold, string(state.Code)),
			slog.Time(logging.KeyNotBefore, state.NotBefore), slog.String(logging.KeyErr, state.Detail))
	}
}

// success tells the channel that the server moved an attachment forward.
func (d *dispatcher) success(ctx context.Context) {
	if d.channel.State() == (remote.ChannelState{}) {
		return
	}
	d.channel.Success()
	d.mu.Lock()
	clear(d.suspects)
	d.mu.Unlock()
	d.keepChannel(ctx)
	d.trouble.Recovered(ctx, d.log, "server")
	d.poke()
}

// maxSuspects bounds the memory of suspects; beyond it nobody is avoided.
const maxSuspects = 1024

// avoid lets other attachments go before one whose failure held the channel.
func (d *dispatcher) avoid(id attachment.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.suspects) >= maxSuspects {
		clear(d.suspects)
	}
	d.suspects[id] = true
}

// trust ends avoid for one attachment.
func (d *dispatcher) trust(id attachment.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.suspects, id)
}

func (d *dispatcher) suspect(id attachment.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.suspects[id]
}

// stopStale takes the claim away from workers that show no progress for the stale-checkpoint interval.
func (d *dispatcher) stopStale() {
	now := clock.Running()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.beats {
		if now-time.Duration(b.last.Load()) > b.limit {
			d.log.Warn("a worker shows no progress; its claim ends", slog.String(logging.KeyAttachment, string(b.id)))
			d.queue.Interrupt(b.id, errStale)
		}
	}
}
