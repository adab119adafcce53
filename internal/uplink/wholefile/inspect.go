package wholefile

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// unknown is the length of what HEAD tells no length of.
const unknown = -1

// found is what lies at an address.
type found struct {
	there bool
	// page: it is one of HTML.
	page    bool
	verdict uplink.Verdict
}

// is reports whether it is the file, as far as can be known.
func (f found) is(m *attachment.Manifest) bool {
	return f.there && f.verdict.Length == m.Length && (f.verdict.SHA256 == "" || f.verdict.SHA256 == m.SHA256.String())
}

// Verify holds what lies at the file's address against it.
func (d *Driver) Verify(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Verdict, error) {
	if d.Path == nil {
		return d.verifyPost(ctx, m)
	}
	u, err := foreign.Resolve(d.Client, remote.StepVerify, s)
	if err != nil {
		return uplink.Verdict{}, err
	}
	got, err := d.inspect(ctx, remote.StepVerify, m, u)
	switch {
	case err != nil:
		return uplink.Verdict{}, err
	case got.there:
		return got.verdict, nil
	case m.Length == 0:
		return uplink.Verdict{}, remote.Refused(remote.StepVerify, wire.CodeNotVerified) // the empty append makes it
	}
	return uplink.Verdict{}, foreign.Gone(remote.StepVerify, "nothing lies at its address")
}

// inspect finds out what lies at an address: by HEAD, and where its length is the file's and no digest is told, by reading it
// back. A server that gives nothing back leaves the length.
func (d *Driver) inspect(ctx context.Context, step remote.Step, m *attachment.Manifest, u *url.URL) (found, error) {
	got, err := d.head(ctx, step, u)
	if err != nil || !got.there || got.verdict.SHA256 != "" || got.verdict.Length != unknown && (d.LengthOnly || got.verdict.Length != m.Length) {
		return got, err
	}
	back, err := d.readings.Read(ctx, d.Client, remote.Request{Step: step, Method: http.MethodGet, URL: u, Header: http.Header{}}, m)
	e, refused := errors.AsType[*remote.Error](err)
	switch {
	case err == nil:
		got.page = page(back.Answer.Header.Get("Content-Type"))
		got.verdict = uplink.Verdict{Length: back.Length, SHA256: back.SHA256}
		if d.LengthOnly {
			got.verdict.SHA256 = ""
		}
		return got, nil
	case errors.Is(err, foreign.ErrTooLong):
		got.verdict = uplink.Verdict{Length: m.Length + 1} // or more
		return got, nil
	case refused && e.Kind == remote.KindProblem && (e.Status == http.StatusNotFound || e.Status == http.StatusGone):
		return found{}, nil
	case refused && e.Kind == remote.KindProblem && slices.Contains(unreadable, e.Status) && got.verdict.Length != unknown:
		return got, nil
	}
	return found{}, err
}

// unreadable are the answers to GET of servers that take files and give none back.
var unreadable = []int{http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented}

// head asks for an address. A server that knows no HEAD may still give back.
func (d *Driver) head(ctx context.Context, step remote.Step, u *url.URL) (found, error) {
	h := http.Header{"Accept-Encoding": {"identity"}}
	if !d.LengthOnly {
		h.Set(wire.HeaderWantReprDigest, foreign.WantSHA256)
	}
	resp, err := d.Client.Do(ctx, remote.Request{Step: step, Method: http.MethodHead, URL: u, Header: h})
	if e, ok := errors.AsType[*remote.Error](err); ok && e.Kind == remote.KindProblem {
		switch e.Status {
		case http.StatusNotFound, http.StatusGone:
			return found{}, nil
		case http.StatusMethodNotAllowed, http.StatusNotImplemented:
			return found{there: true, verdict: uplink.Verdict{Length: unknown}}, nil
		}
	}
	if err != nil {
		return found{}, err
	}
	got := found{there: true, page: page(resp.Header.Get("Content-Type")), verdict: uplink.Verdict{Length: unknown}}
	if n, err := strconv.ParseInt(resp.Header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		got.verdict.Length = n
	}
	if !d.LengthOnly && got.verdict.Length != unknown {
		got.verdict.SHA256 = foreign.DigestIn(resp.Header)
	}
	return got, nil
}

// page reports whether a media type is that of a page of HTML.
func page(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "text/html" || media == "application/xhtml+xml")
}

// Protocol is HTTP as any web server speaks it.
func Protocol() *remote.Protocol {
	return &remote.Protocol{
		Name: "http",
		Accepts: map[remote.Step][]int{
			// Whatever a server says of its root, it is there.
			remote.StepProbe:   {200, 204, 301, 302, 303, 304, 400, 403, 404, 405, 406, 415, 501},
			remote.StepReserve: {200, 201, 204, 206},
			remote.StepOffset:  {200, 204},
			remote.StepAppend:  {200, 201, 202, 204},
			remote.StepVerify:  {200, 204, 206},
			remote.StepCancel:  {200, 202, 204, 404, 410},
		},
		Problem: problem,
		Probe: func(ctx context.Context, c *remote.Client) error {
			_, err := c.Do(ctx, remote.Request{Step: remote.StepProbe, Method: http.MethodHead})
			return err
		},
		CheckCredential: foreign.CheckCredential, Authorize: foreign.Authorize, Anonymous: true,
	}
}

// problem knows the refusals that concern one file for good. The words of a web server are for browsers.
func problem(resp *http.Response, _ []byte) (wire.Code, string, error) {
	detail := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch resp.StatusCode {
	case http.StatusRequestEntityTooLarge:
		return wire.CodeSizeLimit, detail, nil
	case http.StatusUnsupportedMediaType:
		return wire.CodeMediaType, detail, nil
	}
	return "", detail, nil
}
