package rufh

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// create is POST of the endpoint without content (draft, Careful Upload Creation). The address comes with an interim answer
// already, so that it is known where only the final one is lost.
func (d *Driver) create(ctx context.Context, m *attachment.Manifest) (uplink.Reservation, error) {
	if err := d.fits(ctx, m.Length); err != nil {
		return uplink.Reservation{}, err
	}
	var announced string
	resp, err := d.Client.Stream(ctx, remote.Append{
		Step: remote.StepReserve, Method: http.MethodPost, URL: d.Client.Endpoint(), Header: about(m),
		Interim: func(h http.Header) {
			if to := h.Get("Location"); to != "" {
				announced = to
			}
		},
	})
	if err != nil {
		return d.announced(ctx, m, announced, err)
	}
	u, err := resp.Resolve(resp.Header.Get("Location"))
	if err != nil {
		return uplink.Reservation{}, resp.Foreign(fmt.Errorf("address of the new upload: %w", err))
	}
	s := session(u)
	if first, err := resp.Resolve(announced); announced != "" && (err != nil || first.String() != u.String()) {
		_ = d.Cancel(ctx, s) // the server will forget it by itself
		return uplink.Reservation{}, resp.Mismatch(fmt.Errorf("%w: two addresses of one upload", uplink.ErrAnswer))
	}
	limit, _ := wire.ParseUploadLimit(resp.Header.Values(wire.HeaderUploadLimit))
	if tooLarge := beyond(limit, m.Length); tooLarge != nil {
		_ = d.Cancel(ctx, s)
		return uplink.Reservation{}, tooLarge
	}
	return reservation(s, 0, limit), nil
}

// announced goes on with an upload whose creation was not answered to the end, where its address is known.
func (d *Driver) announced(ctx context.Context, m *attachment.Manifest, address string, failed error) (uplink.Reservation, error) {
	e, ok := errors.AsType[*remote.Error](failed)
	if address == "" || !ok || e.Class == remote.Cancelled || e.Status != 0 && e.Status < 500 {
		return uplink.Reservation{}, failed
	}
	ref, err := d.Client.Endpoint().Parse(address)
	if err != nil {
		return uplink.Reservation{}, failed
	}
	u, err := d.Client.Resolve(ref.String())
	if err != nil {
		return uplink.Reservation{}, failed
	}
	res, err := d.Reserve(ctx, m, session(u))
	if err != nil {
		return uplink.Reservation{}, failed
	}
	return res, nil
}

// about is what is said of an attachment at its creation.
func about(m *attachment.Manifest) http.Header {
	h := Header(
		wire.HeaderUploadComplete, wire.FormatBoolean(false), wire.HeaderUploadLength, strconv.FormatInt(m.Length, 10),
		wire.HeaderReprDigest, wire.FormatDigest(foreign.SHA256, m.SHA256[:]), wire.HeaderWantReprDigest, foreign.WantSHA256)
	if m.MediaType != "" {
		h.Set("Content-Type", m.MediaType)
	}
	if name := mime.FormatMediaType("inline", map[string]string{"filename": m.Filename.Text}); name != "" {
		h.Set("Content-Disposition", name)
	}
	return h
}

func session(u *url.URL) attachment.Session {
	return attachment.Session{ID: foreign.SessionID(u), URL: u.String()}
}

// fits holds a length against the limits that the server told, and asks for them first, and again before a file is given up
// for them: a server that does not know the protocol might take a creation for an empty file.
func (d *Driver) fits(ctx context.Context, length int64) error {
	d.mu.Lock()
	known := d.known
	d.mu.Unlock()
	if known != nil && beyond(*known, length) == nil {
		return nil
	}
	limit, err := discover(ctx, d.Client)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.known = &limit
	d.mu.Unlock()
	if tooLarge := beyond(limit, length); tooLarge != nil {
		return tooLarge
	}
	return nil
}

// beyond is the refusal of a length that the server does not take, or takes in one piece alone; nil for any other.
func beyond(limit wire.UploadLimit, length int64) error {
	detail := ""
	switch {
	case limit.MaxSize > 0 && length > limit.MaxSize:
		detail = fmt.Sprintf("the server takes files of at most %d bytes", limit.MaxSize)
	case length < limit.MinSize:
		detail = fmt.Sprintf("the server takes files of at least %d bytes this way", limit.MinSize)
	default:
		return nil
	}
	e := remote.Refused(remote.StepReserve, wire.CodeSizeLimit)
	e.Detail = detail
	return e
}

func isGone(err error) bool {
	e, ok := errors.AsType[*remote.Error](err)
	return ok && e.Gone()
}
