package wholefile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// answer is what a server said to POST.
type answer struct {
	verdict uplink.Verdict
	// location is where it put the file; empty where it says nothing, or another server.
	location string
}

func (d *Driver) answered(id attachment.ID) (answer, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.answers[id]
	return a, ok
}

// reservePost asks nothing: where nothing can be looked up, the idempotency key is all that keeps a file from being stored
// twice. Without the answer in hand a delivery begins anew, and its generation says so.
func (d *Driver) reservePost(m *attachment.Manifest, s attachment.Session) uplink.Reservation {
	res := uplink.Reservation{
		Session: attachment.Session{ID: string(m.ID), URL: d.Client.Endpoint().String(), Generation: s.Generation},
		MediaID: string(m.ID), MinAppend: m.Length, BytesNeeded: true,
	}
	if _, ok := d.answered(m.ID); ok {
		res.Offset = m.Length
	} else {
		res.Session.Generation++
	}
	return res
}

// post sends the whole file and keeps the answer.
func (d *Driver) post(ctx context.Context, a uplink.Append) (int64, error) {
	resp, err := d.Client.Stream(ctx, remote.Append{
		Step: remote.StepAppend, Method: http.MethodPost, URL: d.Client.Endpoint(), Body: a.Body, Length: a.Length, Moved: a.Moved,
		Header: d.header(a.Manifest),
	})
	if err != nil {
		return 0, err
	}
	if page(resp.Header.Get("Content-Type")) {
		// Nothing verifies it later, and a portal answers so.
		return 0, resp.Foreign(fmt.Errorf("%w: it answers with a page of HTML", remote.ErrForeign))
	}
	got := answer{verdict: uplink.Verdict{Length: a.Length}}
	var said struct {
		Length *int64 `json:"length"`
		SHA256 string `json:"sha256"`
	}
	if json.Unmarshal(resp.Body, &said) == nil {
		got.verdict.SHA256 = said.SHA256
		if said.Length != nil {
			got.verdict.Length = *said.Length
		}
	}
	if u, err := resp.Resolve(resp.Header.Get("Location")); err == nil {
		got.location = u.String()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[a.Manifest.ID] = got
	return a.Length, nil
}

// verifyPost goes by what the server said, and reads the file back where it said where it is.
func (d *Driver) verifyPost(ctx context.Context, m *attachment.Manifest) (uplink.Verdict, error) {
	got, ok := d.answered(m.ID)
	switch {
	case !ok && m.Length == 0:
		return uplink.Verdict{}, remote.Refused(remote.StepVerify, wire.CodeNotVerified) // the empty append sends it
	case !ok:
		return uplink.Verdict{}, foreign.Gone(remote.StepVerify, "nothing at the server tells of it")
	case got.location == "" || got.verdict.SHA256 != "" || d.LengthOnly:
		return got.verdict, nil
	}
	u, err := url.Parse(got.location)
	if err != nil {
		return uplink.Verdict{}, remote.Fail(remote.StepVerify, remote.KindRequest, err)
	}
	back, err := d.inspect(ctx, remote.StepVerify, m, u)
	if err != nil || !back.is(m) {
		return got.verdict, err // a page about the file may lie there, or nothing yet
	}
	return back.verdict, nil
}
