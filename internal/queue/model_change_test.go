package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

// change is one operation of a life, possible or not, on any attachment.
func (w *world) change() {
	id := w.pick()
	it := w.items[id]
	if it == nil {
		it = &item{} // nothing will happen to it
	}
	ops := []func(attachment.ID, *item){
		w.opSession, w.opSession, w.opOffset, w.opOffset, w.opOffset, w.opLost, w.opVerified, w.opVerified, w.opRegistered,
		w.opRegistered, w.opSent, w.opAccepted, w.opInterrupted, w.opPostponed, w.opFailed, w.opAttention, w.opRetry, w.opPrioritize, w.opYielded, w.opPause, w.opResume, w.opSource, w.opBind, w.opBind,
		w.opEndWait, w.opRefuse, w.opSidecarGone, w.opSeen,
	}
	ops[w.rnd.IntN(len(ops))](id, it)
}

func (w *world) opSession(id attachment.ID, it *item) {
	n := 1 + w.rnd.IntN(3)
	s := attachment.Session{ID: fmt.Sprintf("s%d", n), URL: fmt.Sprintf("/v1/uploads/s%d", n), Generation: n}
	offset := w.rnd.Int64N(it.m.Length + 1)
	w.note("%s: session %s at %d", id, s.ID, offset)
	got := w.q.SessionOpened(w.t.Context(), id, s, "fieldgw", "m1", offset)
	want := w.apply(id, attachment.EventSessionOpened, "", "", "", func(m *attachment.Manifest) {
		if m.State == attachment.Ready {
			m.Delivery.Attempts++
		}
		m.Delivery.Driver, m.Delivery.MediaID, m.Delivery.Session = "fieldgw", "m1", s
	})
	if want == nil {
		it.confirmed = offset
	}
	w.settle(id, got, want)
}

func (w *world) opOffset(id attachment.ID, it *item) {
	s, offset := it.m.Delivery.Session.ID, it.confirmed+w.rnd.Int64N(max(1, it.m.Length-it.confirmed)+1)
	switch w.rnd.IntN(8) {
	case 0:
		s = "another"
	case 1:
		offset = it.confirmed - 1
	case 2:
		offset = it.m.Length + 1
	}
	w.note("%s: offset %d of %q", id, offset, s)
	var want error
	switch {
	case w.items[id] == nil:
		want = ErrNotFound
	case s == "" || s != it.m.Delivery.Session.ID:
		want = ErrStaleSession
	case offset < it.confirmed || offset > it.m.Length:
		want = ErrOffset
	default:
		it.confirmed = offset
	}
	w.settle(id, w.q.CommitOffset(w.t.Context(), id, s, offset), want)
}

func (w *world) opLost(id attachment.ID, it *item) {
	w.note("%s: lost", id)
	got := w.q.Lost(w.t.Context(), id, attachment.HoldServerError, "gone")
	want := w.apply(id, attachment.EventLost, attachment.HoldServerError, "gone", "", func(m *attachment.Manifest) {
		m.Delivery.Session.ID, m.Delivery.Session.URL, m.Delivery.Verified = "", "", false
	})
	if want == nil {
		it.confirmed = 0
	}
	w.settle(id, got, want)
}

func (w *world) opVerified(id attachment.ID, _ *item) {
	w.note("%s: verified", id)
	got := w.q.Verified(w.t.Context(), id, "m2")
	w.settle(id, got, w.apply(id, attachment.EventVerified, "", "", "", func(m *attachment.Manifest) {
		m.Delivery.Verified, m.Delivery.MediaID, m.Delivery.Failures = true, "m2", 0
		m.Delivery.ParentFixed = true
	}))
}

func (w *world) opRegistered(id attachment.ID, it *item) {
	r := receipt.Receipt{
		AttachmentID: string(id), MediaID: "m3", Length: it.m.Length, SHA256: it.m.SHA256.String(), Grade: receipt.RegisteredDurable,
		RegisteredAt: w.now(), Server: "model",
	}
	if w.rnd.IntN(2) == 0 {
		r.Parent.ServerID = "srv-1"
	}
	lower := w.rnd.IntN(6) == 0
	if lower {
		r.Grade = receipt.LengthOnly
	}
	w.note("%s: registered with %s", id, r.Grade)
	got := w.q.Registered(w.t.Context(), r)
	if lower {
		w.settle(id, got, receipt.ErrMismatch)
		return
	}
	w.received(id, it, r, got, attachment.EventRegistered, "", "", "")
}

// lowerReceipt is one of a grade that is not delivery, or now and then, is of the other kind.
func (w *world) lowerReceipt(id attachment.ID, it *item, grade, other receipt.Grade) (r receipt.Receipt, wrong bool) {
	r = receipt.Receipt{
		AttachmentID: string(id), MediaID: "m3", Length: it.m.Length, SHA256: it.m.SHA256.String(), Grade: grade,
		RegisteredAt: w.now(), Server: "model",
	}
	if wrong = w.rnd.IntN(6) == 0; wrong {
		r.Grade = other
	}
	return r, wrong
}

func (w *world) opSent(id attachment.ID, it *item) {
	r, wrong := w.lowerReceipt(id, it, receipt.LengthOnly, receipt.Registered)
	w.note("%s: sent with %s", id, r.Grade)
	got := w.q.Sent(w.t.Context(), r)
	if wrong {
		w.settle(id, got, receipt.ErrMismatch)
		return
	}
	w.received(id, it, r, got, attachment.EventSent, attachment.HoldGrade, string(r.Grade), "")
}

func (w *world) opAccepted(id attachment.ID, it *item) {
	r, wrong := w.lowerReceipt(id, it, receipt.VerifiedDigest, receipt.LengthOnly)
	w.note("%s: accepted with %s", id, r.Grade)
	got := w.q.Accepted(w.t.Context(), r, "a setting")
	if wrong {
		w.settle(id, got, receipt.ErrMismatch)
		return
	}
	w.received(id, it, r, got, attachment.EventAccepted, "", string(r.Grade), "a setting")
}

// received is what a receipt means to the model.
func (w *world) received(id attachment.ID, it *item, r receipt.Receipt, got error, event attachment.Event, reason attachment.Code, detail, by string) {
	want := w.apply(id, event, reason, detail, by, func(m *attachment.Manifest) {
		d := &m.Delivery
		d.Grade, d.RegisteredAt, d.MediaID = string(r.Grade), r.RegisteredAt, "m3"
		d.NotBefore, d.Wait, d.Failures, d.ErrorCode = time.Time{}, 0, 0, ""
		if r.Parent.ServerID != "" {
			m.Parent.ServerID = r.Parent.ServerID
		}
	})
	if want == nil {
		it.failure, it.receipt = nil, &r
		if event != attachment.EventSent {
			w.delivered = w.now()
		}
		w.endClaim(it)
	}
	w.settle(id, got, want)
}

func (w *world) opInterrupted(id attachment.ID, it *item) {
	w.note("%s: interrupted", id)
	got := w.q.Interrupted(w.t.Context(), id, attachment.HoldOffline, "cut")
	w.ended(id, it, got, w.apply(id, attachment.EventInterrupted, attachment.HoldOffline, "cut", "", nil), nil)
}

func (w *world) opPostponed(id attachment.ID, it *item) {
	wait := w.duration()
	w.note("%s: postponed by %s", id, wait)
	got := w.q.Postponed(w.t.Context(), id, attachment.HoldWaitingParent, "soon", wait)
	w.ended(id, it, got, w.apply(id, attachment.EventInterrupted, attachment.HoldWaitingParent, "soon", "", func(m *attachment.Manifest) {
		m.Delivery.NotBefore, m.Delivery.Wait, m.Delivery.ErrorCode = w.now().Add(wait), wait, attachment.HoldWaitingParent
	}), nil)
}

// ended is settle for what ends a claim when it is possible.
func (w *world) ended(id attachment.ID, it *item, got, want error, f *Failure) {
	if want == nil {
		if f != nil {
			it.failure = f
		}
		w.endClaim(it)
	}
	w.settle(id, got, want)
}

func (w *world) opFailed(id attachment.ID, it *item) {
	wait := w.duration()
	f := Failure{Code: attachment.HoldServerError, Message: string(make([]byte, w.rnd.IntN(700))) + "!", Status: 500}
	w.note("%s: failed, wait %s", id, wait)
	got := w.q.Failed(w.t.Context(), id, f, func(failures int) time.Duration { return wait * time.Duration(failures) })
	f.At, f.Offset = w.now(), it.confirmed
	moved := it.failure != nil && f.Offset > it.failure.Offset
	w.ended(id, it, got, w.apply(id, attachment.EventFailed, f.Code, f.Message, "", func(m *attachment.Manifest) {
		d := &m.Delivery
		if m.State == attachment.Ready {
			d.Attempts++
		}
		if moved {
			d.Failures = 0
		}
		d.Failures++
		d.Wait, d.ErrorCode = max(wait*time.Duration(d.Failures), time.Millisecond), f.Code
		d.NotBefore = w.now().Add(d.Wait)
	}), &f)
}

func (w *world) opAttention(id attachment.ID, it *item) {
	f := Failure{Code: attachment.NeedsSizeLimit, Message: "too large", Status: 413}
	w.note("%s: attention", id)
	got := w.q.RaiseAttention(w.t.Context(), id, f)
	f.At = w.now()
	w.ended(id, it, got, w.apply(id, attachment.EventAttention, f.Code, f.Message, "", func(m *attachment.Manifest) {
		if m.State == attachment.Ready {
			m.Delivery.Attempts++
		}
		m.Delivery.ErrorCode = f.Code
	}), &f)
}

func (w *world) opRetry(id attachment.ID, it *item) {
	w.note("%s: retry", id)
	got := w.q.Retry(w.t.Context(), id, "uid 7", "now")
	if p := it.m.Problem; p != nil && p.Code == attachment.NeedsDamagedEarly {
		w.settle(id, got, attachment.ErrTransition)
		return
	}
	want := w.apply(id, attachment.EventRetried, "", "now", "uid 7", func(m *attachment.Manifest) {
		d := &m.Delivery
		d.NotBefore, d.Wait, d.Failures, d.ErrorCode = time.Time{}, 0, 0, ""
		d.Grade, d.RegisteredAt = "", time.Time{}
		if m.Problem != nil && m.Problem.Code == attachment.NeedsSidecarInvalid {
			m.Prepared, m.Binding.Wait = true, 0
		}
	})
	if want == nil {
		w.endWait(id, "uid 7", "a person does not wait for its sidecar")
	}
	w.settle(id, got, want)
}

func (w *world) opPrioritize(id attachment.ID, it *item) {
	needed := it.m.Priority < attachment.PriorityFront || !it.m.Delivery.NotBefore.IsZero()
	w.note("%s: prioritized, needed %v", id, needed)
	changed, got := w.q.Prioritize(w.t.Context(), id, "uid 7", "now")
	var want error
	if w.items[id] == nil {
		want = ErrNotFound
	} else if _, err := attachment.Next(it.m.State, attachment.EventPrioritized, it.m.Facts()); err != nil || !needed {
		want = err
	} else {
		want = w.apply(id, attachment.EventPrioritized, "", "now", "uid 7", func(m *attachment.Manifest) {
			d := &m.Delivery
			m.Priority = attachment.PriorityFront
			d.NotBefore, d.Wait, d.Failures, d.ErrorCode = time.Time{}, 0, 0, ""
		})
	}
	if changed != (want == nil && needed) {
		w.t.Errorf("%s prioritized: changed %v, needed %v", id, changed, needed)
	}
	w.settle(id, got, want)
}

func (w *world) opYielded(id attachment.ID, it *item) {
	w.note("%s: yielded", id)
	got := w.q.Yielded(w.t.Context(), id, "aside")
	w.ended(id, it, got, w.apply(id, attachment.EventInterrupted, attachment.HoldQueued, "aside", "", func(m *attachment.Manifest) {
		m.Delivery.Attempts = max(0, m.Delivery.Attempts-1)
	}), nil)
}

func (w *world) opPause(id attachment.ID, it *item) { w.pauseOrResume(id, it, true) }

func (w *world) opResume(id attachment.ID, it *item) { w.pauseOrResume(id, it, false) }

func (w *world) pauseOrResume(id attachment.ID, it *item, pause bool) {
	event, reason, do := attachment.EventResumed, attachment.Code(""), w.q.Resume
	if pause {
		event, reason, do = attachment.EventPaused, attachment.HoldPaused, w.q.Pause
	}
	needed := it.m.Paused != pause
	w.note("%s: %s, needed %v", id, event, needed)
	changed, got := do(w.t.Context(), id, "uid 7", "wait")
	var want error
	if w.items[id] == nil {
		want = ErrNotFound
	} else if _, err := attachment.Next(it.m.State, event, it.m.Facts()); err != nil || !needed {
		want = err
	} else {
		want = w.apply(id, event, reason, "wait", "uid 7", func(m *attachment.Manifest) {
			m.Paused = pause
			if latest := w.now().Add(m.Delivery.Wait); !pause && m.Delivery.NotBefore.After(latest) {
				m.Delivery.NotBefore = latest
			}
		})
	}
	if changed != (want == nil && needed) {
		w.t.Errorf("%s of %s: changed %v, needed %v", event, id, changed, needed)
	}
	if changed && pause && it.claim != nil && !errors.Is(context.Cause(it.claim.Context()), ErrPaused) {
		w.t.Errorf("%s is paused and its worker was not told", id)
	}
	w.settle(id, got, want)
}

func (w *world) opSource(id attachment.ID, it *item) {
	if w.rnd.IntN(2) == 0 {
		w.note("%s: source kept", id)
		got := w.q.SourceKept(w.t.Context(), id, "in use")
		w.settle(id, got, w.apply(id, attachment.EventSourceKept, "", "in use", "", func(m *attachment.Manifest) {
			m.Source.ReleasePending, m.Source.Kept = false, "in use"
		}))
		return
	}
	w.note("%s: source released", id)
	got := w.q.SourceReleased(w.t.Context(), id)
	want := w.apply(id, attachment.EventSourceGone, "", "", "", func(m *attachment.Manifest) {
		m.Source.ReleasePending, m.Source.Kept, m.Source.Released = false, "", true
	})
	if want == nil {
		w.forget(it.m.Source.Watch, it.m.Source.RelPath.Exact(), id)
	}
	w.settle(id, got, want)
}

// opSeen is a source seen again: under another name or another description.
func (w *world) opSeen(id attachment.ID, _ *item) {
	s := Sighting{Watch: "card", RelPath: fmt.Sprintf("r-%d", w.rnd.IntN(20)), Medium: []string{"", "uuid:1"}[w.rnd.IntN(2)]}
	s.Identity = attachment.SourceIdentity{Device: 3, Inode: w.rnd.Uint64N(9), Size: w.rnd.Int64N(2), MTimeNS: w.rnd.Int64N(2)}
	moved := []string{"", "/card/" + s.RelPath}[w.rnd.IntN(2)]
	w.note("%s: seen again as %s, moved to %q", id, s.RelPath, moved)
	got := w.q.SeenAgain(w.t.Context(), s, id, moved, "seen")
	want := w.apply(id, attachment.EventSeenAgain, "", "seen", "", func(m *attachment.Manifest) {
		if moved != "" {
			m.Source.Path, m.Source.RelPath = attachment.NameOf(moved), attachment.NameOf(s.RelPath)
			m.Source.Medium, m.Source.Identity = s.Medium, s.Identity
		}
	})
	if want == nil {
		w.forget(s.Watch, s.RelPath, id)
		w.ledger[rowOf(s)] = Known{id, s.Identity.Device, s.Identity.Inode, s.ChangedNS}
	}
	w.settle(id, got, want)
}

// adoptionsUnderWay records intents or gives them up.
func (w *world) adoptionsUnderWay() {
	if w.rnd.IntN(3) == 0 {
		for id := range w.intakes {
			w.note("%s: intake dropped", id)
			if err := w.q.DropIntakes(w.t.Context(), id, w.newID()); err != nil {
				w.t.Fatal(err)
			}
			delete(w.intakes, id)
			return
		}
	}
	var all []Intake
	for range 1 + w.rnd.IntN(3) {
		in := Intake{ID: w.newID(), Way: attachment.CustodySubmit, Filename: attachment.NameOf("f"), Declared: w.rnd.Int64N(9)}
		all = append(all, in)
		in.At = w.now()
		w.intakes[in.ID] = in
	}
	w.note("%d intakes", len(all))
	if err := w.q.PutIntakes(w.t.Context(), all...); err != nil {
		w.t.Fatal(err)
	}
}

// channelWide is a standing decision, or the channel's backoff.
func (w *world) channelWide() {
	name := []string{DecisionPauseChannel, "other"}[w.rnd.IntN(2)]
	_, stands := w.decisions[name]
	var err error
	switch w.rnd.IntN(3) {
	case 0:
		w.note("decision %s", name)
		d := Decision{Name: name, By: "uid 7", At: w.now()}
		if err = w.q.PutDecision(w.t.Context(), d); !stands {
			w.decisions[name] = d
			w.row(nil, EventChannelPaused, "", "", "", "", "")
		}
	case 1:
		w.note("decision %s lifted", name)
		var changed bool
		changed, err = w.q.LiftDecision(w.t.Context(), name, "uid 7", "")
		if changed != stands {
			w.t.Errorf("decision %s: lifted %v, stood %v", name, changed, stands)
		}
		if delete(w.decisions, name); stands {
			w.row(nil, EventChannelResumed, "", "", "", "", "")
		}
	default:
		w.channel++
		err = w.q.PutChannel(w.t.Context(), "uplink", w.channel)
	}
	if err != nil || w.published != w.rows {
		w.t.Errorf("channel: %v; %d rows published, the model has %d", err, w.published, w.rows)
	}
}
