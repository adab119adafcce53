package remote

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// bench is a channel with a clock and a status endpoint of its own.
type bench struct {
	*Channel
	at     time.Time
	status error
	probes int
}

func newBench() *bench {
	b := &bench{at: time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)}
	b.Channel = NewChannel(ChannelState{}, DefaultSchedule(), func() time.Time { return b.at }, func() float64 { return 0.5 })
	return b
}

func (b *bench) fail(item attachment.ID, e *Error) Verdict {
	return b.Failure(context.Background(), item, e, func(context.Context) error {
		b.probes++
		return b.status
	})
}

// past lets the wait go by.
func (b *bench) past() { b.at = b.State().NotBefore }

func refusal(status int, code wire.Code) *Error {
	c := Case{Step: StepAppend, Kind: KindProblem, Status: status, Problem: code}
	return &Error{Step: c.Step, Kind: c.Kind, Status: status, Problem: code, Ruling: Classify(c)}
}

var (
	item    = Verdict{ChargeItem: true}
	channel = Verdict{HoldChannel: true}
	broken3 = func() *Error { return Fail(StepAppend, KindBroken, errors.New("reset")) }
	noRoute = func() *Error { return Fail(StepReserve, KindConnect, errors.New("no route")) }
)

// What speaks for itself is judged without asking the server.
func TestChannelPlainCases(t *testing.T) {
	for name, c := range map[string]struct {
		e    *Error
		want Verdict
	}{
		"no connection":   {noRoute(), channel},
		"certificate":     {Fail(StepReserve, KindTLS, nil), channel},
		"stopping":        {refusal(503, wire.CodeShuttingDown), channel},
		"credential":      {refusal(401, wire.CodeCredentials), channel},
		"media type":      {refusal(415, wire.CodeMediaType), item},
		"payload":         {Fail(StepAppend, KindChanged, nil), item},
		"out of step":     {refusal(409, wire.CodeOffsetMismatch), item},
		"pending":         {Fail(StepRegister, KindPending, nil), Verdict{}},
		"cancelled":       {Fail(StepAppend, KindCancelled, context.Canceled), Verdict{}},
		"own disk":        {Fail(StepAppend, KindUnread, errors.New("io")), item},
		"receipt differs": {Fail(StepRegister, KindMismatch, nil), item},
	} {
		b := newBench()
		if got := b.fail("a", c.e); got != c.want || b.probes != 0 {
			t.Errorf("%s: %+v after %d probes, want %+v", name, got, b.probes, c.want)
		}
		if held := b.State().Held(b.at); held != c.want.HoldChannel {
			t.Errorf("%s: held is %v", name, held)
		}
	}
}

// No room, or too much at once, may concern one item alone: it waits uncharged. A second one makes it the channel's, by a
// hold that is weak, stays short, and ends with the first success.
func TestNoRoomNeedsTwoWitnesses(t *testing.T) {
	for _, e := range []func() *Error{
		func() *Error { return refusal(507, wire.CodeServerFull) }, func() *Error { return refusal(429, wire.CodeTooMany) },
	} {
		b := newBench()
		if got := b.fail("a", e()); got != (Verdict{}) || b.probes != 1 {
			t.Errorf("one item: %+v after %d probes", got, b.probes)
		}
		for range 9 {
			if got := b.fail("b", e()); got != channel || !b.State().Weak {
				t.Errorf("two items: %+v, weak %v", got, b.State().Weak)
			}
			if wait := b.State().Wait; wait > DefaultSchedule().Second.Max {
				t.Errorf("a weak hold of %s", wait)
			}
			b.at = b.State().NotBefore
		}
		b.Success()
		if b.State() != (ChannelState{}) {
			t.Errorf("after a success: %+v", b.State())
		}
	}
}

// A suspicious failure is the item's as long as the server's status can be had, however often that item fails.
func TestSuspicionFallsOnTheItem(t *testing.T) {
	b := newBench()
	for range 5 {
		if got := b.fail("a", refusal(500, wire.CodeInternal)); got != item {
			t.Fatalf("got %+v", got)
		}
	}
	if b.probes != 5 || b.State() != (ChannelState{}) {
		t.Errorf("%d probes, %+v", b.probes, b.State())
	}
	b.Success()
	if got := b.fail("b", refusal(500, wire.CodeInternal)); got != item {
		t.Errorf("another item after a success: %+v", got)
	}
}

// A second item that fails with no success in between makes it the channel's fault, and nobody is charged until then and
// from then on.
func TestTwoItemsMakeItTheChannels(t *testing.T) {
	b := newBench()
	b.fail("a", broken3())
	if got := b.fail("b", refusal(500, wire.CodeInternal)); got != channel {
		t.Fatalf("got %+v", got)
	}
	if s := b.State(); s.Code != attachment.HoldServerError || s.Failures != 1 || s.Wait != 30*time.Second {
		t.Errorf("state %+v", s)
	}
	b.past()
	if got := b.fail("b", broken3()); got != channel || b.State().Failures != 2 {
		t.Errorf("after the wait: %+v, %+v", got, b.State())
	}
	b.past()
	b.Success()
	if got := b.fail("b", broken3()); got != item {
		t.Errorf("after a success: %+v", got)
	}
}

// A foreign answer, or a refusal for good, to one item while our server answers otherwise is about that item alone.
func TestForeignAnswerToOneItem(t *testing.T) {
	b := newBench()
	foreign := Fail(StepReserve, KindForeign, ErrForeign)
	if got := b.fail("a", foreign); got != item {
		t.Errorf("one item behind a filter: %+v", got)
	}
	b.status = Fail(StepProbe, KindForeign, ErrForeign)
	if got := b.fail("a", foreign); got != channel || b.State().Code != attachment.HoldNotOurServer {
		t.Errorf("portal: %+v, %+v", got, b.State())
	}
	b = newBench()
	if got := b.fail("a", refusal(403, wire.CodeForbidden)); got != item {
		t.Errorf("one item forbidden: %+v", got)
	}
	if got := b.fail("b", refusal(403, wire.CodeForbidden)); got != channel || b.State().Code != attachment.HoldCredentials {
		t.Errorf("everything forbidden: %+v, %+v", got, b.State())
	}
}

// Where the status endpoint fails too, its failure is what is shown, and the longer wait counts.
func TestProbeFails(t *testing.T) {
	b := newBench()
	b.status = Fail(StepProbe, KindCredential, errors.New("no token"))
	e := refusal(503, "tired")
	e.RetryAfter = 20 * time.Minute
	if got := b.fail("a", e); got != channel {
		t.Fatalf("got %+v", got)
	}
	if s := b.State(); s.Code != attachment.HoldCredentialUnusable || s.Class != ChannelOperator || s.Wait < 20*time.Minute || s.Detail == "" {
		t.Errorf("state %+v", s)
	}
	b = newBench()
	b.status = context.Canceled
	if got := b.fail("a", broken3()); got != (Verdict{}) || b.State().Failures != 0 {
		t.Errorf("probe cancelled: %+v", got)
	}
}

// One outage counts once however many workers run into it, its waits grow, and it remembers since when.
func TestOutageGrows(t *testing.T) {
	b := newBench()
	began := b.at
	var waits []time.Duration
	for range 7 {
		for range 4 {
			if got := b.fail("a", noRoute()); got != channel {
				t.Fatal(got)
			}
			b.fail("b", broken3())
		}
		waits = append(waits, b.State().Wait)
		b.past()
	}
	for i := 1; i < len(waits); i++ {
		if waits[i] < waits[i-1] {
			t.Errorf("waits %v", waits)
		}
	}
	if s := b.State(); s.Failures != 7 || !s.Since.Equal(began) || b.probes != 0 || waits[0] != 30*time.Second {
		t.Errorf("state %+v, waits %v, %d probes", s, waits, b.probes)
	}
}

// What only a person can mend is probed slowly from the beginning.
func TestOperatorIsProbedSlowly(t *testing.T) {
	b := newBench()
	b.fail("a", refusal(401, wire.CodeCredentials))
	if w := b.State().Wait; w < DefaultSchedule().Third.Min {
		t.Errorf("waits %s", w)
	}
}

// A reset ends the wait at once, or soon at a random time, begins the schedule anew, and keeps the reason until a success.
func TestReset(t *testing.T) {
	b := newBench()
	b.Reset(time.Minute)
	if b.State() != (ChannelState{}) {
		t.Errorf("a channel in order: %+v", b.State())
	}
	for range 4 {
		b.fail("a", noRoute())
		b.past()
	}
	b.fail("a", noRoute())
	b.Reset(0)
	if s := b.State(); s.Held(b.at) || s.Failures != 0 || s.Code != attachment.HoldOffline {
		t.Errorf("at once: %+v", s)
	}
	b.fail("a", noRoute())
	if s := b.State(); s.Wait != 30*time.Second {
		t.Errorf("schedule: %+v", s)
	}
	b.Reset(10 * time.Second)
	if s := b.State(); !s.Held(b.at) || s.Held(b.at.Add(5*time.Second)) {
		t.Errorf("soon: %+v", s)
	}
}

// The state survives being stored.
func TestStateIsKept(t *testing.T) {
	b := newBench()
	b.fail("a", noRoute())
	data, err := json.Marshal(b.State())
	if err != nil {
		t.Fatal(err)
	}
	var kept ChannelState
	if err := json.Unmarshal(data, &kept); err != nil {
		t.Fatal(err)
	}
	again := NewChannel(kept, DefaultSchedule(), func() time.Time { return b.at }, func() float64 { return 0.5 })
	if again.State() != b.State() {
		t.Errorf("%+v, want %+v", again.State(), b.State())
	}
	if got := again.Failure(context.Background(), "a", noRoute(), nil); got != channel || again.State().Failures != 1 {
		t.Errorf("%+v, %+v", got, again.State())
	}
}

// Workers may ask at the same time.
func TestChannelConcurrently(t *testing.T) {
	b := newBench()
	var wg sync.WaitGroup
	for _, id := range []attachment.ID{"a", "b", "c", "d"} {
		wg.Go(func() {
			for range 50 {
				b.Failure(context.Background(), id, broken3(), func(context.Context) error { return nil })
				b.Success()
				b.Reset(time.Second)
				b.State()
			}
		})
	}
	wg.Wait()
}
