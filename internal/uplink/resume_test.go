package uplink_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// interrupted is a delivery whose first run ended after two of four chunks.
func interrupted(t *testing.T) (*uplinktest.Rig, *delivery) {
	t.Helper()
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
	rig.Server.Inject(uplinktest.Fault{
		Step: remote.StepAppend, After: 2, Times: uplinktest.Always, Act: uplinktest.Refuse(500, wire.CodeInternal, nil),
	})
	d.mustFail(t)
	rig.Server.Heal()
	if seen := d.rec.Seen(); seen.Confirmed != 2*chunk || seen.Session.ID == "" {
		t.Fatalf("recorded %+v", seen)
	}
	return rig, d
}

// sentSince counts what arrives from now on.
func sentSince(s *uplinktest.Server) *int64 {
	var sent int64
	s.OnReceived(func(_ string, from, to int64) { sent += to - from })
	return &sent
}

// A delivery goes on where the last one ended.
func TestResume(t *testing.T) {
	rig, d := interrupted(t)
	sent := sentSince(rig.Server)
	d.mustDeliver(t)
	if *sent != 2*chunk {
		t.Errorf("%d bytes were sent again or anew, want %d", *sent, 2*chunk)
	}
}

// A server that holds more than is recorded here, because an answer was lost, is believed.
func TestResumeServerAhead(t *testing.T) {
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, After: 2, Act: uplinktest.Cut(chunk)})
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepOffset, Times: uplinktest.Always, Act: uplinktest.Refuse(500, wire.CodeInternal, nil)})
	d.mustFail(t)
	rig.Server.Heal()
	sent := sentSince(rig.Server)
	d.mustDeliver(t)
	if *sent != chunk || d.rec.Seen().Losses != 0 {
		t.Errorf("%d bytes sent, want %d; recorded %+v", *sent, chunk, d.rec.Seen())
	}
}

// A session that the server lost, voided or forgot is replaced, the loss is recorded first, and nothing else is given up.
func TestLostSession(t *testing.T) {
	for name, lose := range map[string]func(s *uplinktest.Server, id string) bool{
		"void":      (*uplinktest.Server).Lose,
		"forgotten": (*uplinktest.Server).Forget,
		"truncated": func(s *uplinktest.Server, id string) bool { return s.Truncate(id, chunk) },
	} {
		for _, inTransfer := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " in transfer"}[inTransfer], func(t *testing.T) {
				rig, d := interrupted(t)
				if inTransfer {
					rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Act: func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
						lose(s, string(d.m.ID))
						next.ServeHTTP(w, r)
					}})
				} else {
					lose(rig.Server, string(d.m.ID))
				}
				first := d.rec.Seen().Session
				d.mustDeliver(t)
				if seen := d.rec.Seen(); seen.Losses != 1 || seen.Session == first {
					t.Errorf("recorded %+v", seen)
				}
			})
		}
	}
}

// An offset that went backwards is asked for again before confirmed bytes are given up.
func TestBackwardsIsAskedAgain(t *testing.T) {
	rig, d := interrupted(t)
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepReserve, Act: editBody(`"offset":131072`, `"offset":5`)})
	d.mustDeliver(t)
	if seen := d.rec.Seen(); seen.Losses != 0 || rig.Server.Count(remote.StepOffset) == 0 {
		t.Errorf("recorded %+v", seen)
	}
}

// A server that loses every session is given up after a bounded number of beginnings.
func TestLosesEverySession(t *testing.T) {
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, After: 1, Times: uplinktest.Always, Act: func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		s.Lose(string(d.m.ID))
		next.ServeHTTP(w, r)
	}})
	if e := d.mustFail(t); e.Class != remote.ItemTransient || !e.Charge {
		t.Errorf("got %s: %v", e.Class, e)
	}
	if n := rig.Server.Count(remote.StepReserve); n > 10 {
		t.Errorf("%d reservations", n)
	}
	rig.Server.Heal()
	d.mustDeliver(t)
}

// Bytes that were damaged at the server are sent once more; that they are ours is made sure of first.
func TestServerDamagesBytes(t *testing.T) {
	for name, before := range map[string]remote.Step{"seen by the server": remote.StepAppend, "seen by the device": ""} {
		t.Run(name, func(t *testing.T) {
			rig := uplinktest.Start(t)
			d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
			if before != "" {
				rig.Server.Inject(uplinktest.Fault{Step: before, After: 3, Act: func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
					s.Corrupt(string(d.m.ID), 7)
					next.ServeHTTP(w, r)
				}})
			} else {
				rig.Server.Inject(uplinktest.Fault{Step: remote.StepVerify, Act: editBody(`"sha256":"`, `"sha256":"0`)})
			}
			d.mustDeliver(t)
			if seen := d.rec.Seen(); seen.Losses > 1 || before != "" && seen.Losses != 1 {
				t.Errorf("recorded %+v", seen)
			}
			if got := d.payload.Checked(); got < 8*chunk {
				t.Errorf("%d bytes were checked: the whole payload must be read again", got)
			}
		})
	}
}

// A server that always answers with another digest is given up after a bounded number of beginnings.
func TestServerAlwaysDamages(t *testing.T) {
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, 2*chunk))
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Times: uplinktest.Always, Act: func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get(wire.HeaderUploadOffset) != "0" {
			s.Corrupt(string(d.m.ID), 7)
		}
		next.ServeHTTP(w, r)
	}})
	if e := d.mustFail(t); e.Class != remote.ItemTransient || e.Problem != wire.CodeDigestMismatch {
		t.Errorf("got %s: %v", e.Class, e)
	}
	if n := rig.Server.Count(remote.StepReserve); n > 4 {
		t.Errorf("%d reservations", n)
	}
}

// A payload that is no longer what was captured is noticed before its bytes are sent, and needs a person.
func TestPayloadDamaged(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(p *uplinktest.Payload)
		reason attachment.Code
		err    error
	}{
		"changed": {func(p *uplinktest.Payload) { p.Damage(3*chunk + 5) }, attachment.NeedsPayloadChanged, uplink.ErrPayloadChanged},
		"missing": {(*uplinktest.Payload).Remove, attachment.NeedsPayloadMissing, uplink.ErrPayloadMissing},
		"changed under our eyes": {func(p *uplinktest.Payload) {
			p.FailReads(errors.Join(errors.New("read"), uplink.ErrPayloadChanged))
		}, attachment.NeedsPayloadChanged, uplink.ErrPayloadChanged},
	} {
		t.Run(name, func(t *testing.T) {
			rig, d := interrupted(t)
			sent := sentSince(rig.Server)
			c.spoil(d.payload)
			if e := d.mustFail(t); e.Class != remote.ItemPermanent || e.Reason != c.reason || !errors.Is(e, c.err) {
				t.Errorf("got %s, %s: %v", e.Class, e.Reason, e)
			}
			if *sent != 0 {
				t.Errorf("%d bytes were sent", *sent)
			}
		})
	}
}

// A payload that cannot be read this time is tried again later, and nobody blames the server.
func TestPayloadUnreadable(t *testing.T) {
	rig, d := interrupted(t)
	d.payload.FailReads(errors.New("input/output error"))
	if e := d.mustFail(t); e.Class != remote.ItemTransient || e.Kind != remote.KindUnread || e.Confirm {
		t.Errorf("got %s, %s: %v", e.Class, e.Kind, e)
	}
	if rig.Server.Count(remote.StepOffset) > 1 {
		t.Error("the server was asked for the truth about our own disk")
	}
	d.payload.FailReads(nil)
	d.mustDeliver(t)
}

// verified is a delivery that lacks only its registration.
func verified(t *testing.T, size int) (*uplinktest.Rig, *delivery) {
	t.Helper()
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, size))
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepRegister, Act: uplinktest.Refuse(500, wire.CodeInternal, nil)})
	d.mustFail(t)
	if !d.rec.Seen().Verified {
		t.Fatal("not verified")
	}
	return rig, d
}

// What is verified is registered without any other request.
func TestVerifiedIsOnlyRegistered(t *testing.T) {
	rig, d := verified(t, 4*chunk)
	before := len(rig.Server.Calls())
	d.mustDeliver(t)
	if calls := rig.Server.Calls()[before:]; len(calls) != 1 || calls[0].Step != remote.StepRegister {
		t.Errorf("requests: %v", calls)
	}
}

// Verified bytes that the server lost are recorded as lost before a session is opened, and sent again.
func TestVerifiedIsLost(t *testing.T) {
	for name, lose := range map[string]func(s *uplinktest.Server, id string) bool{
		"void": (*uplinktest.Server).Lose, "forgotten": (*uplinktest.Server).Forget,
	} {
		for _, size := range []int{4 * chunk, 0} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				rig, d := verified(t, size)
				lose(rig.Server, string(d.m.ID))
				d.mustDeliver(t)
				if seen := d.rec.Seen(); seen.Losses != 1 {
					t.Errorf("recorded %+v", seen)
				}
			})
		}
	}
}

// otherDriver is a driver of servers that hold the session of a fieldgw server's attachment for one of theirs, as tus does at the
// same server.
type otherDriver struct {
	uplink.Driver
	given []attachment.Session
}

// Name implements uplink.Driver.
func (*otherDriver) Name() string { return "other" }

// Reserve implements uplink.Driver.
func (o *otherDriver) Reserve(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Reservation, error) {
	o.given = append(o.given, s)
	return o.Driver.Reserve(ctx, m, s)
}

// What another driver began is not gone on with, and what it verified does not count: neither its session nor its verdict means
// to this one what it meant to the other.
func TestDriverChanged(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) (*uplinktest.Rig, *delivery){
		"in transfer": interrupted,
		"verified":    func(t *testing.T) (*uplinktest.Rig, *delivery) { return verified(t, 4*chunk) },
	} {
		rig, d := begin(t)
		other := &otherDriver{Driver: rig.Driver}
		var err error
		if d.up, err = uplink.New(uplink.Options{Driver: other, ChunkMax: chunk, Logger: discard}); err != nil {
			t.Fatal(err)
		}
		d.m.Delivery.Driver = rig.Driver.Name()
		d.mustDeliver(t)
		if len(other.given) != 1 || other.given[0] != (attachment.Session{}) || d.rec.Seen().Losses != 1 {
			t.Errorf("%s: the other driver was given %+v; recorded %+v", name, other.given, d.rec.Seen())
		}
	}
}

// A registration whose answer never arrived is found by reserving, without a byte, and its receipt is checked like any.
func TestRegisteredBefore(t *testing.T) {
	for _, honest := range []bool{true, false} {
		rig := uplinktest.Start(t)
		d := newDelivery(t, rig, uplinktest.Content(1, 2*chunk))
		first := uplinktest.NewRecorder(d.m)
		if err := d.up.Deliver(t.Context(), d.m, 0, d.payload, d.gate, first); err != nil {
			t.Fatal(err)
		}
		sent := sentSince(rig.Server)
		if !honest {
			rig.Server.Inject(uplinktest.Fault{Step: remote.StepReserve, Act: uplinktest.Edit(func(status int, h http.Header, body []byte) (int, []byte) {
				h.Del("Content-Length")
				return status, []byte(strings.Replace(string(body), `"local_id":"inspection-7"`, `"local_id":"other"`, 1))
			})})
			if e := d.mustFail(t); e.Reason != attachment.NeedsReceiptMismatch || d.rec.Seen().Verified {
				t.Errorf("got %s: %v", e.Reason, e)
			}
			continue
		}
		d.mustDeliver(t)
		if *sent != 0 || !d.rec.Seen().Verified {
			t.Errorf("%d bytes sent, recorded %+v", *sent, d.rec.Seen())
		}
	}
}

// Content that the server already has is not sent, and is registered as an attachment of its own.
func TestKnownContent(t *testing.T) {
	rig := uplinktest.Start(t)
	content := uplinktest.Content(1, 2*chunk)
	first, second := newDelivery(t, rig, content), newDelivery(t, rig, content)
	first.mustDeliver(t)
	sent := sentSince(rig.Server)
	second.mustDeliver(t)
	a, b := first.rec.Seen(), second.rec.Seen()
	if *sent != 0 || a.Receipt.MediaID != b.Receipt.MediaID || a.Receipt.AttachmentID == b.Receipt.AttachmentID {
		t.Errorf("%d bytes sent, receipts %+v and %+v", *sent, a.Receipt, b.Receipt)
	}
}

// A server that holds every byte and went down before it finished is made to finish.
func TestPushToFinish(t *testing.T) {
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, 2*chunk))
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepVerify, Act: uplinktest.Edit(func(status int, h http.Header, body []byte) (int, []byte) {
		h.Del("Content-Length")
		return status, []byte(`{"attachment_id":"` + string(d.m.ID) + `","media_id":"m","state":"reserved","generation":1}`)
	})})
	d.mustDeliver(t)
	if n := rig.Server.Count(remote.StepAppend); n != 3 {
		t.Errorf("%d appends, want 2 with bytes and one without", n)
	}
}

// Two workers that deliver one attachment at one time end with one identity and one receipt.
func TestTwoWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := uplinktest.Start(t)
		one := newDelivery(t, rig, uplinktest.Content(1, 8*chunk))
		two := *one
		two.payload = uplinktest.NewPayload(t, one.content)
		two.gate, two.rec = &uplinktest.Gate{}, uplinktest.NewRecorder(one.m)
		errs := make(chan error, 2)
		for _, d := range []*delivery{one, &two} {
			go func() {
				var err error
				for range 5 {
					if err = d.deliver(t.Context(), t); err == nil {
						break
					}
				}
				errs <- err
			}()
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		one.mustBeDelivered(t)
		two.mustBeDelivered(t)
		if a, b := one.rec.Seen().Receipt, two.rec.Seen().Receipt; a.MediaID != b.MediaID || !a.RegisteredAt.Equal(b.RegisteredAt) {
			t.Errorf("receipts %+v and %+v", a, b)
		}
	})
}
