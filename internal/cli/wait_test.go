package cli

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control/controltest"
)

// begin starts a wait and returns when it has subscribed and so will miss nothing.
func begin(t *testing.T, g *gateway, line string) <-chan result {
	t.Helper()
	before := g.Subscriptions()
	done := make(chan result, 1)
	go func() { done <- g.run(t, strings.Fields(line)...) }()
	for g.Subscriptions() == before {
		select {
		case r := <-done:
			t.Fatalf("%s: ended before it subscribed: %+v", line, r)
		default:
			runtime.Gosched()
		}
	}
	return done
}

func happen(t *testing.T, g *gateway, n int, events ...attachment.Event) {
	t.Helper()
	if err := g.Happen(fixedID(n), events...); err != nil {
		t.Fatal(err)
	}
}

var delivery = []attachment.Event{attachment.EventSessionOpened, attachment.EventVerified, attachment.EventRegistered}

// A wait for named files ends when the last of them is there; those that were there already count.
func TestWaitNamed(t *testing.T) {
	g := newGateway(t)
	g.Add(file(1, "1.jpg", 1, attachment.Ready, time.Minute))
	g.Add(file(2, "2.jpg", 1, attachment.Ready, time.Minute))
	g.Add(delivered(file(3, "3.jpg", 1, attachment.Reconciled, time.Hour), time.Minute))
	if r := g.run(t, "wait", short(3)); r.code != exitDone || r.out != "delivered  "+short(3)+"  3.jpg\n" {
		t.Errorf("at once: %+v", r)
	}
	g.stdin = short(1) + "\n"
	done := begin(t, g, "wait - "+short(2)+" "+short(3))
	happen(t, g, 2, delivery...)
	happen(t, g, 1, delivery...)
	r := <-done
	if r.code != exitDone || r.err != "" || strings.Count(r.out, "delivered  ") != 3 {
		t.Errorf("%+v", r)
	}
}

// A condition that passes quickly is not missed, and a later step on the way to delivery is as good.
func TestWaitForStep(t *testing.T) {
	g := newGateway(t)
	g.Add(file(1, "1.jpg", 1, attachment.Ready, time.Minute))
	done := begin(t, g, "wait --for uploading "+short(1))
	happen(t, g, 1, attachment.EventSessionOpened, attachment.EventInterrupted)
	if r := <-done; r.code != exitDone || r.out != "uploading  "+short(1)+"  1.jpg\n" {
		t.Errorf("%+v", r)
	}
	happen(t, g, 1, delivery...)
	if r := g.run(t, "wait", "--for", "uploading", short(1), "-o", "json"); r.code != exitDone || !strings.Contains(r.out, `"result": "reached"`) {
		t.Errorf("later step: %+v", r)
	}
	g.Add(file(2, "2.jpg", 1, attachment.Ready, time.Minute))
	done = begin(t, g, "wait --quiet --for paused "+short(2))
	happen(t, g, 2, attachment.EventPaused)
	if r := <-done; r.code != exitDone || r.out != "" {
		t.Errorf("paused: %+v", r)
	}
}

// A wait for a record ends with its last file, not before its first one, and does not care for other records.
func TestWaitRecord(t *testing.T) {
	g := newGateway(t)
	other := file(9, "other.jpg", 1, attachment.Ready, time.Minute)
	other.Manifest.Parent = attachment.Parent{LocalID: attachment.NameOf("INS-118")}
	g.Add(other)
	done := begin(t, g, "wait --record INS-117")
	g.Add(file(1, "1.jpg", 1, attachment.Ready, time.Minute))
	g.Add(file(2, "2.jpg", 1, attachment.Ready, time.Minute))
	happen(t, g, 9, attachment.EventSessionOpened)
	happen(t, g, 1, delivery...)
	happen(t, g, 2, delivery...)
	if r := <-done; r.code != exitDone || r.out != "delivered  all files of record INS-117\n" {
		t.Errorf("%+v", r)
	}
	done = begin(t, g, "wait --all")
	happen(t, g, 9, delivery[1:]...)
	if r := <-done; r.code != exitDone || r.out != "delivered  all files\n" {
		t.Errorf("%+v", r)
	}
}

// A file that comes to need a person ends the wait with exit code 8 and its reason; one that is discarded ends it with 6.
func TestWaitEndsWithoutSuccess(t *testing.T) {
	for _, line := range []string{"wait " + short(1), "wait --all", "wait --record INS-117"} {
		g := newGateway(t)
		g.Add(file(1, "1.jpg", 1, attachment.Ready, time.Minute))
		done := begin(t, g, line)
		happen(t, g, 1, attachment.EventAttention)
		r := <-done
		if r.code != exitAttention || !strings.Contains(r.err, "1.jpg is needs-attention (media_type: ") || !strings.Contains(r.err, "fieldgwctl show ") {
			t.Errorf("%s: %+v", line, r)
		}
	}
	g := newGateway(t)
	g.Add(file(1, "1.jpg", 1, attachment.Ready, time.Minute))
	done := begin(t, g, "wait "+short(1))
	happen(t, g, 1, attachment.EventCancelled)
	if r := <-done; r.code != exitNotPossible || !strings.Contains(r.err, "will not be delivered") {
		t.Errorf("cancelled: %+v", r)
	}
}

// What only a person can end ends the wait with 8 and says what to do, for one file and for a set: sending that is paused,
// not configured or refused, and a paused file. What passes by itself does not, and nothing does that is not in the way.
func TestWaitNeedsPerson(t *testing.T) {
	for name, c := range map[string]struct {
		code attachment.Code
		hint string
	}{
		"channel paused":      {attachment.HoldChannelPaused, "Resume sending. (fieldgwctl resume)"},
		"file paused":         {attachment.HoldPaused, "Resume it. (fieldgwctl resume " + string(fixedID(1)) + ")"},
		"not configured":      {attachment.HoldNotConfigured, "uplink.endpoint"},
		"untrusted":           {attachment.HoldTLS, "uplink.ca_file"},
		"credential refused":  {attachment.HoldCredentials, "Install a valid credential"},
		"credential unusable": {attachment.HoldCredentialUnusable, "mode 0600"},
	} {
		for _, line := range []string{"wait --timeout 0s " + short(1), "wait --timeout 0s --all", "wait --timeout 0s --record INS-117 --for uploading"} {
			g := newGateway(t)
			e := waiting(file(1, "1.jpg", 1, attachment.Ready, time.Minute), c.code)
			e.Manifest.Paused = c.code == attachment.HoldPaused
			g.Add(e)
			r := g.run(t, strings.Fields(line)...)
			if r.code != exitAttention || !strings.Contains(r.err, "1.jpg is ") || !strings.Contains(r.err, string(c.code)+": ") || !strings.Contains(r.err, c.hint) {
				t.Errorf("%s: %s: %+v", name, line, r)
			}
		}
	}
	// As the daemon shows what waits while the credential is refused.
	g := newGateway(t)
	g.Add(waiting(file(1, "1.jpg", 1, attachment.Attention, time.Minute), attachment.HoldCredentials))
	for _, line := range []string{"wait --timeout 0s " + short(1), "wait --timeout 0s --all"} {
		if r := g.run(t, strings.Fields(line)...); r.code != exitAttention || !strings.Contains(r.err, "Install a valid credential") {
			t.Errorf("%s: %+v", line, r)
		}
	}
	for _, line := range []string{
		"wait --timeout 50ms --for captured " + short(2), "wait --timeout 50ms --for discarded " + short(2),
		"wait --timeout 50ms --for uploading " + short(3),
	} {
		g := newGateway(t)
		g.Add(waiting(file(2, "2.jpg", 1, attachment.Ready, time.Minute), attachment.HoldTLS))
		g.Add(waiting(file(3, "3.jpg", 1, attachment.Ready, time.Minute), attachment.HoldOffline))
		want := exitTimedOut
		if strings.Contains(line, "captured") {
			want = exitDone // it is past that
		}
		if r := g.run(t, strings.Fields(line)...); r.code != want {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// What a person ends in time does not end the wait.
func TestWaitOutlastsPause(t *testing.T) {
	g := newGateway(t)
	g.grace = time.Hour
	for n, line := range []string{"wait " + short(0), "wait --all"} {
		e := waiting(file(n, "1.jpg", 1, attachment.Ready, time.Minute), attachment.HoldPaused)
		e.Manifest.Paused = true
		g.Add(e)
		done := begin(t, g, line)
		happen(t, g, n, attachment.EventResumed)
		happen(t, g, n, delivery...)
		if r := <-done; r.code != exitDone || !strings.HasPrefix(r.out, "delivered  ") {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// Lost events do no harm: after a gap the state is read again.
func TestWaitSurvivesGap(t *testing.T) {
	g := newGateway(t)
	g.Add(file(1, "1.jpg", 1, attachment.Ready, time.Minute))
	done := begin(t, g, "wait "+short(1))
	g.EndSubscriptions() // what follows is told to nobody
	happen(t, g, 1, delivery...)
	if r := <-done; r.code != exitDone || !strings.HasPrefix(r.out, "delivered  ") {
		t.Errorf("%+v", r)
	}
}

// A daemon that restarts in the meantime is waited for, and the person is told.
func TestWaitSurvivesRestart(t *testing.T) {
	g := newGateway(t)
	g.Add(file(1, "1.jpg", 1, attachment.Ready, time.Minute))
	g.Add(delivered(file(2, "2.jpg", 1, attachment.Reconciled, time.Hour), time.Minute))
	g.watch = make(chan string, 2)
	done := begin(t, g, "wait "+short(1)+" "+short(2))
	<-g.watch // the second file is read last: from here on it waits for events
	g.stop()
	happen(t, g, 1, delivery...)
	controltest.Serve(t, g.socket, g.Backend)
	if r := <-done; r.code != exitDone || r.err != "The daemon went away; waiting for it to come back.\n" || strings.Count(r.out, "delivered") != 2 {
		t.Errorf("%+v", r)
	}
}

// What each condition means for each that is waited for.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		target, now attachment.Condition
		want        verdict
	}{
		{"delivered", "waiting", pending}, {"delivered", "paused", pending}, {"delivered", "sent", pending},
		{"delivered", "delivered", reached}, {"delivered", "needs-attention", stuck}, {"delivered", "in-review", stuck},
		{"delivered", "discarded", impossible}, {"delivered", "cancelled", impossible},
		{"waiting", "captured", pending}, {"waiting", "uploading", reached}, {"uploading", "delivered", reached},
		{"captured", "needs-attention", stuck}, {"needs-attention", "waiting", pending}, {"needs-attention", "in-review", pending},
		{"needs-attention", "delivered", impossible}, {"paused", "needs-attention", pending}, {"paused", "uploading", pending},
		{"discarded", "discarded", reached}, {"discarded", "delivered", impossible},
	} {
		if got := judge(c.target, c.now); got != c.want {
			t.Errorf("for %s, now %s: %s, want %s", c.target, c.now, got, c.want)
		}
	}
}
