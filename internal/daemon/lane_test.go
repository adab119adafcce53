package daemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/internal/policy"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

// turnstile lets the appends of large files through one by one; those of small ones pass.
type turnstile struct {
	pass chan struct{}
	open sync.Once
}

// newTurnstile is for a device whose idle timeout does not get in the way. From the end of the test on all pass.
func newTurnstile(d *device) *turnstile {
	ts := &turnstile{pass: make(chan struct{})}
	d.uplink += "small = \"32KiB\"\n"
	d.t.Cleanup(ts.release)
	d.server.Inject(uplinktest.Fault{Step: remote.StepAppend, Times: uplinktest.Always, Act: func(_ *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.ContentLength > 32<<10 {
			select {
			case <-ts.pass:
			case <-r.Context().Done():
			}
		}
		next.ServeHTTP(w, r)
	}})
	return ts
}

func (ts *turnstile) release() { ts.open.Do(func() { close(ts.pass) }) }

// one lets one append through.
func (ts *turnstile) one(t *testing.T) {
	t.Helper()
	select {
	case ts.pass <- struct{}{}:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody sends a large file")
	}
}

// patientDevice gives up on nothing that waits at the turnstile.
func patientDevice(t *testing.T, workers int) (*device, *turnstile) {
	d := newDevice(t)
	d.workers = workers
	d.patience = "30s"
	return d, newTurnstile(d)
}

func (d *device) uploading(name string) bool { return d.item(name).State == attachment.Uploading }

// journal is the events of an item in order, with their details.
func (d *device) journal(name string) (events []string) {
	d.t.Helper()
	detail, err := d.client.Get(context.Background(), string(d.item(name).ID))
	must(d.t, err)
	for _, r := range detail.Journal {
		events = append(events, strings.TrimSpace(string(r.Event)+" "+r.Detail))
	}
	return events
}

// Two workers: one is kept for what is small, so that large files wait for each other and a signature waits for none.
func TestSmallPassesLarge(t *testing.T) {
	d, ts := patientDevice(t, 2)
	d.up()
	d.drop("insp-7/one.mp4", 900_000)
	d.until("one under way", func() bool { return d.uploading("one.mp4") })
	d.drop("insp-7/two.mp4", 900_001)
	d.until("two secured", func() bool { return d.item("two.mp4").ID != "" })
	d.drop("insp-7/signature.png", 20_000)
	d.delivered("signature.png")
	if i := d.item("two.mp4"); i.State != attachment.Ready || reason(i.Waiting) != attachment.HoldQueued {
		t.Errorf("both workers carry large files: %s, waits for %q", i.State, reason(i.Waiting))
	}
	if !d.uploading("one.mp4") {
		t.Error("the large one was stopped for nothing")
	}
	ts.release()
	d.delivered("one.mp4", "two.mp4")
}

// One worker: the large file steps aside between two chunks, keeps session, offset and attempt, and goes on.
func TestLargeStepsAside(t *testing.T) {
	d, ts := patientDevice(t, 1)
	crossed := map[string]int64{} // guarded by the server
	d.server.OnReceived(func(id string, from, to int64) { crossed[id] += to - from })
	d.up()
	d.drop("insp-7/video.mp4", 900_000)
	ts.one(t)
	d.until("bytes confirmed", func() bool { c := d.item("video.mp4").ConfirmedBytes; return c != nil && *c > 0 })
	d.drop("insp-7/signature.png", 20_000)
	d.until("signature secured", func() bool { return d.item("signature.png").ID != "" })
	before, err := d.client.Get(context.Background(), string(d.item("video.mp4").ID))
	must(t, err)
	d.until("signature delivered", func() bool {
		select { // the next chunk may have left before the signature came
		case ts.pass <- struct{}{}:
		case <-time.After(20 * time.Millisecond):
		}
		return d.item("signature.png").Condition == attachment.ShownDelivered
	})
	ts.release()
	d.delivered("video.mp4")
	after, err := d.client.Get(context.Background(), string(d.item("video.mp4").ID))
	must(t, err)
	if after.Attempts != 1 || after.Failures != 0 || *after.Session != *before.Session {
		t.Errorf("%d attempts, %d failures, session %+v and before %+v", after.Attempts, after.Failures, after.Session, before.Session)
	}
	if events := fmt.Sprint(d.journal("video.mp4")); !strings.Contains(events, "interrupted "+errYield.Error()) {
		t.Errorf("it never stepped aside: %s", events)
	}
	d.server.OnReceived(nil)
	if sent := crossed[string(after.ID)]; sent != 900_000 {
		t.Errorf("%d bytes crossed the link for 900000", sent)
	}
}

// Prioritize: the file is the next one, before earlier ones, and the only worker's large one lets it pass.
func TestPrioritizeGoesNext(t *testing.T) {
	d, ts := patientDevice(t, 1)
	d.up()
	d.drop("insp-7/one.mp4", 900_000)
	d.until("one under way", func() bool { return d.uploading("one.mp4") })
	for _, name := range []string{"two.mp4", "three.mp4"} {
		d.drop("insp-7/"+name, 300_000)
		d.until(name+" secured", func() bool { return d.item(name).ID != "" })
	}
	out, err := d.client.Act(context.Background(), client.Prioritize, control.Action{IDs: []attachment.ID{d.item("three.mp4").ID}, Reason: "the office waits"})
	if err != nil || out.Done != 1 {
		t.Fatalf("prioritize: %+v, %v", out, err)
	}
	ts.one(t)
	d.until("three under way", func() bool { return d.uploading("three.mp4") })
	if i := d.item("one.mp4"); i.State != attachment.Ready || i.ConfirmedBytes == nil || *i.ConfirmedBytes == 0 {
		t.Errorf("one: %s, confirmed %v", i.State, i.ConfirmedBytes)
	}
	if i := d.item("three.mp4"); i.Priority != attachment.PriorityFront {
		t.Errorf("priority %d", i.Priority)
	}
	ts.release()
	d.delivered("one.mp4", "two.mp4", "three.mp4")
}

// Outside the windows nothing goes and nothing is charged, but for what a person puts to the front; the status says when
// sending goes on.
func TestOutsideWindows(t *testing.T) {
	d := newDevice(t)
	day := strings.ToLower(time.Now().AddDate(0, 0, 3).Format("Mon"))
	d.uplink = fmt.Sprintf("windows = [\"%s 12:00-13:00\"]\n", day)
	d.up()
	d.drop("insp-7/a.jpg", 1000)
	d.drop("insp-7/b.jpg", 1000)
	d.until("secured", func() bool { return len(d.items()) == 2 })
	s := d.status()
	if reason(s.Sending.Channel) != attachment.HoldOutsideWindow || s.Sending.Channel.NextAttempt == nil || s.NextAttempt == nil {
		t.Fatalf("%+v", s.Sending.Channel)
	}
	if at := s.NextAttempt.Local(); at.Hour() != 12 || at.Minute() != 0 || at.Before(time.Now()) {
		t.Errorf("goes on at %s", at)
	}
	out, err := d.client.Act(context.Background(), client.Prioritize, control.Action{IDs: []attachment.ID{d.item("b.jpg").ID}})
	if err != nil || out.Done != 1 {
		t.Fatalf("prioritize: %+v, %v", out, err)
	}
	d.delivered("b.jpg")
	a := d.item("a.jpg")
	if a.Condition != attachment.ShownWaiting || reason(a.Waiting) != attachment.HoldOutsideWindow || a.Attempts != 0 {
		t.Errorf("a.jpg: %+v", a)
	}
	d.down()
	// Storage that runs short lifts the windows, and the status says so.
	d.extra = "[storage]\nwarn_free = \"8000TiB\"\n"
	d.up()
	d.delivered("a.jpg")
	if s := d.status(); s.Sending.Channel != nil || len(s.Problems) != 1 || s.Problems[0].Code != "windows_lifted" {
		t.Errorf("%+v, %+v", s.Sending.Channel, s.Problems)
	}
}

// By a clock that cannot be right nobody knows whether a window is open.
func TestWindowsByABadClock(t *testing.T) {
	d := &dispatcher{
		paused: new(atomic.Bool), uplink: &uplink.Uplink{}, windows: policy.Windows{{Days: [7]bool{true, true, true, true, true, true, true}, To: 24 * 60}},
		short: func() bool { return false }, trusted: func(time.Time) (bool, string) { return false, "it is 1970" },
	}
	if h := d.barred(time.Now(), false); h == nil || h.Code != attachment.HoldClockUnset || h.Detail != "it is 1970" {
		t.Errorf("%+v", h)
	}
	if h := d.barred(time.Now(), true); h != nil {
		t.Errorf("what a person put to the front: %+v", h)
	}
}

// However many small ones come, a single worker takes a large one now and then; several keep one worker for the small.
func TestLanesStarveNobody(t *testing.T) {
	large := &attachment.Manifest{ID: "large", Length: 1 << 30}
	small := &attachment.Manifest{ID: "small", Length: 1}
	one := newTraffic(1, 1<<20)
	carried := map[attachment.ID]int{}
	for range 10 * (maxRow + 1) {
		next := large // what is next in the order: the oldest
		if quick, only := one.lane(); quick {
			next = small
		} else if only {
			t.Fatal("a single worker refuses large ones")
		}
		one.begin(next)
		one.ask(small)
		if one.yields("large") != (next == large) || one.yields("large") {
			t.Fatal("a large one steps aside once, a small one never")
		}
		one.end(next.ID)
		carried[next.ID]++
	}
	if carried["large"] != 10 {
		t.Errorf("carried %v", carried)
	}
	three := newTraffic(3, 1<<20)
	for i, want := range []bool{false, false, true} {
		if quick, only := three.lane(); quick != want || only != want {
			t.Errorf("with %d large ones: quick %v, only %v", i, quick, only)
		}
		three.begin(&attachment.Manifest{ID: attachment.ID(fmt.Sprint(i)), Length: 1 << 30})
	}
}

// Who steps aside for whom.
func TestWhoPasses(t *testing.T) {
	for _, c := range []struct {
		waits, carried load
		want           bool
	}{
		{load{small: true}, load{}, true},
		{load{small: true}, load{small: true}, false},
		{load{}, load{}, false},
		{load{priority: 3}, load{}, true},
		{load{priority: 3}, load{priority: 3}, false},
		{load{priority: attachment.PriorityFront}, load{priority: 9}, true},
		{load{small: true}, load{priority: 1}, false},
		{load{priority: attachment.PriorityFront}, load{small: true}, false},
	} {
		if got := c.waits.passes(c.carried); got != c.want {
			t.Errorf("%+v waits, %+v is under way: %v", c.waits, c.carried, got)
		}
	}
}
