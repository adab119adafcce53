// Package rufh is the driver for any server of "Resumable Uploads for HTTP" (draft-ietf-httpbis-resumable-upload, draft
// interop version 8), and for the same dialect of a fieldgw server.
//
// Such a server takes files and registers nothing. An upload is created without content, so that its address is known and
// recorded before the first byte; an offset that the server says, in interim answers too, is one that it never goes back
// from; and only the answer to the append that says so completes an upload. What was stored is then held against the
// payload, and the receipt is the device's own, of a grade that says what was found. Read Driver first, then create.go,
// append.go and verify.go.
package rufh

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Options are what a Driver needs.
type Options struct {
	// Client speaks Protocol() and has the URL where uploads are created as its endpoint.
	Client *remote.Client
	// LengthOnly: neither a digest is asked for, nor is anything read back.
	LengthOnly bool
	// Registrar gives the receipts.
	Registrar foreign.Registrar
}

// Driver implements uplink.Driver.
type Driver struct {
	Options
	readings foreign.Readings

	mu      sync.Mutex
	known   *wire.UploadLimit // nil until the server was asked
	endings map[string]ending // by the session's URL
}

// New returns the driver. It asks the server nothing.
func New(o Options) *Driver { return &Driver{Options: o, endings: map[string]ending{}} }

// Name returns the name in the configuration.
func (d *Driver) Name() string { return "rufh" }

// Capabilities declare what the draft demands: an offset never decreases. Creating is not idempotent.
func (d *Driver) Capabilities() uplink.Capabilities {
	return uplink.Capabilities{Resume: true, ConfirmedOffsets: true, Digests: !d.LengthOnly}
}

// Reserve is HEAD of the session's upload, or a creation where there is none.
func (d *Driver) Reserve(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Reservation, error) {
	if s.URL == "" {
		return d.create(ctx, m)
	}
	at, err := d.head(ctx, remote.StepOffset, m, s)
	if err != nil {
		return uplink.Reservation{}, err
	}
	return reservation(s, at.offset, at.limit), nil
}

func reservation(s attachment.Session, offset int64, limit wire.UploadLimit) uplink.Reservation {
	return uplink.Reservation{
		Session: s, Offset: offset, MinAppend: limit.MinAppend, MaxAppend: limit.MaxAppend, Streams: true, MediaID: s.ID, BytesNeeded: true,
	}
}

// Offset is HEAD of the upload.
func (d *Driver) Offset(ctx context.Context, m *attachment.Manifest, s attachment.Session) (int64, error) {
	at, err := d.head(ctx, remote.StepOffset, m, s)
	return at.offset, err
}

// state is what is known of an upload.
type state struct {
	offset   int64
	complete bool
	limit    wire.UploadLimit
	sha256   string // the server's own digest, in hex; empty where it gives none
}

// head asks for an upload (draft, Offset Retrieval). One that was refused as a whole, ended before its end, or is another
// than this attachment's is gone; one that the server forgot after it had ended it well is complete.
func (d *Driver) head(ctx context.Context, step remote.Step, m *attachment.Manifest, s attachment.Session) (state, error) {
	end, over := d.ended(s)
	if end.failed {
		return state{}, foreign.Gone(step, "the server has refused the file as a whole")
	}
	u, err := foreign.Resolve(d.Client, step, s)
	if err != nil {
		return state{}, err
	}
	h := Header()
	if step == remote.StepVerify && !d.LengthOnly {
		h.Set(wire.HeaderWantReprDigest, foreign.WantSHA256)
	}
	resp, err := d.Client.Do(ctx, remote.Request{Step: step, Method: http.MethodHead, URL: u, Header: h})
	if over && isGone(err) {
		return state{offset: m.Length, complete: true, sha256: end.sha256}, nil
	}
	if err != nil {
		return state{}, err
	}
	var at state
	var ok bool
	if at.offset, ok = wire.ParseInteger(resp.Header.Values(wire.HeaderUploadOffset)); !ok {
		return state{}, resp.Mismatch(fmt.Errorf("%w: no %s", uplink.ErrAnswer, wire.HeaderUploadOffset))
	}
	if length, ok := wire.ParseInteger(resp.Header.Values(wire.HeaderUploadLength)); ok && length != m.Length {
		return state{}, foreign.Gone(step, fmt.Sprintf("the upload has a length of %d", length))
	}
	at.complete, _ = wire.ParseBoolean(resp.Header.Values(wire.HeaderUploadComplete))
	if at.complete && at.offset < m.Length {
		return state{}, foreign.Gone(step, fmt.Sprintf("the upload has ended after %d bytes", at.offset))
	}
	at.limit, _ = wire.ParseUploadLimit(resp.Header.Values(wire.HeaderUploadLimit))
	if at.sha256 = foreign.DigestIn(resp.Header); at.sha256 == "" {
		at.sha256 = end.sha256
	}
	return at, nil
}

// Register asks the registrar for the receipt.
func (d *Driver) Register(ctx context.Context, m *attachment.Manifest, s attachment.Session, v uplink.Verdict) (receipt.Receipt, error) {
	found := foreign.Found{MediaID: s.ID, Location: s.URL, Server: d.Client.Endpoint().Host, Verdict: v}
	if end, ok := d.ended(s); ok && end.place != nil {
		found.Location = end.place.String()
	}
	r, err := d.Registrar.Register(ctx, m, found)
	if err == nil {
		d.forget(s)
	}
	return r, err
}

// Cancel is DELETE of the upload. What lies at another server than today's is not reached.
func (d *Driver) Cancel(ctx context.Context, s attachment.Session) error {
	d.forget(s)
	u, err := d.Client.Resolve(s.URL)
	if err != nil {
		return nil
	}
	_, err = d.Client.Do(ctx, remote.Request{Step: remote.StepCancel, Method: http.MethodDelete, URL: u, Header: Header()})
	return err
}
