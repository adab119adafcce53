package uplink_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Contents of every interesting length arrive in chunks of at most the limit, each checked before it is sent, and end in
// one receipt.
func TestDeliver(t *testing.T) {
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 5*chunk + 7} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			rig := uplinktest.Start(t)
			d := newDelivery(t, rig, uplinktest.Content(1, size))
			d.mustDeliver(t)
			if got, want := d.payload.Checked(), int64(size); got != want {
				t.Errorf("%d bytes were checked, want %d", got, want)
			}
			appends := (size + chunk - 1) / chunk
			if size == 0 {
				appends = 1 // makes the server finish
			}
			if got := rig.Server.Count(remote.StepAppend); got != appends {
				t.Errorf("%d appends, want %d", got, appends)
			}
			if seen := d.rec.Seen(); seen.Confirmed != int64(size) || seen.Moved != int64(size) || seen.Losses != 0 {
				t.Errorf("recorded %+v", seen)
			}
			for _, step := range []remote.Step{remote.StepOffset, remote.StepCancel, remote.StepProbe} {
				if n := rig.Server.Count(step); n != 0 {
					t.Errorf("%d requests of step %s, none is needed", n, step)
				}
			}
		})
	}
}

// The server's smaller limit is kept from the beginning.
func TestServersAppendLimit(t *testing.T) {
	rig := uplinktest.Start(t)
	rig.Server.SetMaxAppend(1000)
	d := newDelivery(t, rig, uplinktest.Content(1, 4500))
	d.mustDeliver(t)
	if got := rig.Server.Count(remote.StepAppend); got != 5 {
		t.Errorf("%d appends, want 5", got)
	}
}

// A server that refuses an append which cannot be made smaller is not asked again at once, as large as it may be.
func TestWholeAppendRefused(t *testing.T) {
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, 3*chunk))
	var err error
	if d.up, err = uplink.New(uplink.Options{Driver: wholeOnly{rig.Driver}, ChunkMax: chunk, Logger: discard}); err != nil {
		t.Fatal(err)
	}
	rig.Server.SetMaxAppend(2 * chunk)
	if e := d.mustFail(t); e.Status != http.StatusRequestEntityTooLarge || e.Class != remote.ItemPermanent {
		t.Errorf("%v", e)
	}
	if got := rig.Server.Count(remote.StepAppend); got != 1 {
		t.Errorf("%d appends, want 1", got)
	}
}

// wholeOnly is a driver of a server that takes whole files only.
type wholeOnly struct{ uplink.Driver }

// Reserve implements uplink.Driver.
func (w wholeOnly) Reserve(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Reservation, error) {
	res, err := w.Driver.Reserve(ctx, m, s)
	res.MinAppend, res.MaxAppend, res.Streams = m.Length, 0, false
	return res, err
}

// Appends whose size is refused are halved down to the floor and not below.
func TestChunksShrinkToTheFloor(t *testing.T) {
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, 3*chunk))
	up, err := uplink.New(uplink.Options{Driver: rig.Driver, ChunkMax: 100_000, ChunkFloor: 30_000, Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	d.up = up
	var sizes []int64
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepAppend, Times: uplinktest.Always, Act: func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		sizes = append(sizes, r.ContentLength)
		uplinktest.Foreign(413, nil, "")(s, w, r, next)
	}})
	d.mustFail(t)
	if want := []int64{100_000, 50_000, 30_000}; !slices.Equal(sizes, want) {
		t.Errorf("appends of %v, want %v", sizes, want)
	}
}

// Options that contradict each other make no uplink.
func TestOptions(t *testing.T) {
	driver := uplinktest.Start(t).Driver
	for name, o := range map[string]uplink.Options{
		"no driver": {Logger: discard}, "no logger": {Driver: driver}, "floor above": {Driver: driver, Logger: discard, ChunkMax: 10, ChunkFloor: 11},
		"negative": {Driver: driver, Logger: discard, ChunkMax: -1}, "negative time": {Driver: driver, Logger: discard, ChunkTime: -1},
	} {
		if _, err := uplink.New(o); !errors.Is(err, uplink.ErrBadOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fault is a misbehaviour of the server that one delivery must get over, or must end with.
type fault struct {
	step  remote.Step
	after int
	times int
	act   uplinktest.Act
}

func (f fault) inject(s *uplinktest.Server) {
	s.Inject(uplinktest.Fault{Step: f.step, After: f.after, Times: f.times, Act: f.act})
}

// What happens on the way and says nothing about the item is got over within one delivery, from the confirmed offset on.
func TestDeliverGetsOver(t *testing.T) {
	html := http.Header{"Content-Type": {"text/html"}}
	real := func(change int64) uplinktest.Act {
		return uplinktest.Offset(func(n int64) string { return strconv.FormatInt(n+change, 10) })
	}
	for name, f := range map[string]fault{
		"500 to an append":              {remote.StepAppend, 1, 1, uplinktest.Refuse(500, wire.CodeInternal, nil)},
		"500 of a proxy to an append":   {remote.StepAppend, 1, 1, uplinktest.Foreign(500, html, "<h1>oops</h1>")},
		"409 with the offset":           {remote.StepAppend, 1, 2, uplinktest.Refuse(409, wire.CodeOffsetMismatch, http.Header{"Upload-Offset": {"65536"}})},
		"409 without":                   {remote.StepAppend, 1, 2, uplinktest.Refuse(409, wire.CodeOffsetMismatch, nil)},
		"460":                           {remote.StepAppend, 1, 3, uplinktest.Refuse(460, "checksum_mismatch", nil)},
		"423 for a while":               {remote.StepAppend, 1, 3, uplinktest.Refuse(423, wire.CodeBusy, http.Header{"Retry-After": {"5"}})},
		"423 to the offset too":         {remote.StepOffset, 0, 2, uplinktest.Refuse(423, wire.CodeBusy, nil)},
		"413 in our protocol":           {remote.StepAppend, 0, 3, uplinktest.Refuse(413, wire.CodeAppendLimit, nil)},
		"413 of a proxy":                {remote.StepAppend, 0, 3, uplinktest.Foreign(413, html, "too large")},
		"cut before the body":           {remote.StepAppend, 1, 1, uplinktest.Cut(0)},
		"cut after the first byte":      {remote.StepAppend, 1, 1, uplinktest.Cut(1)},
		"cut in the middle":             {remote.StepAppend, 1, 1, uplinktest.Cut(chunk / 2)},
		"cut before the last byte":      {remote.StepAppend, 1, 1, uplinktest.Cut(chunk - 1)},
		"answer lost":                   {remote.StepAppend, 1, 1, uplinktest.Cut(chunk)},
		"last answer lost":              {remote.StepAppend, 3, 1, uplinktest.Cut(chunk)},
		"every append cut":              {remote.StepAppend, 0, uplinktest.Always, uplinktest.Cut(chunk / 3)},
		"append to a transient 404":     {remote.StepAppend, 1, 1, uplinktest.Refuse(404, wire.CodeNotFound, nil)},
		"append to a transient 410":     {remote.StepAppend, 1, 1, uplinktest.Refuse(410, wire.CodeSessionGone, nil)},
		"offset beyond what was sent":   {remote.StepAppend, 1, 1, real(+1)},
		"offset behind what was sent":   {remote.StepAppend, 1, 1, real(-chunk - 1)},
		"offset unchanged":              {remote.StepAppend, 1, 1, real(-chunk)},
		"offset is not a number":        {remote.StepAppend, 1, 1, uplinktest.Offset(func(int64) string { return "0x10" })},
		"offset is negative":            {remote.StepAppend, 1, 1, uplinktest.Offset(func(int64) string { return "-1" })},
		"no offset":                     {remote.StepAppend, 1, 1, uplinktest.Offset(func(int64) string { return "" })},
		"offset in the answer too low":  {remote.StepAppend, 1, 1, real(-5)},
		"reserve answer lost":           {remote.StepReserve, 0, 1, uplinktest.Cut(1 << 20)},
		"verify answer lost":            {remote.StepVerify, 0, 1, uplinktest.Cut(0)},
		"registration answer lost":      {remote.StepRegister, 0, 1, uplinktest.Cut(1 << 20)},
		"registration of unknown bytes": {remote.StepRegister, 0, 1, uplinktest.Refuse(409, wire.CodeNotVerified, nil)},
		"registration to a passing 404": {remote.StepRegister, 0, 1, uplinktest.Refuse(404, wire.CodeNotFound, nil)},
		"verification to a passing 404": {remote.StepVerify, 0, 1, uplinktest.Refuse(404, wire.CodeNotFound, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := uplinktest.Start(t)
				d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
				if f.step == remote.StepOffset {
					fault{remote.StepAppend, 1, 1, uplinktest.Cut(100)}.inject(rig.Server)
				}
				f.inject(rig.Server)
				d.mustDeliver(t)
				if seen := d.rec.Seen(); seen.Losses != 0 || seen.Opened > 2 {
					t.Errorf("recorded %+v: nothing was lost", seen)
				}
			})
		})
	}
}

// What a delivery cannot settle by itself it returns, judged, with everything confirmed kept.
func TestDeliverGivesUp(t *testing.T) {
	const always = uplinktest.Always
	portal := uplinktest.Foreign(200, http.Header{"Content-Type": {"text/html"}}, "<html>sign in</html>")
	away := uplinktest.Foreign(302, http.Header{"Location": {"http://portal.example/login"}}, "")
	waits := func(v string) http.Header { return http.Header{"Retry-After": {v}} }
	for name, c := range map[string]struct {
		fault
		class  remote.Class
		reason attachment.Code
		wait   time.Duration
	}{
		"portal at reserve":     {fault{remote.StepReserve, 0, always, portal}, remote.ChannelTransient, attachment.HoldNotOurServer, 0},
		"portal at append":      {fault{remote.StepAppend, 1, always, portal}, remote.ChannelTransient, attachment.HoldNotOurServer, 0},
		"portal redirects":      {fault{remote.StepReserve, 0, always, away}, remote.ChannelTransient, attachment.HoldNotOurServer, 0},
		"500 at reserve":        {fault{remote.StepReserve, 0, always, uplinktest.Refuse(500, wire.CodeInternal, nil)}, remote.ItemTransient, attachment.HoldServerError, 0},
		"500 at append":         {fault{remote.StepAppend, 1, always, uplinktest.Refuse(500, wire.CodeInternal, nil)}, remote.ItemTransient, attachment.HoldServerError, 0},
		"503 with Retry-After":  {fault{remote.StepAppend, 1, always, uplinktest.Refuse(503, wire.CodeShuttingDown, waits("120"))}, remote.ChannelTransient, attachment.HoldServerBusy, 2 * time.Minute},
		"429 with Retry-After":  {fault{remote.StepReserve, 0, always, uplinktest.Refuse(429, wire.CodeTooMany, waits("7"))}, remote.ChannelTransient, attachment.HoldServerBusy, 7 * time.Second},
		"401":                   {fault{remote.StepAppend, 1, always, uplinktest.Refuse(401, wire.CodeCredentials, nil)}, remote.ChannelOperator, attachment.HoldCredentials, 0},
		"403":                   {fault{remote.StepReserve, 0, always, uplinktest.Refuse(403, wire.CodeForbidden, nil)}, remote.ItemPermanent, attachment.NeedsForbidden, 0},
		"takeover":              {fault{remote.StepReserve, 0, always, uplinktest.Refuse(403, wire.CodeTakeoverDenied, nil)}, remote.ItemPermanent, attachment.NeedsTakeover, 0},
		"identity":              {fault{remote.StepReserve, 0, always, uplinktest.Refuse(409, wire.CodeIdentityConflict, nil)}, remote.ItemPermanent, attachment.NeedsIdentityConflict, 0},
		"size":                  {fault{remote.StepReserve, 0, always, uplinktest.Refuse(413, wire.CodeSizeLimit, nil)}, remote.ItemPermanent, attachment.NeedsSizeLimit, 0},
		"media type":            {fault{remote.StepReserve, 0, always, uplinktest.Refuse(415, wire.CodeMediaType, nil)}, remote.ItemPermanent, attachment.NeedsMediaType, 0},
		"parent":                {fault{remote.StepRegister, 0, always, uplinktest.Refuse(422, wire.CodeParentPolicy, nil)}, remote.ItemPermanent, attachment.NeedsParentPolicy, 0},
		"full":                  {fault{remote.StepReserve, 0, always, uplinktest.Refuse(507, wire.CodeServerFull, nil)}, remote.ChannelOperator, attachment.HoldServerFull, 0},
		"413 of a proxy":        {fault{remote.StepAppend, 0, always, uplinktest.Foreign(413, nil, "")}, remote.ChannelTransient, attachment.HoldNotOurServer, 0},
		"413 in our protocol":   {fault{remote.StepAppend, 0, always, uplinktest.Refuse(413, wire.CodeAppendLimit, nil)}, remote.ItemPermanent, attachment.NeedsRefused, 0},
		"locked":                {fault{remote.StepAppend, 1, always, uplinktest.Refuse(423, wire.CodeBusy, nil)}, remote.ItemTransient, attachment.HoldServerBusy, 0},
		"out of step":           {fault{remote.StepAppend, 1, always, uplinktest.Refuse(409, wire.CodeOffsetMismatch, nil)}, remote.ItemTransient, attachment.HoldBackoff, 0},
		"cut without progress":  {fault{remote.StepAppend, 1, always, uplinktest.Cut(0)}, remote.ItemTransient, attachment.HoldOffline, 0},
		"append to 404":         {fault{remote.StepAppend, 1, always, uplinktest.Refuse(404, wire.CodeNotFound, nil)}, remote.ItemTransient, attachment.HoldServerError, 0},
		"never verified":        {fault{remote.StepRegister, 0, always, uplinktest.Refuse(409, wire.CodeNotVerified, nil)}, remote.ItemTransient, attachment.HoldServerError, 0},
		"other receipt":         {fault{remote.StepRegister, 0, always, editBody(`"sha256":"`, `"sha256":"0`)}, remote.ItemPermanent, attachment.NeedsReceiptMismatch, 0},
		"receipt of another":    {fault{remote.StepRegister, 0, always, editBody(`"attachment_id":"0`, `"attachment_id":"1`)}, remote.ItemPermanent, attachment.NeedsReceiptMismatch, 0},
		"receipt, other parent": {fault{remote.StepRegister, 0, always, editBody(`inspection-7`, `inspection-8`)}, remote.ItemPermanent, attachment.NeedsReceiptMismatch, 0},
		"reserve of another":    {fault{remote.StepReserve, 0, always, editBody(`"attachment_id":"0`, `"attachment_id":"1`)}, remote.ItemTransient, attachment.HoldServerError, 0},
		"verify of another":     {fault{remote.StepVerify, 0, always, editBody(`"attachment_id":"0`, `"attachment_id":"1`)}, remote.ItemTransient, attachment.HoldServerError, 0},
		"offset beyond the end": {fault{remote.StepReserve, 0, always, editBody(`"offset":0`, `"offset":999999999`)}, remote.ItemTransient, attachment.HoldServerError, 0},
		"reserve offset < 0":    {fault{remote.StepReserve, 0, always, editBody(`"offset":0`, `"offset":-1`)}, remote.ItemTransient, attachment.HoldServerError, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := uplinktest.Start(t)
				d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
				c.inject(rig.Server)
				e := d.mustFail(t)
				if e.Class != c.class || e.Reason != c.reason || e.RetryAfter != c.wait {
					t.Errorf("got %s, %s, wait %s (%v); want %s, %s, wait %s", e.Class, e.Reason, e.RetryAfter, e, c.class, c.reason, c.wait)
				}
				if n := len(rig.Server.Calls()); n > 40 {
					t.Errorf("%d requests", n)
				}
				before := d.rec.Seen()
				rig.Server.Heal()
				d.mustDeliver(t)
				if after := d.rec.Seen(); after.Losses != 0 || before.Session.ID != "" && after.Session != before.Session {
					t.Errorf("began anew: %+v, then %+v", before, after)
				}
			})
		})
	}
}

// Without a network the channel is at fault, and what was confirmed is kept.
func TestDeliverOffline(t *testing.T) {
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
	fault{remote.StepAppend, 2, 1, func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		rig.Network.Down(true)
		uplinktest.Cut(1000)(s, w, r, next)
	}}.inject(rig.Server)
	if e := d.mustFail(t); e.Class != remote.ChannelTransient || e.Reason != attachment.HoldOffline || e.Charge {
		t.Errorf("got %s, %s: %v", e.Class, e.Reason, e)
	}
	if seen := d.rec.Seen(); seen.Confirmed != 2*chunk {
		t.Errorf("confirmed are %d", seen.Confirmed)
	}
	rig.Network.Down(false)
	d.mustDeliver(t)
	if n := rig.Server.Count(remote.StepAppend); n != 5 {
		t.Errorf("%d appends, want 5: the cut one is completed", n)
	}
}

// A registration that waits for the parent is nobody's failure, and is asked again without sending a byte.
func TestParentPending(t *testing.T) {
	rig := uplinktest.Start(t)
	rig.Server.SetPending(true)
	d := newDelivery(t, rig, uplinktest.Content(1, 2*chunk))
	for range 2 {
		if e := d.mustFail(t); e.Reason != attachment.HoldWaitingParent || e.Charge || e.Class != remote.ItemTransient {
			t.Fatalf("got %s, %s: %v", e.Class, e.Reason, e)
		}
	}
	rig.Server.SetPending(false)
	d.mustDeliver(t)
	if n, r := rig.Server.Count(remote.StepAppend), rig.Server.Count(remote.StepReserve); n != 2 || r != 1 {
		t.Errorf("%d appends and %d reservations, want 2 and 1", n, r)
	}
}

// An error of the recorder ends a delivery at once: nothing is sent past what is not recorded.
func TestRecorderFails(t *testing.T) {
	broken := errors.New("disk full")
	for method, appends := range map[string]int{"SessionOpened": 0, "Committed": 1, "Verified": 4, "Registered": 4} {
		t.Run(method, func(t *testing.T) {
			rig := uplinktest.Start(t)
			d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
			d.rec.Fail(method, broken)
			if err := d.deliver(t.Context(), t); !errors.Is(err, uplink.ErrRecord) || !errors.Is(err, broken) || remote.ClassOf(err) != remote.Local {
				t.Fatalf("got %v", err)
			}
			if n := rig.Server.Count(remote.StepAppend); n != appends {
				t.Errorf("%d appends, want %d", n, appends)
			}
			d.rec.Fail(method, nil)
			d.mustDeliver(t)
		})
	}
}

// An ended context ends a delivery with the context's error, whatever is under way.
func TestDeliverCancelled(t *testing.T) {
	rig := uplinktest.Start(t)
	d := newDelivery(t, rig, uplinktest.Content(1, 4*chunk))
	ctx, cancel := context.WithCancel(t.Context())
	fault{remote.StepAppend, 2, 1, func(s *uplinktest.Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		cancel()
		uplinktest.Hang(100)(s, w, r, next)
	}}.inject(rig.Server)
	if err := d.deliver(ctx, t); !errors.Is(err, context.Canceled) || remote.ClassOf(err) != remote.Cancelled {
		t.Fatalf("got %v", err)
	}
	d.mustDeliver(t)
}
