package s3

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// object is what a store says of an object.
type object struct {
	length int64
	// sum is the SHA-256 that the store computed over the whole object, in hex; ofParts the one over those of its parts, as
	// the store writes it. Both may be empty.
	sum, ofParts string
}

// head asks for the object; nil: there is none. The refusal of a HEAD has no words, so that absence is heard from a GET.
func (d *Driver) head(ctx context.Context, step remote.Step, at address) (*object, error) {
	for range 2 {
		out, err := call(ctx, d.client, remote.Operation{Step: step}, d.api.HeadObject, &api.HeadObjectInput{
			Bucket: &at.bucket, Key: &at.key, ChecksumMode: types.ChecksumModeEnabled,
		})
		if err == nil {
			return objectIn(out), nil
		}
		if !isGone(err) {
			return nil, err
		}
		_, err = call(ctx, d.client, remote.Operation{Step: step, Sink: io.Discard}, d.api.GetObject, &api.GetObjectInput{
			Bucket: &at.bucket, Key: &at.key, Range: aws.String("bytes=0-0"),
		})
		if isAbsent(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, refused(step, wire.CodeOffsetMismatch, http.StatusConflict)
}

func objectIn(out *api.HeadObjectOutput) *object {
	o := &object{length: aws.ToInt64(out.ContentLength)}
	text := aws.ToString(out.ChecksumSHA256)
	if sum, err := base64.StdEncoding.DecodeString(text); err == nil && len(sum) == sha256.Size && out.ChecksumType != types.ChecksumTypeComposite {
		o.sum = hex.EncodeToString(sum)
	} else if strings.Contains(text, "-") {
		o.ofParts = text
	}
	return o
}

// Compare says what the store holds of the session. payload reads the file in custody; nil where it is not at hand.
func (d *Driver) Compare(ctx context.Context, m *attachment.Manifest, s attachment.Session, payload func() io.Reader) (uplink.Verdict, error) {
	const step = remote.StepVerify
	at, err := addressOf(s)
	if err != nil {
		return uplink.Verdict{}, unknown(step, err)
	}
	found, err := d.head(ctx, step, at)
	switch {
	case err != nil:
		return uplink.Verdict{}, err
	case found != nil:
		v, known, err := verdict(step, m, at, found, payload)
		if err != nil || known || d.o.LengthOnly {
			return v, err
		}
		return d.readBack(ctx, step, m, at)
	case s.ID == whole && m.Length > 0:
		return uplink.Verdict{}, unknown(step, errors.New("the object is not there"))
	case s.ID != whole:
		if _, err := d.list(ctx, step, m, s, at); err != nil {
			return uplink.Verdict{}, err
		}
	}
	return uplink.Verdict{}, remote.Refused(step, wire.CodeNotVerified)
}

// verdict is what the object is by the store's word; known: it is enough to know the bytes.
func verdict(step remote.Step, m *attachment.Manifest, at address, found *object, payload func() io.Reader) (v uplink.Verdict, known bool, err error) {
	v.Length = found.length
	switch {
	case found.length != m.Length:
		return v, true, nil
	case found.sum != "":
		v.SHA256 = found.sum
		return v, true, nil
	case found.ofParts == "" || payload == nil:
		return v, false, nil
	}
	sum, ofParts, err := digests(payload(), at.part, m.Length)
	if err != nil {
		return v, false, remote.Fail(step, remote.KindUnread, err)
	}
	if ofParts != found.ofParts {
		return v, false, nil // others may have sent the same bytes in other parts
	}
	v.SHA256 = sum
	return v, true, nil
}

// mustBe accepts an object that stands where this attachment belongs only if it has the same bytes.
func (d *Driver) mustBe(ctx context.Context, step remote.Step, m *attachment.Manifest, at address, found *object) error {
	v, known, err := verdict(step, m, at, found, nil)
	if err == nil && !known {
		v, err = d.readBack(ctx, step, m, at)
	}
	if err == nil && (v.Length != m.Length || v.SHA256 != m.SHA256.String()) {
		return conflict(step)
	}
	return err
}

// readBack reads the object and hashes it.
func (d *Driver) readBack(ctx context.Context, step remote.Step, m *attachment.Manifest, at address) (uplink.Verdict, error) {
	var back taking
	_, err := call(ctx, d.client, remote.Operation{Step: step, Sink: &back}, func(
		ctx context.Context, in *api.GetObjectInput, options ...func(*api.Options),
	) (*api.GetObjectOutput, error) {
		back.Sink = foreign.NewSink(m.Length, uplink.Progress(ctx))
		return d.api.GetObject(ctx, in, options...)
	}, &api.GetObjectInput{Bucket: &at.bucket, Key: &at.key})
	if err != nil {
		return uplink.Verdict{}, err
	}
	length, sum := back.Sum()
	return uplink.Verdict{Length: length, SHA256: sum}, nil
}

// taking begins anew with each attempt.
type taking struct{ *foreign.Sink }

// digests reads a payload of n bytes in parts: the SHA-256 of the whole in hex, and the one over those of the parts as stores
// write it (Amazon S3 User Guide, "Checking object integrity", composite checksums).
func digests(r io.Reader, part, n int64) (sum, ofParts string, err error) {
	all, sums := sha256.New(), sha256.New()
	parts := 0
	for left := n; left > 0; left -= part {
		one := sha256.New()
		if _, err := io.CopyN(io.MultiWriter(all, one), r, min(part, left)); err != nil {
			return "", "", shut(r, err)
		}
		sums.Write(one.Sum(nil))
		parts++
	}
	ofParts = base64.StdEncoding.EncodeToString(sums.Sum(nil)) + "-" + strconv.Itoa(parts)
	return hex.EncodeToString(all.Sum(nil)), ofParts, shut(r, nil)
}

// shut closes a reader that wants it.
func shut(r io.Reader, err error) error {
	if c, ok := r.(io.Closer); ok {
		return errors.Join(err, c.Close())
	}
	return err
}

// put sends a small file as a whole. An object that stands there already is compared, never replaced.
func (d *Driver) put(ctx context.Context, a uplink.Append, at address) (int64, error) {
	m := a.Manifest
	if a.Offset != 0 || a.Length != m.Length {
		return 0, unknown(remote.StepAppend, errors.New("the object was there and is not any more"))
	}
	_, err := call(ctx, d.client, remote.Operation{
		Step: remote.StepAppend, Body: a.Body, Length: a.Length, Moved: a.Moved,
	}, d.api.PutObject, &api.PutObjectInput{
		Bucket: &at.bucket, Key: &at.key, Body: unread{a.Length}, ContentLength: &a.Length, IfNoneMatch: aws.String("*"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(m.SHA256[:])), ContentType: &m.MediaType, Metadata: metadata(m),
	}, hashed(m.SHA256.String()))
	if !hasStatus(err, http.StatusPreconditionFailed) {
		return m.Length, err
	}
	return m.Length, d.isThere(ctx, m, at, "")
}

// isThere settles a refusal because the key is taken: by an earlier request whose answer was lost, by the same content, or by
// something else. ofParts is the digest over those of the parts that were to become it.
func (d *Driver) isThere(ctx context.Context, m *attachment.Manifest, at address, ofParts string) error {
	found, err := d.head(ctx, remote.StepAppend, at)
	switch {
	case err != nil:
		return err
	case found == nil:
		return refused(remote.StepAppend, wire.CodeOffsetMismatch, http.StatusConflict)
	case found.length == m.Length && found.ofParts != "" && found.ofParts == ofParts:
		return nil
	}
	return d.mustBe(ctx, remote.StepAppend, m, at, found)
}

// metadata says in the store what the object is. Values are escaped, for they must be ASCII, and cut, for all of them
// together have 2 KB (Amazon S3 User Guide, "Working with object metadata").
func metadata(m *attachment.Manifest) map[string]string {
	const most = 480
	parent := m.Parent.ServerID
	if parent == "" {
		parent = m.Parent.LocalID.Text
	}
	all := map[string]string{
		"fieldgw-attachment-id": string(m.ID), "fieldgw-sha256": m.SHA256.String(), "fieldgw-filename": escaped(m.Filename.Text, most),
		"fieldgw-parent": escaped(parent, most), "fieldgw-captured-at": m.CapturedAt.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	for name, value := range all {
		if value == "" {
			delete(all, name)
		}
	}
	return all
}

// escaped is a text in percent encoding (RFC 3986) of at most so many bytes, cut between characters.
func escaped(text string, most int) string {
	var b strings.Builder
	for _, r := range text {
		one := url.PathEscape(string(r))
		if b.Len()+len(one) > most {
			break
		}
		b.WriteString(one)
	}
	return b.String()
}
