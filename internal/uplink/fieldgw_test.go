package uplink_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/fieldgw"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// The fieldgw driver keeps every promise that it declares.
func TestFieldgwConforms(t *testing.T) {
	rig := uplinktest.Start(t)
	rig.Server.Offer(wire.DialectTus, wire.DialectRUFH)
	uplinktest.Run(t, func(t *testing.T) (uplink.Driver, uplink.Driver) {
		return rig.Driver, fieldgw.New(rig.NewClient(t))
	})
}

// editBody replaces a text in the answer's body.
func editBody(old, replacement string) uplinktest.Act {
	return uplinktest.Edit(func(status int, h http.Header, body []byte) (int, []byte) {
		h.Del("Content-Length")
		return status, []byte(strings.Replace(string(body), old, replacement, 1))
	})
}

// An answer to a reservation that is about something else, leads elsewhere or lacks something is refused.
func TestReserveAnswersAreChecked(t *testing.T) {
	content := uplinktest.Content(1, 100)
	for name, c := range map[string]struct {
		act  uplinktest.Act
		kind remote.Kind
	}{
		"another attachment":  {editBody(`"attachment_id":"0`, `"attachment_id":"1`), remote.KindMismatch},
		"another host":        {editBody(`"/v1/uploads/`, `"http://127.0.0.2/v1/uploads/`), remote.KindForeign},
		"protocol-relative":   {editBody(`"/v1/uploads/`, `"//evil.example/v1/uploads/`), remote.KindForeign},
		"another scheme":      {editBody(`"/v1/uploads/`, `"https://127.0.0.1/v1/uploads/`), remote.KindForeign},
		"user in the address": {editBody(`"/v1/uploads/`, `"http://a:b@127.0.0.1/v1/uploads/`), remote.KindForeign},
		"no address":          {editBody(`"url":"/v1`, `"url":"","was":"/v1`), remote.KindForeign},
		"unknown dialect":     {editBody(`"tus-1.0.0"`, `"tus-9"`), remote.KindForeign},
		"unknown state":       {editBody(`"reserved"`, `"resting"`), remote.KindForeign},
		"verified, no digest": {editBody(`"reserved"`, `"verified"`), remote.KindForeign},
		"registered, nothing": {editBody(`"reserved"`, `"registered"`), remote.KindForeign},
		"no upload":           {editBody(`"upload":{`, `"download":{`), remote.KindForeign},
		"offset is a text":    {editBody(`"offset":0`, `"offset":"0"`), remote.KindForeign},
		"trailing data":       {editBody(`}}`, `}}}`), remote.KindForeign},
		"two values":          {editBody(`{`, `{} {`), remote.KindForeign},
	} {
		t.Run(name, func(t *testing.T) {
			rig := uplinktest.Start(t)
			rig.Server.Inject(uplinktest.Fault{Step: remote.StepReserve, Act: c.act})
			_, err := rig.Driver.Reserve(t.Context(), uplinktest.NewManifest(t, content), attachment.Session{})
			if e, ok := errors.AsType[*remote.Error](err); !ok || e.Kind != c.kind || e.Class == remote.ItemPermanent {
				t.Errorf("got %v, want kind %s", err, c.kind)
			}
		})
	}
}

// A relative address in an answer counts from the address that was asked, behind a proxy that serves a path too.
func TestRelativeUploadAddress(t *testing.T) {
	rig := uplinktest.Start(t, func(o *remote.Options) { o.Endpoint += "base/" })
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepReserve, Act: uplinktest.Foreign(201,
		http.Header{"Fieldgw-Protocol": {"1"}}, `{"attachment_id":"ID","state":"reserved","generation":1,
		"upload":{"url":"../uploads/7","dialects":["tus-1.0.0"],"offset":0}}`)})
	m := uplinktest.NewManifest(t, nil)
	m.ID = "ID"
	res, err := rig.Driver.Reserve(t.Context(), m, attachment.Session{})
	if want := "http://127.0.0.1/base/v1/uploads/7"; err != nil || res.Session.URL != want || res.Session.ID != "7" {
		t.Errorf("%+v, %v; want %s", res.Session, err, want)
	}
}

// A manifest that the protocol cannot express needs a person and reaches nobody.
func TestReserveRefusesWhatCannotBeSaid(t *testing.T) {
	rig := uplinktest.Start(t)
	m := uplinktest.NewManifest(t, nil)
	m.Filename = attachment.NameOf(strings.Repeat("x", 1000))
	_, err := rig.Driver.Reserve(t.Context(), m, attachment.Session{})
	if e, ok := errors.AsType[*remote.Error](err); !ok || e.Reason != attachment.NeedsRefused || e.Class != remote.ItemPermanent {
		t.Errorf("got %v", err)
	}
	if n := len(rig.Server.Calls()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// A reservation carries the attachment ID as idempotency key, and no request but it does: a transport may repeat such a
// request by itself, which must not happen to an append.
func TestIdempotencyKey(t *testing.T) {
	rig := uplinktest.Start(t)
	content := uplinktest.Content(1, 100)
	d := newDelivery(t, rig, content)
	d.mustDeliver(t)
	for _, c := range rig.Server.Calls() {
		want := ""
		if c.Step == remote.StepReserve {
			want = `"` + string(d.m.ID) + `"`
		}
		if got := c.Header.Get("Idempotency-Key"); got != want {
			t.Errorf("%s: key %q, want %q", c.Step, got, want)
		}
	}
}

// Over real TCP, with pieces that fill the kernel's buffers, everything is as in memory.
func TestDeliverOverTCP(t *testing.T) {
	rig := uplinktest.Start(t)
	web := httptest.NewServer(rig.Server)
	t.Cleanup(web.Close)
	d := newDelivery(t, rig, uplinktest.Content(1, 9<<20))
	client := rig.NewClient(t, func(o *remote.Options) { o.Endpoint, o.Dial = web.URL, nil })
	up, err := uplink.New(uplink.Options{Driver: fieldgw.New(client), Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	d.up = up
	d.mustDeliver(t)
	if n := rig.Server.Count(remote.StepAppend); n != 2 || rig.Network.Dials() != 0 {
		t.Errorf("%d appends, want 2 of at most 8 MiB", n)
	}
}
