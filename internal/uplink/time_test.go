package uplink_test

import (
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// A gate that closes in the middle of a chunk ends the request within a second, and nothing is lost by it.
func TestGateClosesInTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, After: 1, Act: uplinktest.Hang(chunk / 2)})
		metered := &uplink.Held{Code: attachment.HoldPaused, Detail: "by a person"}
		d.gate.Hold(metered, d.gate.Asked()+5)
		began := time.Now()
		err := d.deliver(t.Context(), t)
		if held, ok := errors.AsType[*uplink.Held](err); !ok || held != metered || remote.ClassOf(err) != remote.Held {
			t.Fatalf("got %v", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the request went on for %s", took)
		}
		calls := len(rig.Server.Calls())
		if err := d.deliver(t.Context(), t); !errors.Is(err, metered) || len(rig.Server.Calls()) != calls {
			t.Errorf("closed gate: %v, %d requests", err, len(rig.Server.Calls())-calls)
		}
		d.gate.Hold(nil, 0)
		sent := sentSince(rig.Server)
		d.mustDeliver(t)
		if *sent > 3*chunk || d.rec.Seen().Losses != 0 {
			t.Errorf("%d bytes sent; recorded %+v", *sent, d.rec.Seen())
		}
	})
}

// The gate is asked at least once a second while a request is under way, and before each.
func TestGateIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		d := newDelivery(t, rig, uplinktest.Content(1, 2*chunk))
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, After: 1, Act: uplinktest.Slow(20 * time.Second)})
		d.mustDeliver(t)
		if asked := d.gate.Asked(); asked < 25 {
			t.Errorf("asked %d times for 5 requests and 20 seconds", asked)
		}
	})
}

// A connection over which nothing moves is given up after the idle timeout; the server is asked for the truth over a new
// one, and sending goes on from there.
func TestHalfOpenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		rig.Network.Plan(func(dial int) uplinktest.Link {
			link := uplinktest.Good()
			if dial == 1 {
				link.Up, link.Stall = 2*chunk, true
			}
			return link
		})
		d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
		began := time.Now()
		d.mustDeliver(t)
		if took := time.Since(began); took < remote.DefaultIdleTimeout || took > 2*remote.DefaultIdleTimeout {
			t.Errorf("took %s", took)
		}
		if seen := d.rec.Seen(); seen.Losses != 0 || seen.Opened != 1 {
			t.Errorf("recorded %+v", seen)
		}
	})
}

// A server that takes its time for the last chunk, because it reads everything it stored, is waited for beyond the idle
// timeout; not beyond the answer's.
func TestSlowAnswer(t *testing.T) {
	for wait, want := range map[time.Duration]remote.Kind{4 * time.Minute: "", 6 * time.Minute: remote.KindSilent} {
		t.Run(wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := uplinktest.Start(t)
				d := newDelivery(t, rig, uplinktest.Content(1, 2*chunk))
				for _, step := range []remote.Step{remote.StepAppend, remote.StepVerify, remote.StepRegister} {
					rig.Server.Inject(uplinktest.Fault{Step: step, Times: uplinktest.Always, Act: uplinktest.Slow(wait)})
				}
				if want == "" {
					d.mustDeliver(t)
					return
				}
				if e := d.mustFail(t); e.Kind != want || !errors.Is(e, remote.ErrSilent) || !e.Confirm {
					t.Errorf("got %s: %v", e.Kind, e)
				}
				if seen := d.rec.Seen(); seen.Confirmed != 2*chunk {
					t.Errorf("recorded %+v: the server was asked what it holds", seen)
				}
			})
		})
	}
}

// A session that is locked by an append which the server still believes in is waited for, not begun anew.
func TestLockedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		d := newDelivery(t, rig, uplinktest.Content(1, 2*chunk))
		locked := time.Now().Add(5 * time.Second)
		rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Times: uplinktest.Always, Act: func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
			if time.Now().Before(locked) {
				uplinktest.Refuse(423, wire.CodeBusy, http.Header{"Retry-After": {"3"}})(s, w, r, next)
				return
			}
			next.ServeHTTP(w, r)
		}})
		d.mustDeliver(t)
		if seen := d.rec.Seen(); seen.Losses != 0 || seen.Opened != 1 {
			t.Errorf("recorded %+v", seen)
		}
	})
}

// An adapting pace makes chunks smaller on a slow link and larger on a fast one, within its bounds.
func TestPaceAdapts(t *testing.T) {
	for name, c := range map[string]struct {
		size       int   // bytes
		speed      int64 // bytes a second
		least, top int64 // bounds of the largest append
	}{
		"slow":        {4 << 20, 20 << 10, 1 << 20, 1 << 20},
		"fast enough": {16 << 20, 1 << 20, 8 << 20, 8 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := uplinktest.Start(t)
				d := newDelivery(t, rig, uplinktest.Content(1, c.size))
				up, err := uplink.New(uplink.Options{Driver: rig.Driver, ChunkTime: uplink.DefaultChunkTime, Logger: discard})
				if err != nil {
					t.Fatal(err)
				}
				d.up = up
				var sizes []int64
				rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Times: uplinktest.Always, Act: func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
					sizes = append(sizes, r.ContentLength)
					uplinktest.Slow(time.Duration(r.ContentLength*int64(time.Second)/c.speed))(s, w, r, next)
				}})
				d.mustDeliver(t)
				var largest int64
				for _, n := range sizes {
					largest = max(largest, n)
				}
				if largest < c.least || largest > c.top {
					t.Errorf("largest append %d, want %d to %d: %v", largest, c.least, c.top, sizes)
				}
				if middle := sizes[len(sizes)/2]; name == "slow" && middle > 256<<10 {
					t.Errorf("appends of %v on a slow link", sizes)
				}
			})
		})
	}
}

// The rate limit holds for all deliveries together, a gate that closes ends a delivery that waits for its share, and no
// timeout takes a slow rate for a dead link.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		const rate, size = 2000, 2 * chunk
		up, err := uplink.New(uplink.Options{Driver: rig.Driver, ChunkMax: chunk, Limiter: uplink.NewLimiter(rate), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var both sync.WaitGroup
		for seed := range uint64(2) {
			d := newDelivery(t, rig, uplinktest.Content(seed+1, size))
			d.up = up
			both.Go(func() { d.mustDeliver(t) })
		}
		both.Wait()
		if took, want := time.Since(began), 2*size*time.Second/rate; took < want-time.Second || took > want+want/20 {
			t.Errorf("%d bytes at %d B/s took %s, want %s", 2*size, rate, took, want)
		}
		d := newDelivery(t, rig, uplinktest.Content(3, size))
		d.up = up
		held := &uplink.Held{Code: attachment.HoldPaused}
		d.gate.Hold(held, 10)
		if err := d.deliver(t.Context(), t); !errors.Is(err, held) {
			t.Errorf("got %v", err)
		}
	})
}
