package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// A file goes from its capture directory to delivered, and a restart changes nothing about it.
func TestCaptureToDelivered(t *testing.T) {
	d := newDevice(t)
	d.up()
	d.drop("insp-7/a.jpg", 300_000)
	d.drop("b.jpg", 10)
	d.delivered("a.jpg", "b.jpg")
	d.until("the payload is moved", func() bool { return d.item("a.jpg").LocalCopy == control.CopyDelivered })
	i := d.item("a.jpg")
	if i.Parent.LocalID.Text != "insp-7" || i.LocalCopy != control.CopyDelivered || i.Grade != "registered-durable" {
		t.Errorf("%+v", i)
	}
	d.down()
	d.up()
	if i := d.item("a.jpg"); i.Condition != attachment.ShownDelivered {
		t.Errorf("after a restart: %s", i.Condition)
	}
	if n := d.server.Count(remote.StepReserve); n != 2 {
		t.Errorf("%d reserves for two files", n)
	}
	s := d.status()
	if s.Of(attachment.ShownDelivered).Items != 2 || s.Sending.LastDelivery == nil || len(s.Problems) != 0 {
		t.Errorf("%+v", s)
	}
}

// Whatever the server does at whichever step: the item shows why it waits, nothing is delivered meanwhile, and when the
// server is well again it is delivered. Faults that concern the channel charge nothing to the item.
func TestServerFaultsAreShownAndPass(t *testing.T) {
	html := uplinktest.Foreign(200, http.Header{"Content-Type": {"text/html"}}, "<html>Welcome to the hotel</html>")
	for name, c := range map[string]struct {
		step  remote.Step
		act   uplinktest.Act
		probe bool // the status endpoint fails in the same way
		code  attachment.Code
		item  bool // charged to the item rather than to the channel
	}{
		"HTML with 200":        {remote.StepReserve, html, true, attachment.HoldNotOurServer, false},
		"500 everywhere":       {remote.StepReserve, uplinktest.Refuse(500, wire.CodeInternal, nil), true, attachment.HoldServerError, false},
		"500 for this item":    {remote.StepReserve, uplinktest.Refuse(500, wire.CodeInternal, nil), false, attachment.HoldServerError, true},
		"503 with Retry-After": {remote.StepReserve, uplinktest.Refuse(503, wire.CodeShuttingDown, http.Header{"Retry-After": {"1"}}), true, attachment.HoldServerBusy, false},
		"507":                  {remote.StepReserve, uplinktest.Refuse(507, wire.CodeServerFull, nil), true, attachment.HoldServerFull, false},
		"500 at registration":  {remote.StepRegister, uplinktest.Refuse(500, wire.CodeInternal, nil), false, attachment.HoldServerError, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			d.server.Inject(uplinktest.Fault{Step: c.step, Times: uplinktest.Always, Act: c.act})
			if c.probe {
				d.server.Inject(uplinktest.Fault{Step: remote.StepProbe, Times: uplinktest.Always, Act: c.act})
			}
			d.up()
			d.drop("insp-7/a.jpg", 200_000)
			var seen control.Item
			d.until("the reason shows", func() bool {
				i := d.item("a.jpg")
				if i.Condition == attachment.ShownDelivered {
					t.Fatal("delivered by a broken server")
				}
				if i.Waiting == nil || i.Waiting.NextAttempt == nil || i.Waiting.Reason == attachment.HoldQueued {
					return false
				}
				seen = i
				return true
			})
			channel := reason(d.status().Sending.Channel)
			if !c.item && channel != c.code {
				t.Errorf("channel says %q, want %q", channel, c.code)
			}
			if c.item && channel != "" {
				t.Errorf("one item's failure holds the channel: %q", channel)
			}
			if len(seen.Waiting.Unblock) == 0 || seen.Waiting.Message == "" {
				t.Errorf("nothing to tell a person: %+v", seen.Waiting)
			}
			detail, err := d.client.Get(context.Background(), string(seen.ID))
			must(t, err)
			if charged := detail.Failures > 0; charged != c.item {
				t.Errorf("charged %v, want %v", charged, c.item)
			}
			d.server.Heal()
			d.delivered("a.jpg")
		})
	}
}

// What only a person can mend for one file parks that file, frees its lane, and a retry after the mending delivers it.
func TestRefusedItemsNeedAttention(t *testing.T) {
	elsewhere := func(field string) uplinktest.Act {
		return uplinktest.Edit(func(status int, h http.Header, body []byte) (int, []byte) {
			h.Del("Content-Length")
			return status, []byte(strings.Replace(string(body), field, field[:len(field)-2]+`x"`, 1))
		})
	}
	for name, c := range map[string]struct {
		step remote.Step
		act  uplinktest.Act
		code attachment.Code
	}{
		"413 at reserve":      {remote.StepReserve, uplinktest.Refuse(413, wire.CodeSizeLimit, nil), attachment.NeedsSizeLimit},
		"415 at reserve":      {remote.StepReserve, uplinktest.Refuse(415, wire.CodeMediaType, nil), attachment.NeedsMediaType},
		"409 identity":        {remote.StepReserve, uplinktest.Refuse(409, wire.CodeIdentityConflict, nil), attachment.NeedsIdentityConflict},
		"422 at registration": {remote.StepRegister, uplinktest.Refuse(422, wire.CodeParentPolicy, nil), attachment.NeedsParentPolicy},
		"another's receipt":   {remote.StepRegister, elsewhere(`"registered-durable"`), attachment.NeedsReceiptMismatch},
		"403 takeover denied": {remote.StepReserve, uplinktest.Refuse(403, wire.CodeTakeoverDenied, nil), attachment.NeedsTakeover},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			d.server.Inject(uplinktest.Fault{Step: c.step, Times: 1, Act: c.act})
			d.up()
			d.drop("insp-7/bad.jpg", 1000)
			d.until("attention", func() bool { return d.item("bad.jpg").Condition == attachment.ShownAttention })
			bad := d.item("bad.jpg")
			if bad.Waiting.Reason != c.code || bad.LocalCopy != control.CopySpool {
				t.Errorf("reason %s, copy %s; want %s in the spool", bad.Waiting.Reason, bad.LocalCopy, c.code)
			}
			d.drop("insp-7/good.jpg", 1000)
			d.delivered("good.jpg")
			if s := d.status(); !s.NeedsAttention() {
				t.Error("status does not say that somebody is needed")
			}
			out, err := d.client.Act(context.Background(), client.Retry, control.Action{IDs: []attachment.ID{bad.ID}, Reason: "mended"})
			if err != nil || out.Done != 1 {
				t.Fatalf("retry: %+v, %v", out, err)
			}
			d.delivered("bad.jpg")
			detail, err := d.client.Get(context.Background(), string(bad.ID))
			must(t, err)
			if by := detail.Journal; !strings.Contains(fmt.Sprint(by), "uid") {
				t.Errorf("the journal does not name who retried: %+v", by)
			}
		})
	}
}

// A refused credential holds the channel, charges nothing, shows every waiting item as needing a person, and ends by
// itself when the file holds a valid token.
func TestCredentialRefusedAndReplaced(t *testing.T) {
	d := newDevice(t)
	d.setToken(uplinktest.Token[:len(uplinktest.Token)-4] + "AAAA")
	d.up()
	d.drop("insp-7/a.jpg", 1000)
	d.until("credentials shown", func() bool {
		i := d.item("a.jpg")
		return i.Condition == attachment.ShownAttention && reason(i.Waiting) == attachment.HoldCredentials
	})
	page, err := d.client.List(context.Background(), control.ListQuery{Conditions: []attachment.Condition{attachment.ShownAttention}})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("the list of what needs attention: %d, %v", len(page.Items), err)
	}
	s := d.status()
	if s.Of(attachment.ShownAttention).Items != 1 || s.Of(attachment.ShownWaiting).Items != 0 || !s.NeedsAttention() {
		t.Errorf("%+v", s.Counts)
	}
	d.setToken(uplinktest.Token)
	d.delivered("a.jpg")
	detail, err := d.client.Get(context.Background(), string(d.item("a.jpg").ID))
	if err != nil || detail.Failures != 0 || detail.Attempts != 1 {
		t.Errorf("charged: %d failures, %d attempts, %v", detail.Failures, detail.Attempts, err)
	}
}

// A lost session, a 409 and a wrong digest are repaired without a person and without losing anything.
func TestSessionTroubleRepairsItself(t *testing.T) {
	for name, f := range map[string]uplinktest.Fault{
		"session gone":    {Step: remote.StepAppend, After: 1, Times: 1, Act: uplinktest.Refuse(410, wire.CodeSessionGone, nil)},
		"409 in between":  {Step: remote.StepAppend, After: 1, Times: 1, Act: uplinktest.Refuse(409, wire.CodeOffsetMismatch, nil)},
		"cut, five times": {Step: remote.StepAppend, Times: 5, Act: uplinktest.Cut(1000)},
		"423":             {Step: remote.StepAppend, Times: 1, Act: uplinktest.Refuse(423, wire.CodeBusy, nil)},
		"stalled":         {Step: remote.StepAppend, Times: 1, Act: uplinktest.Hang(100)},
		"answer lost":     {Step: remote.StepAppend, After: 2, Times: 1, Act: uplinktest.Cut(1 << 30)},
		"digest":          {Step: remote.StepVerify, Times: 1, Act: uplinktest.Refuse(422, wire.CodeDigestMismatch, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			d.server.Inject(f)
			d.up()
			d.drop("insp-7/a.jpg", 600_000)
			d.delivered("a.jpg")
		})
	}
}

// A pause in mid-transfer keeps session and offset and charges nothing; it survives a restart; resume finishes.
func TestPauseOfItemAndChannel(t *testing.T) {
	d := newDevice(t)
	d.server.Inject(uplinktest.Fault{Step: remote.StepAppend, After: 2, Times: 1, Act: uplinktest.Hang(10)})
	d.up()
	d.drop("insp-7/a.jpg", 900_000)
	d.until("some bytes confirmed", func() bool { c := d.item("a.jpg").ConfirmedBytes; return c != nil && *c > 0 })
	id := d.item("a.jpg").ID
	ctx := context.Background()
	if out, err := d.client.Act(ctx, client.Pause, control.Action{IDs: []attachment.ID{id}}); err != nil || out.Done != 1 {
		t.Fatalf("pause: %+v, %v", out, err)
	}
	d.until("paused", func() bool {
		i := d.item("a.jpg")
		return i.Condition == attachment.ShownPaused && i.State == attachment.Ready
	})
	if _, err := d.client.ActOnChannel(ctx, client.Pause, control.ChannelAction{Reason: "roaming"}); err != nil {
		t.Fatal(err)
	}
	d.down()
	d.up()
	if s := d.status(); !s.Sending.Paused || reason(s.Sending.Channel) != attachment.HoldChannelPaused {
		t.Errorf("the channel's pause is forgotten: %+v", s.Sending)
	}
	i := d.item("a.jpg")
	if i.Condition != attachment.ShownPaused || i.ConfirmedBytes == nil || *i.ConfirmedBytes == 0 {
		t.Errorf("after a restart: %+v", i)
	}
	if out, err := d.client.Act(ctx, client.Resume, control.Action{All: true}); err != nil || out.Done != 1 {
		t.Fatalf("resume: %+v, %v", out, err)
	}
	if i := d.item("a.jpg"); reason(i.Waiting) != attachment.HoldChannelPaused {
		t.Errorf("waits for %q", reason(i.Waiting))
	}
	if _, err := d.client.ActOnChannel(ctx, client.Resume, control.ChannelAction{}); err != nil {
		t.Fatal(err)
	}
	d.delivered("a.jpg")
	detail, err := d.client.Get(ctx, string(id))
	if err != nil || detail.Failures != 0 {
		t.Errorf("%d failures charged, %v", detail.Failures, err)
	}
}

// A payload that changes in the spool is never sent: the item needs a person. One that vanished is told as missing.
func TestPayloadDamagedInSpool(t *testing.T) {
	d := newDevice(t)
	d.up()
	if _, err := d.client.ActOnChannel(context.Background(), client.Pause, control.ChannelAction{}); err != nil {
		t.Fatal(err)
	}
	d.drop("insp-7/changed.jpg", 5000)
	d.drop("insp-7/missing.jpg", 5000)
	d.until("custody", func() bool { return len(d.items()) == 2 })
	for _, i := range d.items() {
		detail, err := d.client.Get(context.Background(), string(i.ID))
		must(t, err)
		if i.Filename.Text == "missing.jpg" {
			must(t, os.Remove(detail.PayloadPath))
			continue
		}
		data, err := os.ReadFile(detail.PayloadPath)
		must(t, err)
		data[2500] ^= 1
		must(t, os.WriteFile(detail.PayloadPath, data, 0o600))
	}
	if _, err := d.client.ActOnChannel(context.Background(), client.Resume, control.ChannelAction{}); err != nil {
		t.Fatal(err)
	}
	for name, code := range map[string]attachment.Code{"changed.jpg": attachment.NeedsPayloadChanged, "missing.jpg": attachment.NeedsPayloadMissing} {
		d.until(name, func() bool { return reason(d.item(name).Waiting) == code })
	}
	if n := d.server.Count(remote.StepAppend); n != 0 {
		t.Errorf("%d appends of damaged bytes", n)
	}
}

// When the server holds and verified every byte, a payload that vanished here is no obstacle to the receipt.
func TestVerifiedNeedsNoPayload(t *testing.T) {
	d := newDevice(t)
	d.server.Inject(uplinktest.Fault{Step: remote.StepRegister, Times: uplinktest.Always, Act: uplinktest.Refuse(422, wire.CodeParentPolicy, nil)})
	d.up()
	d.drop("insp-7/a.jpg", 1000)
	d.until("attention", func() bool { return d.item("a.jpg").Condition == attachment.ShownAttention })
	detail, err := d.client.Get(context.Background(), string(d.item("a.jpg").ID))
	must(t, err)
	must(t, os.Remove(detail.PayloadPath))
	d.down()
	d.server.Heal()
	d.up()
	if out, err := d.client.Act(context.Background(), client.Retry, control.Action{All: true}); err != nil || out.Done != 1 {
		t.Fatalf("retry: %+v, %v", out, err)
	}
	d.delivered("a.jpg")
}

// A damaged queue is refused, named and left as it is; the service stays up and takes nothing. A second daemon on the same
// state directory is refused and told who holds it.
func TestDamagedQueueAndSecondDaemon(t *testing.T) {
	d := newDevice(t)
	d.up()
	err := Run(context.Background(), Options{Config: d.config(), FS: durable.OS(), Logger: newSilent()})
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), Program) {
		t.Errorf("second daemon: %v", err)
	}
	d.drop("insp-7/a.jpg", 1000)
	d.delivered("a.jpg")
	d.down()
	queueFile := filepath.Join(d.dir, "state", "accounts", accountOf(t), "queue.db")
	must(t, os.Truncate(queueFile, 0))
	d.up()
	s := d.status()
	if s.Degraded == nil || !strings.Contains(*s.Degraded, "damaged") || !s.NeedsAttention() {
		t.Errorf("status: %+v", s)
	}
	source := filepath.Join(d.dir, "capture", "insp-7", "b.jpg")
	d.drop("insp-7/b.jpg", 10)
	var refused *control.Error
	if _, err := d.client.List(context.Background(), control.ListQuery{}); !errors.As(err, &refused) || refused.Code != control.CodeQueueUnavailable {
		t.Errorf("list: %v", err)
	}
	if _, err := os.Stat(source); err != nil {
		t.Errorf("the source was touched: %v", err)
	}
	if info, err := os.Stat(queueFile); err != nil || info.Size() != 0 {
		t.Errorf("the damaged file was touched: %v, %v", info, err)
	}
}

// A full disk in mid-copy: the item is not taken and says so, its source stays; with room again it is taken.
func TestDiskFullInMidCopy(t *testing.T) {
	d := newDevice(t)
	var full atomic.Bool
	full.Store(true)
	d.fs = durable.Hooked(func(c durable.Call) error {
		if full.Load() && c.Op == durable.OpWrite && strings.Contains(c.Path, "staging") {
			return &durable.ShortWrite{N: 100, Err: unix.ENOSPC}
		}
		return nil
	})
	d.up()
	path := filepath.Join(d.dir, "capture", "insp-7", "a.jpg")
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	// A move needs no copy; a second name makes one.
	must(t, os.WriteFile(filepath.Join(d.dir, "other-name"), uplinktest.Content(1, 5000), 0o644))
	must(t, os.Link(filepath.Join(d.dir, "other-name"), path))
	d.until("not taken for lack of space", func() bool {
		page, err := d.client.NotTaken(context.Background(), "", 10)
		must(t, err)
		return len(page.Items) == 1 && page.Items[0].Waiting.Reason == attachment.NotTakenStorage
	})
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the source is gone: %v", err)
	}
	full.Store(false)
	must(t, os.Chtimes(path, testTime, testTime)) // a change offers it again at once
	d.delivered("a.jpg")
}

// Captures made before the device has a credential belong to nobody yet; the first credential binds them to its account
// without a restart. A credential of another account never sends them.
func TestFirstCredentialBindsCaptures(t *testing.T) {
	d := newDevice(t)
	must(t, os.Remove(filepath.Join(d.dir, "token")))
	d.up()
	d.drop("insp-7/a.jpg", 1000)
	d.until("custody", func() bool { return len(d.items()) == 1 })
	if s := d.status(); s.Account != unassigned || len(s.Problems) == 0 {
		t.Errorf("%+v", s)
	}
	d.down()
	d.setToken(uplinktest.Token)
	d.up()
	d.delivered("a.jpg")
	if s := d.status(); s.Account != accountOf(t) {
		t.Errorf("account %s", s.Account)
	}
	d.down()
	d.setToken("fgw1.stranger.tablet.b3RoZXItc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM")
	d.up()
	if n := len(d.items()); n != 0 {
		t.Errorf("another account sees %d attachments", n)
	}
}

// A lost account pointer loses nothing: the only account is opened again; with several, captures wait unassigned and move
// to the account of the next credential. What another account still owes is told.
func TestLostAccountPointer(t *testing.T) {
	d := newDevice(t)
	pointer := filepath.Join(d.dir, "state", "accounts", "current")
	token := filepath.Join(d.dir, "token")
	d.up()
	d.drop("insp-7/a.jpg", 1000)
	d.delivered("a.jpg")
	d.down()
	must(t, os.Truncate(pointer, 0))
	must(t, os.Remove(token))
	d.up()
	if s := d.status(); s.Account != accountOf(t) || s.Of(attachment.ShownDelivered).Items != 1 {
		t.Errorf("account %s, %+v", s.Account, s.Counts)
	}
	d.drop("insp-7/owed.jpg", 1000)
	d.until("custody", func() bool { return d.item("owed.jpg").ID != "" })
	d.down()
	d.setToken("fgw1.stranger.tablet.b3RoZXItc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM")
	d.up()
	owes := false
	for _, p := range d.status().Problems {
		owes = owes || p.Code == "other_account" && strings.Contains(p.Message, accountOf(t))
	}
	if !owes {
		t.Errorf("nobody is told that the other account owes a file: %+v", d.status().Problems)
	}
	d.down()
	must(t, os.WriteFile(pointer, []byte("../../etc"), 0o600))
	must(t, os.Remove(token))
	d.up()
	if s := d.status(); s.Account != unassigned {
		t.Errorf("account %s", s.Account)
	}
	d.drop("insp-7/meanwhile.jpg", 500)
	d.until("custody", func() bool { return d.item("meanwhile.jpg").ID != "" })
	d.down()
	d.setToken(uplinktest.Token)
	d.up()
	d.delivered("owed.jpg", "meanwhile.jpg")
}

// Odd names, two files of one name and the same bytes twice: each is delivered under its own name.
func TestNamesAndRepetition(t *testing.T) {
	d := newDevice(t)
	d.up()
	d.drop("insp-7/line\nbreak \x1b[31m.jpg", 100)
	d.drop("insp-7/bytes\xff\xfe.jpg", 200)
	d.drop("insp-7/a.jpg", 300)
	d.drop("insp-8/a.jpg", 400)
	d.until("four", func() bool { return len(d.items()) == 4 })
	d.drop("insp-7/a.jpg", 300) // the same bytes again, and the same name
	d.until("all delivered", func() bool {
		items, n := d.items(), 0
		for _, i := range items {
			if i.Condition == attachment.ShownDelivered {
				n++
			}
		}
		return len(items) == 5 && n == 5
	})
	names := map[string]int{}
	for _, i := range d.items() {
		names[i.Filename.Exact()]++
	}
	for name, n := range map[string]int{"line\nbreak \x1b[31m.jpg": 1, "bytes\xff\xfe.jpg": 1, "a.jpg": 3} {
		if names[name] != n {
			t.Errorf("%q: %d, want %d", name, names[name], n)
		}
	}
}

// Two items that the server refuses in a way that may be the channel's fault hold the channel, and still no good item waits
// for them: one that was never tried goes ahead as a witness, its success ends the hold, and each bad item then waits for
// itself. The good ones come after the bad ones and are all delivered while the bad ones never are.
func TestBadItemsNeverStopGoodOnes(t *testing.T) {
	for name, refusal := range map[string]uplinktest.Act{
		"500": uplinktest.Refuse(500, wire.CodeInternal, nil),
		"507": uplinktest.Refuse(507, wire.CodeServerFull, nil),
		"429": uplinktest.Refuse(429, wire.CodeTooMany, http.Header{"Retry-After": {"3600"}}),
		"403": uplinktest.Refuse(403, wire.CodeForbidden, nil),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			d.server.Inject(uplinktest.Fault{Step: remote.StepReserve, Times: uplinktest.Always, Act: refuseNames(refusal, "bad")})
			d.up()
			d.drop("insp-7/bad-1.jpg", 100)
			d.drop("insp-7/bad-2.jpg", 200)
			d.until("the bad ones were tried", func() bool {
				one, two := d.item("bad-1.jpg"), d.item("bad-2.jpg")
				return one.Attempts > 0 || two.Attempts > 0 || reason(d.status().Sending.Channel) != ""
			})
			names := []string{"good-1.jpg", "good-2.jpg", "good-3.jpg"}
			for i, name := range names {
				d.drop("insp-7/"+name, 300+i)
			}
			d.delivered(names...)
			for _, name := range []string{"bad-1.jpg", "bad-2.jpg"} {
				if i := d.item(name); i.Condition == attachment.ShownDelivered {
					t.Errorf("%s was delivered", name)
				}
			}
		})
	}
}

// refuseNames lets act answer the reserves of files whose name begins so; every other request goes its way.
func refuseNames(act uplinktest.Act, prefix string) uplinktest.Act {
	return func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err == nil && bytes.Contains(body, []byte(`"filename":"`+prefix)) {
			act(s, w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}
}
