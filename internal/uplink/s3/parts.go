package s3

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/wire"
)

const (
	// pageSize is how many parts are listed at a time: an answer must fit into the memory for one.
	pageSize = 500
	// maxOrphans is how many uploads of one key are ended at a time.
	maxOrphans = 100
)

// create opens an upload of parts.
func (d *Driver) create(ctx context.Context, m *attachment.Manifest, at address) (string, error) {
	const step = remote.StepReserve
	out, err := call(ctx, d.client, remote.Operation{Step: step}, d.api.CreateMultipartUpload, &api.CreateMultipartUploadInput{
		Bucket: &at.bucket, Key: &at.key, ChecksumAlgorithm: types.ChecksumAlgorithmSha256, ContentType: &m.MediaType, Metadata: metadata(m),
	})
	if err != nil {
		return "", err
	}
	id := aws.ToString(out.UploadId)
	if id == "" || id == whole {
		return "", remote.Fail(step, remote.KindForeign, fmt.Errorf("%w: an upload without ID", remote.ErrForeign))
	}
	return id, nil
}

// listing is what a store holds of an upload: the parts from the first one on, without gap and of the right size.
type listing struct {
	parts []types.CompletedPart
	bytes int64 // of the parts
	// sums are the SHA-256 of the parts, one after another; shorter where the store does not tell all.
	sums []byte
}

// ofParts is the digest over those of the parts, as stores write it; empty where it is not known.
func (l *listing) ofParts() string {
	if len(l.sums) != len(l.parts)*sha256.Size {
		return ""
	}
	sum := sha256.Sum256(l.sums)
	return fmt.Sprintf("%s-%d", base64.StdEncoding.EncodeToString(sum[:]), len(l.parts))
}

// add takes the next part; false: it, and what comes after it, is sent again.
func (l *listing) add(p types.Part, size, length int64) bool {
	if aws.ToInt32(p.PartNumber) != int32(len(l.parts)+1) || aws.ToInt64(p.Size) != min(size, length-l.bytes) || aws.ToString(p.ETag) == "" {
		return false
	}
	l.bytes += aws.ToInt64(p.Size)
	l.parts = append(l.parts, types.CompletedPart{PartNumber: p.PartNumber, ETag: p.ETag, ChecksumSHA256: p.ChecksumSHA256})
	if sum, err := base64.StdEncoding.DecodeString(aws.ToString(p.ChecksumSHA256)); err == nil && len(sum) == sha256.Size {
		l.sums = append(l.sums, sum...)
	}
	return true
}

// list asks the store for the parts of an upload.
func (d *Driver) list(ctx context.Context, step remote.Step, m *attachment.Manifest, s attachment.Session, at address) (*listing, error) {
	got := &listing{}
	for after := int32(0); ; {
		page, err := call(ctx, d.client, remote.Operation{Step: step}, d.api.ListParts, &api.ListPartsInput{
			Bucket: &at.bucket, Key: &at.key, UploadId: &s.ID, MaxParts: aws.Int32(pageSize), PartNumberMarker: aws.String(fmt.Sprint(after)),
		})
		if err != nil {
			return nil, err
		}
		for _, p := range page.Parts {
			if !got.add(p, at.part, m.Length) {
				return got, nil
			}
		}
		next := int32(len(got.parts))
		if !aws.ToBool(page.IsTruncated) || next == after || got.bytes == m.Length {
			return got, nil
		}
		after = next
	}
}

// upload sends one part, and makes the object once it was the last. The part's digest goes ahead of it, so its bytes are read
// twice.
func (d *Driver) upload(ctx context.Context, a uplink.Append, at address) (int64, error) {
	const step = remote.StepAppend
	end := a.Offset + a.Length
	if a.Length == 0 {
		return end, d.complete(ctx, a.Manifest, a.Session, at)
	}
	if a.Offset%at.part != 0 || a.Length != min(at.part, a.Manifest.Length-a.Offset) {
		return 0, refused(step, wire.CodeOffsetMismatch, http.StatusConflict)
	}
	sum, err := sumOf(a.Body(), a.Length)
	if err != nil {
		return 0, remote.Fail(step, remote.KindUnread, err)
	}
	text := base64.StdEncoding.EncodeToString(sum)
	out, err := call(ctx, d.client, remote.Operation{Step: step, Body: a.Body, Length: a.Length, Moved: a.Moved}, d.api.UploadPart, &api.UploadPartInput{
		Bucket: &at.bucket, Key: &at.key, UploadId: &a.Session.ID, PartNumber: aws.Int32(int32(a.Offset/at.part + 1)),
		Body: unread{a.Length}, ContentLength: &a.Length, ChecksumSHA256: &text,
	}, hashed(hex.EncodeToString(sum)))
	switch {
	case err != nil:
		return 0, err
	case out.ChecksumSHA256 != nil && *out.ChecksumSHA256 != text:
		return 0, remote.Fail(step, remote.KindMismatch, fmt.Errorf("%w: the part's digest is another one", uplink.ErrAnswer))
	case a.Last():
		err = d.complete(ctx, a.Manifest, a.Session, at)
	}
	return end, err
}

// sumOf is the SHA-256 of the n bytes of a reader.
func sumOf(r io.Reader, n int64) ([]byte, error) {
	h := sha256.New()
	_, err := io.CopyN(h, r, n)
	if errors.Is(err, io.EOF) {
		err = remote.ErrShortBody
	}
	return h.Sum(nil), shut(r, err)
}

// complete makes the object from its parts. Whatever the answer, and if there is none, the object itself says what became of
// it: an upload that is gone may have become it.
func (d *Driver) complete(ctx context.Context, m *attachment.Manifest, s attachment.Session, at address) error {
	const step = remote.StepAppend
	listed, err := d.list(ctx, step, m, s, at)
	if isGone(err) {
		return d.orGone(ctx, m, at, err)
	}
	if err != nil {
		return err
	}
	if listed.bytes != m.Length {
		return refused(step, wire.CodeOffsetMismatch, http.StatusConflict)
	}
	out, err := call(ctx, d.client, remote.Operation{Step: step}, d.api.CompleteMultipartUpload, &api.CompleteMultipartUploadInput{
		Bucket: &at.bucket, Key: &at.key, UploadId: &s.ID, IfNoneMatch: aws.String("*"), MpuObjectSize: &m.Length,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: listed.parts},
	})
	switch {
	case isGone(err):
		return d.orGone(ctx, m, at, err)
	case hasStatus(err, http.StatusPreconditionFailed):
		if err := d.isThere(ctx, m, at, listed.ofParts()); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		told, want := aws.ToString(out.ChecksumSHA256), listed.ofParts()
		if told != "" && want != "" && told != want {
			return remote.Fail(step, remote.KindMismatch, fmt.Errorf("%w: the digest over the parts is another one", uplink.ErrAnswer))
		}
	}
	_ = d.sweep(ctx, at)
	return nil
}

// orGone takes an object of the right length for what became of an upload; Verify will compare it. Without one the upload is
// gone.
func (d *Driver) orGone(ctx context.Context, m *attachment.Manifest, at address, gone error) error {
	found, err := d.head(ctx, remote.StepAppend, at)
	switch {
	case err != nil:
		return err
	case found == nil:
		return gone
	case found.length != m.Length:
		return conflict(remote.StepAppend)
	}
	_ = d.sweep(ctx, at)
	return nil
}

// sweep ends the uploads that are left of a key whose object is there, as where the answer to create was lost: none of them
// can become it any more, whoever opened it. The object is there whether this succeeds or not, so that nobody waits for it: a
// lifecycle rule of the bucket ends what stays.
func (d *Driver) sweep(ctx context.Context, at address) error {
	left, err := call(ctx, d.client, remote.Operation{Step: remote.StepCancel}, d.api.ListMultipartUploads, &api.ListMultipartUploadsInput{
		Bucket: &at.bucket, Prefix: &at.key, MaxUploads: aws.Int32(maxOrphans),
	})
	if err == nil {
		for _, u := range left.Uploads {
			if aws.ToString(u.Key) == at.key && aws.ToString(u.UploadId) != "" {
				err = errors.Join(err, d.abort(ctx, at, *u.UploadId))
			}
		}
	}
	return err
}

// abort ends an upload. One that is gone is no error.
func (d *Driver) abort(ctx context.Context, at address, id string) error {
	_, err := call(ctx, d.client, remote.Operation{Step: remote.StepCancel}, d.api.AbortMultipartUpload, &api.AbortMultipartUploadInput{
		Bucket: &at.bucket, Key: &at.key, UploadId: &id,
	})
	if isGone(err) {
		return nil
	}
	return err
}
