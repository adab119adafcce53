package uplink_test

import (
	"errors"
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

// streaming is a delivery of so many chunks to a server that confirms while an append lasts, as talk says, and whose
// confirmed offsets are watched from the server's side.
func streaming(t *testing.T, chunks int, talk uplinktest.Interim) (*uplinktest.Rig, *delivery, *window) {
	t.Helper()
	rig := uplinktest.Start(t)
	rig.Server.Offer(wire.DialectTus, wire.DialectRUFH)
	rig.Server.SetInterim(talk)
	d := newDelivery(t, rig, uplinktest.Content(1, chunks*chunk+1))
	w := &window{t: t}
	rig.Server.OnReceived(w.arrived)
	d.rec.OnCommit(w.committed)
	return rig, d, w
}

// One append carries the whole file, never more than a chunk beyond what is recorded, and offsets are recorded as it goes.
func TestLongAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig, d, w := streaming(t, 40, uplinktest.Truly)
		var commits []int64
		d.rec.OnCommit(func(offset int64) {
			w.committed(offset)
			commits = append(commits, offset)
		})
		d.mustDeliver(t)
		if n := rig.Server.Count(remote.StepAppend); n != 1 {
			t.Errorf("%d appends", n)
		}
		if len(commits) < 40 || len(commits) > 40*8+3 {
			t.Errorf("%d offsets recorded", len(commits))
		}
		if seen := d.rec.Seen(); seen.Moved != int64(len(d.content)) {
			t.Errorf("%d bytes left for %d", seen.Moved, len(d.content))
		}
	})
}

// On a slow link offsets are recorded about once a second, long before the window is full.
func TestLongAppendOnSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig, d, w := streaming(t, 4, func(stored int64) []int64 {
			<-time.After(200 * time.Millisecond) // 4 KiB each
			return []int64{stored}
		})
		commits := 0
		d.rec.OnCommit(func(offset int64) {
			w.committed(offset)
			commits++
		})
		d.mustDeliver(t)
		if n := rig.Server.Count(remote.StepAppend); n != 1 || commits < 8 || commits > 16 {
			t.Errorf("%d appends, %d offsets recorded in 13 s", n, commits)
		}
	})
}

// Confirmations that cannot be true are not believed, and those after the answer are not heard; the file arrives, and what
// is recorded is what the server has.
func TestLyingConfirmations(t *testing.T) {
	for name, talk := range map[string]uplinktest.Interim{
		"backwards":   func(stored int64) []int64 { return []int64{stored, stored - 1, 0, -5, stored} },
		"beyond":      func(stored int64) []int64 { return []int64{1 << 60, stored, stored + 2*chunk} },
		"only beyond": func(stored int64) []int64 { return []int64{stored + 2*chunk} },
		"only old":    func(int64) []int64 { return []int64{0} },
		"none":        nil,
		"seldom":      uplinktest.InSteps(chunk - 100),
		"too seldom":  uplinktest.InSteps(2 * chunk),
		"flood": func(stored int64) []int64 {
			all := make([]int64, 500)
			for i := range all {
				all[i] = stored
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, d, w := streaming(t, 6, talk)
				d.mustDeliver(t)
				if w.received != int64(len(d.content)) || d.rec.Seen().Losses != 0 {
					t.Errorf("%d bytes for %d; recorded %+v", w.received, len(d.content), d.rec.Seen())
				}
			})
		})
	}
	t.Run("late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rig, d, _ := streaming(t, 6, uplinktest.Truly)
			rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Times: uplinktest.Always, Act: uplinktest.LateInterim(1, 1<<50)})
			d.mustDeliver(t)
		})
	})
}

// Where no confirmation arrives, sending goes on in chunks after two tries, and an hour later it is tried again.
func TestUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig, d, _ := streaming(t, 10, nil)
		d.mustDeliver(t)
		lengths := func() (n int) {
			for _, c := range rig.Server.Calls() {
				if c.Step == remote.StepAppend && c.Header.Get(wire.HeaderInteropVersion) != "" {
					n++
				}
			}
			return n
		}
		if n := lengths(); n != 2 {
			t.Errorf("%d long appends before chunks", n)
		}
		next := newDelivery(t, rig, uplinktest.Content(2, 3*chunk))
		next.up = d.up
		next.mustDeliver(t)
		if n := lengths(); n != 2 {
			t.Errorf("%d long appends after two that nothing was heard of", n)
		}
		<-time.After(time.Hour)
		rig.Server.SetInterim(uplinktest.Truly)
		next = newDelivery(t, rig, uplinktest.Content(3, 3*chunk))
		next.up = d.up
		next.mustDeliver(t)
		if n := lengths(); n != 3 {
			t.Errorf("%d long appends an hour later", n)
		}
	})
}

// A connection that breaks or goes silent while the window is full is the connection's fault: the session is asked and sending
// goes on. Nothing that was confirmed is sent again, and what was heard last is recorded.
func TestLongAppendIsCut(t *testing.T) {
	for name, act := range map[string]uplinktest.Act{
		"cut": uplinktest.Cut(5 * chunk / 2), "silent": uplinktest.Hang(5 * chunk / 2),
		"refused": func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
			uplinktest.Cut(chunk/2)(s, w, r, next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig, d, w := streaming(t, 6, uplinktest.Truly)
				rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Times: 2, Act: act})
				d.mustDeliver(t)
				seen := d.rec.Seen()
				if w.received != int64(len(d.content)) || seen.Losses != 0 || seen.Moved > int64(len(d.content))+2*chunk {
					t.Errorf("%d bytes stored, %d left for %d; recorded %+v", w.received, seen.Moved, len(d.content), seen)
				}
			})
		})
	}
}

// A gate that closes ends a long append, also one that waits for a confirmation, and what was confirmed is recorded.
func TestGateClosesInLongAppend(t *testing.T) {
	for name, act := range map[string]uplinktest.Act{"waiting": uplinktest.Hang(2 * chunk), "moving": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig, d, w := streaming(t, 6, func(stored int64) []int64 {
					<-time.After(100 * time.Millisecond)
					return []int64{stored}
				})
				if act != nil {
					rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: act})
				}
				held := &uplink.Held{Code: attachment.HoldPaused}
				d.gate.Hold(held, 5)
				began := time.Now()
				if err := d.deliver(t.Context(), t); !errors.Is(err, held) {
					t.Fatalf("got %v", err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("went on for %s", took)
				}
				if seen := d.rec.Seen(); seen.Confirmed < chunk/2 {
					t.Errorf("recorded %+v", seen)
				}
				d.gate.Hold(nil, 0)
				d.mustDeliver(t)
				if w.received != int64(len(d.content)) {
					t.Errorf("%d bytes stored for %d", w.received, len(d.content))
				}
			})
		})
	}
}

// What goes wrong on the device in the middle of a long append is told apart: bytes that changed, that cannot be read, and an
// offset that cannot be recorded.
func TestLongAppendFailsOnDevice(t *testing.T) {
	far := int64(attachment.SegmentSize)
	for name, c := range map[string]struct {
		spoil func(d *delivery)
		check func(err error) bool
	}{
		"changed": {func(d *delivery) { d.payload.Damage(far + 5) }, func(err error) bool {
			e, ok := errors.AsType[*remote.Error](err)
			return ok && e.Reason == attachment.NeedsPayloadChanged
		}},
		"removed": {func(d *delivery) {
			d.rec.OnCommit(func(offset int64) {
				if offset > chunk {
					d.payload.Remove()
				}
			})
		}, func(err error) bool {
			e, ok := errors.AsType[*remote.Error](err)
			return ok && e.Reason == attachment.NeedsPayloadMissing
		}},
		"unrecorded": {func(d *delivery) { d.rec.Fail("Committed", errFull) }, func(err error) bool {
			return errors.Is(err, uplink.ErrRecord) && errors.Is(err, errFull)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := uplinktest.Start(t)
				rig.Server.Offer(wire.DialectTus, wire.DialectRUFH)
				d := newDelivery(t, rig, uplinktest.Content(1, int(far)+10*chunk))
				c.spoil(d)
				if err := d.deliver(t.Context(), t); !c.check(err) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

var errFull = errors.New("no space left")

// Several long appends at one time, over one uplink, keep to themselves.
func TestLongAppendsTogether(t *testing.T) {
	rig := uplinktest.Start(t)
	rig.Server.Offer(wire.DialectTus, wire.DialectRUFH)
	up := rig.Uplink(t, chunk)
	var wg sync.WaitGroup
	for i := range uint64(6) {
		d := newDelivery(t, rig, uplinktest.Content(i, 20*chunk+int(i)))
		d.up = up
		wg.Go(func() {
			if err := d.deliver(t.Context(), t); err != nil {
				t.Error(err)
				return
			}
			d.mustBeDelivered(t)
		})
	}
	wg.Wait()
	if n := rig.Server.Count(remote.StepAppend); n != 6 {
		t.Errorf("%d appends for 6 files", n)
	}
}
