package rufh

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Header asks for the version of this device, and has pairs of names and values.
func Header(pairs ...string) http.Header {
	h := http.Header{wire.HeaderInteropVersion: {strconv.Itoa(wire.InteropVersion)}}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// Patch sends the bytes of an append to its session's upload (draft, Upload Append). What the server confirms meanwhile goes
// to a.Confirmed. Every error is a *remote.Error.
func Patch(ctx context.Context, client *remote.Client, a uplink.Append) (*remote.Response, error) {
	u, err := client.Resolve(a.Session.URL)
	if err != nil {
		return nil, remote.Fail(remote.StepAppend, remote.KindRequest, err)
	}
	send := remote.Append{
		Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Body: a.Body, Length: a.Length, Moved: a.Moved,
		Header: Header(
			wire.HeaderUploadOffset, strconv.FormatInt(a.Offset, 10), wire.HeaderUploadComplete, wire.FormatBoolean(a.Last()),
			"Content-Type", wire.ContentTypePartial),
	}
	if a.Confirmed != nil {
		send.Interim = func(h http.Header) {
			if offset, ok := wire.ParseInteger(h.Values(wire.HeaderUploadOffset)); ok {
				a.Confirmed(offset)
			}
		}
	}
	return client.Stream(ctx, send)
}

// ending is the answer that ended an upload, which the server may forget after it.
type ending struct {
	failed bool     // the file was refused, or could not be processed
	sha256 string   // the server's digest of it, in hex; empty where it gave none
	place  *url.URL // where the answer says that the file is now; nil for nowhere
}

// maxEndings bounds the memory of endings.
const maxEndings = 256

func (d *Driver) ended(s attachment.Session) (ending, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.endings[s.URL]
	return e, ok
}

func (d *Driver) end(s attachment.Session, e ending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.endings) >= maxEndings {
		clear(d.endings)
	}
	d.endings[s.URL] = e
}

func (d *Driver) forget(s attachment.Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.endings, s.URL)
}

// Append is PATCH of the upload. The answer to one that is not the last need not repeat the offset.
func (d *Driver) Append(ctx context.Context, a uplink.Append) (int64, error) {
	if _, err := foreign.Resolve(d.Client, remote.StepAppend, a.Session); err != nil {
		return 0, err
	}
	resp, err := Patch(ctx, d.Client, a)
	if e, ok := errors.AsType[*remote.Error](err); ok && e.Problem == remote.CodeFinal {
		d.end(a.Session, ending{failed: true})
	}
	if err != nil {
		return 0, err
	}
	to := a.Offset + a.Length
	if complete, _ := wire.ParseBoolean(resp.Header.Values(wire.HeaderUploadComplete)); complete {
		if !a.Last() {
			d.end(a.Session, ending{failed: true})
			return 0, resp.Mismatch(fmt.Errorf("%w: the upload is complete after %d of %d bytes", uplink.ErrAnswer, to, a.Manifest.Length))
		}
		e := ending{sha256: foreign.DigestIn(resp.Header)}
		if u, err := resp.Resolve(resp.Header.Get("Location")); err == nil {
			e.place = u
		}
		d.end(a.Session, e)
		return to, nil
	}
	if offset, ok := wire.ParseInteger(resp.Header.Values(wire.HeaderUploadOffset)); ok {
		return offset, nil
	}
	return to, nil
}
