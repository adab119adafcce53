package tus

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// algorithms are those of an append's digest, best first.
var algorithms = []struct {
	name string
	hash func() hash.Hash
}{
	{"sha256", sha256.New},
	{"sha1", sha1.New}, // what every server with the extension has to offer
}

// addChecksum reads an append's bytes and adds their digest (tus 1.0.0, Checksum).
func (d *Driver) addChecksum(ctx context.Context, h http.Header, a uplink.Append) error {
	if !d.checksums || a.Length == 0 {
		return nil
	}
	f, err := d.features(ctx)
	if err != nil || !f.has("checksum") {
		return err
	}
	for _, algorithm := range algorithms {
		if !slices.Contains(f.algorithms, algorithm.name) {
			continue
		}
		sum, body := algorithm.hash(), a.Body()
		_, err := io.Copy(sum, io.LimitReader(body, a.Length))
		if c, ok := body.(io.Closer); ok {
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			return remote.Fail(remote.StepAppend, remote.KindUnread, err)
		}
		h.Set(wire.HeaderUploadChecksum, algorithm.name+" "+base64.StdEncoding.EncodeToString(sum.Sum(nil)))
		return nil
	}
	return nil
}

// Verify holds that the upload is complete, and what its bytes are: by the digest that the server gives (RFC 9530), else by
// reading them back. A server that gives neither leaves the length.
func (d *Driver) Verify(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Verdict, error) {
	got, err := d.head(ctx, remote.StepVerify, m, s)
	switch {
	case err != nil:
		return uplink.Verdict{}, err
	case got.offset < m.Length:
		return uplink.Verdict{}, remote.Refused(remote.StepVerify, wire.CodeNotVerified)
	case d.LengthOnly:
		return uplink.Verdict{Length: got.offset}, nil
	case got.sha256 != "":
		return uplink.Verdict{Length: got.offset, SHA256: got.sha256}, nil
	case got.offset == 0:
		return uplink.Verdict{SHA256: hex.EncodeToString(sha256.New().Sum(nil))}, nil
	}
	return d.readBack(ctx, m, s)
}

// readBack is GET of the upload, which is no part of tus, though most servers answer it. One that refuses it twice, and knows
// the upload all the while, cannot be read back.
func (d *Driver) readBack(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Verdict, error) {
	for tries := 1; ; tries++ {
		u, err := foreign.Resolve(d.Client, remote.StepVerify, s)
		if err != nil {
			return uplink.Verdict{}, err
		}
		got, err := d.readings.Read(ctx, d.Client, remote.Request{Step: remote.StepVerify, Method: http.MethodGet, URL: u, Header: header()}, m)
		refusal, refused := errors.AsType[*remote.Error](err)
		switch {
		case err == nil && got.Answer.Status != http.StatusNoContent:
			return verdict(got, m)
		case errors.Is(err, foreign.ErrTooLong):
			return uplink.Verdict{}, remote.Fail(remote.StepVerify, remote.KindForeign, err)
		case err != nil && !(refused && slices.Contains(foreign.Unreadable, refusal.Status)):
			return uplink.Verdict{}, err
		}
		if _, err := d.head(ctx, remote.StepVerify, m, s); err != nil {
			return uplink.Verdict{}, err
		}
		if tries == 2 {
			return uplink.Verdict{Length: m.Length}, nil
		}
	}
}

// verdict says what came back. Servers do not mark this answer as one of tus, so that a page of somebody else's is told by
// its length.
func verdict(got foreign.Content, m *attachment.Manifest) (uplink.Verdict, error) {
	if got.Length != m.Length && got.Answer.Header.Get(wire.HeaderTusResumable) == "" {
		return uplink.Verdict{}, got.Answer.Foreign(fmt.Errorf("%w: %d bytes came back", remote.ErrForeign, got.Length))
	}
	return uplink.Verdict{Length: got.Length, SHA256: got.SHA256}, nil
}
