// Package tus is the driver for any server of tus 1.0.0: creation, HEAD and PATCH, with the checksum and termination
// extensions where the server offers them.
//
// Such a server registers nothing and promises nothing about power cuts, and some take an append at any offset. So an
// append begins where the server's last answer said that it ends and nowhere else, what was stored is read back before it
// counts, and the receipt is the device's own, of a grade that says what was found. Read Driver first, then verify.go and
// protocol.go.
package tus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
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
	// Client speaks Protocol() and has the creation URL as its endpoint.
	Client *remote.Client
	// LengthOnly: what was stored is not read back.
	LengthOnly bool
	// Registrar gives the receipts.
	Registrar foreign.Registrar
	// Anonymous: there is no credential, so that a 403 is not about one.
	Anonymous bool
}

// Driver implements uplink.Driver.
type Driver struct {
	Options
	// checksums: appends carry a digest where the server checks it. TLS does that already, and without one the beginning of
	// an append that breaks off is kept.
	checksums bool
	readings  foreign.Readings

	mu    sync.Mutex
	known *features // nil until the server was asked
}

// New returns the driver. It asks the server nothing.
func New(o Options) *Driver {
	return &Driver{Options: o, checksums: o.Client.Endpoint().Scheme == "http"}
}

// Name returns the name in the configuration.
func (d *Driver) Name() string { return "tus" }

// Capabilities declare no confirmed offsets, for the protocol's are not durable, and creating is not idempotent.
func (d *Driver) Capabilities() uplink.Capabilities {
	return uplink.Capabilities{Resume: true, Digests: !d.LengthOnly}
}

// Reserve is HEAD of the session's upload, or a creation where there is none.
func (d *Driver) Reserve(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Reservation, error) {
	if s.URL == "" {
		return d.create(ctx, m)
	}
	at, err := d.Offset(ctx, m, s)
	return uplink.Reservation{Session: s, Offset: at, MediaID: s.ID, BytesNeeded: true}, err
}

// create is POST of the endpoint (tus 1.0.0, Creation).
func (d *Driver) create(ctx context.Context, m *attachment.Manifest) (uplink.Reservation, error) {
	f, err := d.features(ctx)
	if err != nil {
		return uplink.Reservation{}, err
	}
	if f.maxSize > 0 && m.Length > f.maxSize {
		e := remote.Refused(remote.StepReserve, wire.CodeSizeLimit)
		e.Detail = fmt.Sprintf("the server takes files of at most %d bytes", f.maxSize)
		return uplink.Reservation{}, e
	}
	resp, err := d.Client.Do(ctx, remote.Request{Step: remote.StepReserve, Method: http.MethodPost, Header: header(
		wire.HeaderUploadLength, strconv.FormatInt(m.Length, 10), wire.HeaderUploadMetadata, metadata(m))})
	if err != nil {
		return uplink.Reservation{}, err
	}
	u, err := resp.Resolve(resp.Header.Get("Location"))
	if err != nil {
		return uplink.Reservation{}, resp.Foreign(fmt.Errorf("address of the new upload: %w", err))
	}
	s := attachment.Session{ID: foreign.SessionID(u), URL: u.String()}
	res := uplink.Reservation{Session: s, MediaID: s.ID, BytesNeeded: true}
	if resp.Header.Get(wire.HeaderUploadOffset) != "" { // the server may have known the file already
		res.Offset, err = uplink.OffsetIn(resp)
	}
	return res, err
}

// Offset is HEAD of the upload (tus 1.0.0, Core Protocol, HEAD).
func (d *Driver) Offset(ctx context.Context, m *attachment.Manifest, s attachment.Session) (int64, error) {
	held, err := d.head(ctx, remote.StepOffset, m, s)
	return held.offset, err
}

// Append is PATCH of the upload (tus 1.0.0, Core Protocol, PATCH).
func (d *Driver) Append(ctx context.Context, a uplink.Append) (int64, error) {
	u, err := foreign.Resolve(d.Client, remote.StepAppend, a.Session)
	if err != nil {
		return 0, err
	}
	h := header(wire.HeaderUploadOffset, strconv.FormatInt(a.Offset, 10), "Content-Type", wire.ContentTypeOffset)
	if err := d.addChecksum(ctx, h, a); err != nil {
		return 0, err
	}
	resp, err := d.Client.Stream(ctx, remote.Append{
		Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Body: a.Body, Length: a.Length, Moved: a.Moved, Header: h,
	})
	if err != nil {
		return 0, err
	}
	return uplink.OffsetIn(resp)
}

// Register asks the registrar for the receipt.
func (d *Driver) Register(ctx context.Context, m *attachment.Manifest, s attachment.Session, v uplink.Verdict) (receipt.Receipt, error) {
	return d.Registrar.Register(ctx, m, foreign.Found{MediaID: s.ID, Location: s.URL, Server: d.Client.Endpoint().Host, Verdict: v})
}

// Cancel is DELETE of the upload (tus 1.0.0, Termination). What lies at another server than today's is not reached.
func (d *Driver) Cancel(ctx context.Context, s attachment.Session) error {
	u, err := d.Client.Resolve(s.URL)
	if err != nil {
		return nil
	}
	_, err = d.Client.Do(ctx, remote.Request{Step: remote.StepCancel, Method: http.MethodDelete, URL: u, Header: header()})
	if e, ok := errors.AsType[*remote.Error](err); ok && (e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusNotImplemented) {
		return remote.Refused(remote.StepCancel, wire.CodeMethod) // without the extension, whoever says so
	}
	return err
}

// features asks the server once what it can do (tus 1.0.0, OPTIONS). One that does not answer that question is taken for one
// that can nothing beyond the core, and asked again.
func (d *Driver) features(ctx context.Context) (features, error) {
	d.mu.Lock()
	known := d.known
	d.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	resp, err := d.Client.Do(ctx, remote.Request{Step: remote.StepProbe, Method: http.MethodOptions})
	if err != nil {
		if e, ok := errors.AsType[*remote.Error](err); ok && slices.Contains(unanswered, e.Status) {
			err = nil
		}
		return features{}, err
	}
	f, err := featuresIn(resp)
	if err != nil {
		return f, err
	}
	d.mu.Lock()
	d.known = &f
	d.mu.Unlock()
	return f, nil
}

// unanswered are the answers to OPTIONS that tell nothing of what a server can do.
var unanswered = []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}

// held is what HEAD said of an upload.
type held struct {
	offset int64
	// sha256 is the server's own digest of it, in hex; empty where it gives none.
	sha256 string
}

// head asks for an upload. One of another length, or behind another address than the configured one, is not this
// attachment's: gone.
func (d *Driver) head(ctx context.Context, step remote.Step, m *attachment.Manifest, s attachment.Session) (held, error) {
	u, err := foreign.Resolve(d.Client, step, s)
	if err != nil {
		return held{}, err
	}
	h := header()
	if step == remote.StepVerify && !d.LengthOnly {
		h.Set(wire.HeaderWantReprDigest, foreign.WantSHA256)
	}
	resp, err := d.Client.Do(ctx, remote.Request{Step: step, Method: http.MethodHead, URL: u, Header: h})
	if err != nil {
		if e, ok := errors.AsType[*remote.Error](err); ok && e.Kind == remote.KindProblem && e.Status == http.StatusForbidden && d.Anonymous {
			return held{}, foreign.Gone(step, "403, which stands for an unknown upload")
		}
		return held{}, err
	}
	if length := resp.Header.Get(wire.HeaderUploadLength); length != "" && length != strconv.FormatInt(m.Length, 10) {
		return held{}, foreign.Gone(step, fmt.Sprintf("the upload has a length of %.20s", length))
	}
	at, err := uplink.OffsetIn(resp)
	return held{at, foreign.DigestIn(resp.Header)}, err
}
