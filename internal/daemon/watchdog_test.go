package daemon

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging/loggingtest"
)

// The watchdog feeds while every loop waits or gets on, and no longer than its interval after the last sign of one; of a
// loop with several hands one is enough. It tells once where everybody stands.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fed atomic.Int64
		log := &loggingtest.Buffer{}
		w := newWatchdog(Options{
			Watchdog: 30 * time.Second, Notify: func(string) { fed.Add(1) },
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		var loop, first, second clock.Pulse
		w.add("loop", &loop)
		w.add("hands", &first, &second)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.run(ctx); close(done) }()
		minute := func(what string, want int64) {
			t.Helper()
			before := fed.Load()
			<-time.After(time.Minute + time.Millisecond)
			if got := fed.Load() - before; got != want {
				t.Errorf("%s: fed %d times, want %d", what, got, want)
			}
		}
		<-time.After(time.Millisecond)
		minute("all wait", 6)
		first.Beat()
		minute("one hand is stuck", 6)
		loop.Beat()
		minute("a loop is stuck", 3)
		minute("still", 0)
		loop.Beat()
		minute("it turned once", 3)
		loop.Rest()
		second.Beat()
		minute("both hands are stuck", 3)
		w.removeAll()
		minute("the loops have ended", 6)
		if n := strings.Count(log.String(), "a loop is stuck"); n != 1 || !strings.Contains(log.String(), "TestWatchdog") {
			t.Errorf("told %d times: %.300s", n, log)
		}
		cancel()
		<-done
	})
}

// A daemon whose adoptions all hang tells the service manager nothing more, and says where; when they go on, so does it.
// Before that it feeds, idle as it is.
func TestStuckLoopStarvesTheWatchdog(t *testing.T) {
	d := newDevice(t)
	var hang atomic.Bool
	hanging := make(chan struct{})
	d.fs = durable.Hooked(func(c durable.Call) error {
		if hang.Load() && strings.Contains(c.Path, "/staging/") {
			<-hanging
		}
		return nil
	})
	d.watchdog = 3 * time.Second
	d.up()
	d.until("fed", func() bool { return d.fed.Load() > 2 })
	hang.Store(true)
	names := []string{"a.jpg", "b.jpg", "c.jpg", "d.jpg"}
	for _, name := range names {
		d.drop("insp-7/"+name, 1000)
	}
	d.until("stuck", func() bool { return strings.Contains(d.log.String(), "a loop is stuck") })
	before := d.fed.Load()
	<-time.After(2 * d.watchdog / 3)
	if after := d.fed.Load(); after != before {
		t.Errorf("fed %d times while all adopters hang", after-before)
	}
	for _, want := range []string{"loops=custody", "internal/intake"} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
	hang.Store(false)
	close(hanging)
	d.until("fed again", func() bool { return d.fed.Load() > before })
	d.delivered(names...)
}
