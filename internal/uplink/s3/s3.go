// Package s3 is the driver for stores that speak the API of Amazon S3.
//
// What fits into one append goes by one conditional PUT that carries the SHA-256 of the whole file; what is larger goes by a
// multipart upload, each part with its SHA-256, which is resumed from the store's own list of parts. Nothing that stands in
// the store is ever replaced or deleted: both ways end with If-None-Match, and what is found under the key is compared.
//
// A store registers nothing, so the receipt is the registrar's (package foreign). Its digest is one of these: the SHA-256 that
// the store computed over the whole object when it took it; the SHA-256 over those of the parts, each computed by the store
// when it took the part, held against the same over the payload; or, where a store tells neither, one over the bytes that
// were read back. None of them says that anything is durable.
//
// The session's URL is the object's address and the size of the parts; its ID is the upload's, or "put". Read session.go for
// that, object.go for what counts as the same object, and for what goes as a whole, parts.go for the rest.
package s3

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	api "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/placement"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
)

// Store is where the objects go.
type Store struct {
	Bucket, Region string
	// Virtual: the bucket is named by the host, as BUCKET.HOST, instead of by the path.
	Virtual bool
}

// Options are what a Driver needs.
type Options struct {
	Store Store
	// Key names the objects.
	Key placement.Template
	// Part is how much is sent at a time, in bytes. A store takes no parts below MinPart but the last.
	Part int64
	// LengthOnly: an object is not read back where the store tells no digest; then only its length counts.
	LengthOnly bool
	// Registrar gives the receipts.
	Registrar foreign.Registrar
}

// Driver implements uplink.Driver and uplink.Comparer.
type Driver struct {
	client *remote.Client
	api    *api.Client
	o      Options
	floor  int64 // of a part, in bytes; tests have a smaller one
}

// New returns the driver that sends through client, whose protocol is that of Protocol.
func New(client *remote.Client, o Options) *Driver {
	return &Driver{client: client, api: newAPI(client, o.Store), o: o, floor: MinPart}
}

// newAPI makes the SDK's client. It keeps nothing but the difference of the clocks.
func newAPI(client *remote.Client, s Store) *api.Client {
	return api.New(api.Options{
		Region: s.Region, BaseEndpoint: aws.String(client.Endpoint().String()), UsePathStyle: !s.Virtual,
		HTTPSignerV4: signer{}, Retryer: aws.NopRetryer{},
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		// Both would lead to other hosts than the one that is configured.
		DisableMultiRegionAccessPoints: true, DisableS3ExpressSessionAuth: aws.Bool(true),
	})
}

// Name returns the name in the configuration.
func (d *Driver) Name() string { return "s3" }

// Capabilities: a store takes any part at any time, so that no append is refused for its offset, and it opens as many uploads
// for one key as it is asked for.
func (d *Driver) Capabilities() uplink.Capabilities {
	return uplink.Capabilities{Resume: true, Digests: true}
}

// Reserve finds what the session holds, or begins one. A small file needs no request for it.
func (d *Driver) Reserve(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Reservation, error) {
	if s.ID == "" {
		return d.begin(ctx, m)
	}
	at, err := addressOf(s)
	if err != nil {
		return uplink.Reservation{}, unknown(remote.StepReserve, err)
	}
	offset, err := d.confirmed(ctx, remote.StepReserve, m, s, at)
	if err != nil {
		return uplink.Reservation{}, err
	}
	return reservation(m, s, at, offset), nil
}

func reservation(m *attachment.Manifest, s attachment.Session, at address, offset int64) uplink.Reservation {
	size := at.part
	if s.ID == whole {
		size = m.Length
	}
	return uplink.Reservation{
		BytesNeeded: true, Session: s, Offset: offset, MinAppend: size, MaxAppend: size, MediaID: at.mediaID(),
	}
}

// begin opens a session. An object that is there already is one of an earlier session, which a rebuilt queue does not know.
func (d *Driver) begin(ctx context.Context, m *attachment.Manifest) (uplink.Reservation, error) {
	at := address{bucket: d.o.Store.Bucket, key: d.o.Key.Path(m), part: partSize(d.floor, d.o.Part, m.Length)}
	if m.Length <= at.part {
		if err := ctx.Err(); err != nil {
			return uplink.Reservation{}, remote.Fail(remote.StepReserve, remote.KindCancelled, context.Cause(ctx))
		}
		return reservation(m, at.session(whole), at, 0), nil
	}
	found, err := d.head(ctx, remote.StepReserve, at)
	if err != nil {
		return uplink.Reservation{}, err
	}
	if found != nil {
		if err := d.mustBe(ctx, remote.StepReserve, m, at, found); err != nil {
			return uplink.Reservation{}, err
		}
		return reservation(m, at.session(whole), at, m.Length), nil
	}
	id, err := d.create(ctx, m, at)
	if err != nil {
		return uplink.Reservation{}, err
	}
	return reservation(m, at.session(id), at, 0), nil
}

// confirmed is how many bytes of the session the store holds. Whether they are the right ones is for Verify to say.
func (d *Driver) confirmed(ctx context.Context, step remote.Step, m *attachment.Manifest, s attachment.Session, at address) (int64, error) {
	var gone error
	if s.ID != whole {
		listed, err := d.list(ctx, step, m, s, at)
		if err == nil {
			return listed.bytes, nil
		}
		if gone = err; !isGone(err) {
			return 0, err
		}
	}
	found, err := d.head(ctx, step, at)
	switch {
	case err != nil:
		return 0, err
	case found == nil:
		return 0, gone
	case found.length != m.Length:
		return 0, conflict(step)
	}
	return m.Length, nil
}

// Offset is how many bytes the store holds.
func (d *Driver) Offset(ctx context.Context, m *attachment.Manifest, s attachment.Session) (int64, error) {
	at, err := addressOf(s)
	if err != nil {
		return 0, unknown(remote.StepOffset, err)
	}
	return d.confirmed(ctx, remote.StepOffset, m, s, at)
}

// Append sends the file or a part of it; the last part, or an append without bytes, makes the object.
func (d *Driver) Append(ctx context.Context, a uplink.Append) (int64, error) {
	at, err := addressOf(a.Session)
	switch {
	case err != nil:
		return 0, unknown(remote.StepAppend, err)
	case a.Session.ID == whole:
		return d.put(ctx, a, at)
	}
	return d.upload(ctx, a, at)
}

// Verify says what the store holds by what the store says of it, and otherwise by reading it back.
func (d *Driver) Verify(ctx context.Context, m *attachment.Manifest, s attachment.Session) (uplink.Verdict, error) {
	return d.Compare(ctx, m, s, nil)
}

// Register asks the registrar for the receipt.
func (d *Driver) Register(ctx context.Context, m *attachment.Manifest, s attachment.Session, v uplink.Verdict) (receipt.Receipt, error) {
	at, err := addressOf(s)
	if err != nil {
		return receipt.Receipt{}, unknown(remote.StepRegister, err)
	}
	return d.o.Registrar.Register(ctx, m, foreign.Found{
		MediaID: at.mediaID(), Location: at.location(), Server: d.client.Endpoint().Host, Verdict: v,
	})
}

// Cancel ends an upload of parts. An object is not deleted: it is evidence, and maybe somebody else's.
func (d *Driver) Cancel(ctx context.Context, s attachment.Session) error {
	at, err := addressOf(s)
	switch {
	case err != nil:
		return unknown(remote.StepCancel, err)
	case s.ID == whole:
		return remote.Refused(remote.StepCancel, codeWhole)
	}
	return d.abort(ctx, at, s.ID)
}

// call runs one operation of the SDK with the device's credential. A request that was refused for its time is repeated once:
// the SDK has learned the difference of the clocks from the answer.
func call[In, Out any](
	ctx context.Context, client *remote.Client, o remote.Operation,
	f func(context.Context, *In, ...func(*api.Options)) (*Out, error), in *In, options ...func(*api.Options),
) (out *Out, err error) {
	o.Run = func(ctx context.Context, text string, do remote.Doer) error {
		keys, err := ParseCredential(text)
		if err != nil {
			return remote.Fail(o.Step, remote.KindCredential, err)
		}
		out, err = f(ctx, in, append(options, func(to *api.Options) {
			to.HTTPClient, to.Credentials = do, aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return keys, nil })
		})...)
		return err
	}
	if err = client.Operate(ctx, o); isSkewed(err) {
		err = client.Operate(ctx, o)
	}
	return out, judged(err)
}

// signer signs with a new signer each time: the SDK's own remembers what it derived from a secret by the key's ID alone, and
// goes on with the old one where a store gives an ID another secret.
type signer struct{}

// SignHTTP implements api.HTTPSignerV4.
func (signer) SignHTTP(
	ctx context.Context, keys aws.Credentials, r *http.Request, payloadHash, service, region string, at time.Time, options ...func(*v4.SignerOptions),
) error {
	once := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	return once.SignHTTP(ctx, keys, r, payloadHash, service, region, at, options...)
}

// hashed signs the hash of a payload that the SDK is not to read.
func hashed(sum string) func(*api.Options) {
	return func(o *api.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("PayloadHash",
				func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
					middleware.InitializeOutput, middleware.Metadata, error,
				) {
					return next.HandleInitialize(v4.SetPayloadHash(ctx, sum), in)
				}), middleware.Before)
		})
	}
}

// unread stands for a payload of which the SDK needs the length alone: package remote sends the bytes.
type unread struct{ n int64 }

// Len is what the SDK asks for.
func (u unread) Len() int { return int(u.n) }

// Read implements io.Reader; nobody should call it.
func (u unread) Read([]byte) (int, error) {
	return 0, fmt.Errorf("payload of %d bytes read by the wrong one", u.n)
}
