// Package fieldgw is the driver for fieldgw-server: the control plane of docs/protocol.md, and a public dialect for the bytes.
package fieldgw

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/rufh"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Driver implements uplink.Driver. The bytes go by tus 1.0.0's core protocol, and by Resumable Uploads for HTTP where
// offsets are to be confirmed while an append lasts. Both name the same upload.
type Driver struct {
	client *remote.Client
	// streams: the server offered Resumable Uploads for HTTP last, which also lets a question for an offset take the upload
	// from an append that the server still believes in.
	streams atomic.Bool
}

// New returns the driver that sends through client.
func New(client *remote.Client) *Driver { return &Driver{client: client} }

// Name returns the name in the configuration.
func (f *Driver) Name() string { return "fieldgw" }

// Capabilities returns all of them: the protocol demands each.
func (f *Driver) Capabilities() uplink.Capabilities {
	return uplink.Capabilities{Resume: true, ConfirmedOffsets: true, Digests: true, ConditionalCreate: true, Registers: true}
}

// Reserve is PUT /v1/attachments/{id}.
func (f *Driver) Reserve(ctx context.Context, m *attachment.Manifest, _ attachment.Session) (uplink.Reservation, error) {
	message := reserveMessage(m)
	if err := message.Validate(); err != nil {
		return uplink.Reservation{}, remote.Fail(remote.StepReserve, remote.KindRequest, err)
	}
	resp, err := f.client.Do(ctx, remote.Request{
		Step: remote.StepReserve, Method: http.MethodPut, Path: resource(m.ID), Message: message,
		Header: http.Header{wire.HeaderIdempotencyKey: {strconv.Quote(string(m.ID))}},
	})
	if err != nil {
		return uplink.Reservation{}, err
	}
	a, err := readAttachment(resp, m.ID)
	if err != nil {
		return uplink.Reservation{}, err
	}
	res := uplink.Reservation{MediaID: a.MediaID}
	switch {
	case a.State == wire.StateRegistered:
		res.Receipt = a.Receipt
	case a.State == wire.StateVerified:
		res.Verified = &uplink.Verdict{Length: *a.Length, SHA256: a.SHA256}
	default:
		if a.Upload == nil || a.Upload.MaxAppend < 0 || !slices.Contains(a.Upload.Dialects, wire.DialectTus) {
			return uplink.Reservation{}, incomplete(resp, a, "has no upload that this device can use")
		}
		res.BytesNeeded, res.Offset, res.MaxAppend = true, a.Upload.Offset, a.Upload.MaxAppend
		res.Streams = slices.Contains(a.Upload.Dialects, wire.DialectRUFH)
		f.streams.Store(res.Streams)
		u, err := resp.Resolve(a.Upload.URL)
		if err != nil {
			return uplink.Reservation{}, resp.Foreign(err)
		}
		res.Session = attachment.Session{ID: path.Base(u.Path), URL: u.String(), Generation: a.Generation}
	}
	return res, nil
}

func reserveMessage(m *attachment.Manifest) *wire.Reserve {
	return &wire.Reserve{
		Length: m.Length, SHA256: m.SHA256.String(), Role: wire.Role(m.Role), Of: string(m.Of), MediaType: m.MediaType,
		Filename: m.Filename.Text, FilenameRaw: m.Filename.Raw, CapturedAt: m.CapturedAt.UTC(), Parent: uplink.ParentOf(m),
		Supersedes: string(m.Supersedes), ProposedMediaID: m.Delivery.ProposedMediaID,
	}
}

func resource(id attachment.ID) string { return "v1/attachments/" + url.PathEscape(string(id)) }

// readAttachment checks that an answer is about this attachment and complete for its state.
func readAttachment(resp *remote.Response, id attachment.ID) (*wire.Attachment, error) {
	var a wire.Attachment
	if err := resp.Decode(&a); err != nil {
		return nil, err
	}
	if a.AttachmentID != string(id) {
		return nil, resp.Mismatch(fmt.Errorf("%w: it is about attachment %.64q", uplink.ErrAnswer, a.AttachmentID))
	}
	switch a.State {
	case wire.StateReserved:
	case wire.StateVerified:
		if a.Length == nil || a.SHA256 == "" {
			return nil, incomplete(resp, &a, "has no length or no digest")
		}
	case wire.StateRegistered:
		if a.Receipt == nil {
			return nil, incomplete(resp, &a, "has no receipt")
		}
	default:
		return nil, incomplete(resp, &a, "is unknown")
	}
	return &a, nil
}

func incomplete(resp *remote.Response, a *wire.Attachment, what string) error {
	return resp.Foreign(fmt.Errorf("%w: state %.20q %s", remote.ErrForeign, a.State, what))
}

// Offset is HEAD of the upload, which the dialects have in common.
func (f *Driver) Offset(ctx context.Context, _ *attachment.Manifest, s attachment.Session) (int64, error) {
	u, err := f.client.Resolve(s.URL)
	if err != nil {
		return 0, remote.Fail(remote.StepOffset, remote.KindRequest, err)
	}
	h := http.Header{wire.HeaderTusResumable: {wire.TusVersion}}
	if f.streams.Load() {
		h = rufh.Header()
	}
	resp, err := f.client.Do(ctx, remote.Request{Step: remote.StepOffset, Method: http.MethodHead, URL: u, Header: h})
	if err != nil {
		return 0, err
	}
	return uplink.OffsetIn(resp)
}

// Append is PATCH of the upload: of Resumable Uploads for HTTP where somebody hears of confirmations, else of tus 1.0.0 (Core
// Protocol, PATCH).
func (f *Driver) Append(ctx context.Context, a uplink.Append) (int64, error) {
	resp, err := f.patch(ctx, a)
	if err != nil {
		return 0, err
	}
	return uplink.OffsetIn(resp)
}

func (f *Driver) patch(ctx context.Context, a uplink.Append) (*remote.Response, error) {
	if a.Confirmed != nil {
		return rufh.Patch(ctx, f.client, a)
	}
	u, err := f.client.Resolve(a.Session.URL)
	if err != nil {
		return nil, remote.Fail(remote.StepAppend, remote.KindRequest, err)
	}
	return f.client.Stream(ctx, remote.Append{
		Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Body: a.Body, Length: a.Length, Moved: a.Moved,
		Header: http.Header{
			wire.HeaderTusResumable: {wire.TusVersion},
			wire.HeaderUploadOffset: {strconv.FormatInt(a.Offset, 10)},
			"Content-Type":          {wire.ContentTypeOffset},
		},
	})
}

// Verify is GET /v1/attachments/{id}.
func (f *Driver) Verify(ctx context.Context, m *attachment.Manifest, _ attachment.Session) (uplink.Verdict, error) {
	resp, err := f.client.Do(ctx, remote.Request{Step: remote.StepVerify, Method: http.MethodGet, Path: resource(m.ID)})
	if err != nil {
		return uplink.Verdict{}, err
	}
	a, err := readAttachment(resp, m.ID)
	if err != nil {
		return uplink.Verdict{}, err
	}
	switch a.State {
	case wire.StateRegistered:
		return uplink.Verdict{Length: a.Receipt.Length, SHA256: a.Receipt.SHA256}, nil
	case wire.StateVerified:
		return uplink.Verdict{Length: *a.Length, SHA256: a.SHA256}, nil
	}
	e := remote.Refused(remote.StepVerify, wire.CodeNotVerified)
	e.Status = resp.Status
	return uplink.Verdict{}, e
}

// Register is POST /v1/attachments/{id}/registration.
func (f *Driver) Register(ctx context.Context, m *attachment.Manifest, _ attachment.Session, _ uplink.Verdict) (receipt.Receipt, error) {
	resp, err := f.client.Do(ctx, remote.Request{
		Step: remote.StepRegister, Method: http.MethodPost, Path: resource(m.ID) + "/registration",
		Message: wire.Register{Parent: uplink.ParentOf(m)},
	})
	if err != nil {
		return receipt.Receipt{}, err
	}
	if resp.Status == http.StatusAccepted {
		e := remote.Fail(remote.StepRegister, remote.KindPending, nil)
		e.Status, e.RetryAfter = resp.Status, resp.RetryAfter
		return receipt.Receipt{}, e
	}
	var got receipt.Receipt
	if err := resp.Decode(&got); err != nil {
		return receipt.Receipt{}, err
	}
	return got, nil
}

// Cancel is DELETE of the upload (tus 1.0.0, Termination).
func (f *Driver) Cancel(ctx context.Context, s attachment.Session) error {
	u, err := f.client.Resolve(s.URL)
	if err != nil {
		return remote.Fail(remote.StepCancel, remote.KindRequest, err)
	}
	_, err = f.client.Do(ctx, remote.Request{
		Step: remote.StepCancel, Method: http.MethodDelete, URL: u, Header: http.Header{wire.HeaderTusResumable: {wire.TusVersion}},
	})
	return err
}
