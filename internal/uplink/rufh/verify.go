package rufh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Verify holds that the upload is complete, and what its bytes are: by the digest that the server gives (RFC 9530), else by
// reading them back. A server that gives neither leaves the length.
func (d *Driver) Verify(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Verdict, error) {
	at, err := d.head(ctx, remote.StepVerify, m, s)
	switch {
	case err != nil:
		return uplink.Verdict{}, err
	case !at.complete:
		return uplink.Verdict{}, remote.Refused(remote.StepVerify, wire.CodeNotVerified)
	case d.LengthOnly:
		return uplink.Verdict{Length: at.offset}, nil
	case at.sha256 != "":
		return uplink.Verdict{Length: at.offset, SHA256: at.sha256}, nil
	case at.offset == 0:
		return uplink.Verdict{SHA256: hex.EncodeToString(sha256.New().Sum(nil))}, nil
	}
	for _, place := range d.places(s) {
		v, err := d.readBack(ctx, m, place)
		if err != nil || v.SHA256 != "" {
			return v, err
		}
	}
	return uplink.Verdict{Length: at.offset}, nil
}

// places are where the bytes may be read back: what the last answer named, and the upload itself, of which the draft leaves
// open what it gives out.
func (d *Driver) places(s attachment.Session) []*url.URL {
	var all []*url.URL
	if end, ok := d.ended(s); ok && end.place != nil {
		all = append(all, end.place)
	}
	if u, err := d.Client.Resolve(s.URL); err == nil && (len(all) == 0 || all[0].String() != u.String()) {
		all = append(all, u)
	}
	return all
}

// readBack is GET of a place. Without a digest the bytes are not given out there: what has another length is something about
// the file, as servers answer with.
func (d *Driver) readBack(ctx context.Context, m *attachment.Manifest, place *url.URL) (uplink.Verdict, error) {
	got, err := d.readings.Read(ctx, d.Client, remote.Request{Step: remote.StepVerify, Method: http.MethodGet, URL: place, Header: Header()}, m)
	refusal, refused := errors.AsType[*remote.Error](err)
	switch {
	case errors.Is(err, foreign.ErrTooLong), refused && slices.Contains(foreign.Unreadable, refusal.Status):
		return uplink.Verdict{}, nil
	case err != nil:
		return uplink.Verdict{}, err
	case got.Length != m.Length:
		return uplink.Verdict{}, nil
	}
	return uplink.Verdict{Length: got.Length, SHA256: got.SHA256}, nil
}
