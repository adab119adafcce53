package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// Request is one call of the control plane, or a small one of the data plane. It must be idempotent: it is repeated once
// when its connection breaks.
type Request struct {
	Step   Step
	Method string
	// Path is that of a resource below the endpoint; empty for the endpoint as it was typed. URL takes its place if set; it
	// comes from one of the methods Resolve.
	Path   string
	URL    *url.URL
	Header http.Header
	// Message is sent as JSON; nil for no body. At most wire.MaxControlBody bytes.
	Message any
	// Answered, if not nil, hears of an accepted answer to Download before its body is written.
	Answered func(status int, header http.Header)
}

// Append is one sending of payload bytes. It is never repeated without being asked.
type Append struct {
	Step   Step
	Method string
	URL    *url.URL // from one of the methods Resolve
	Header http.Header
	// Body returns a new reader of the same Length bytes at each call. No reader is used after Stream returned.
	Body   func() io.Reader
	Length int64
	// Moved, if not nil, hears of bytes as they are taken for sending; it is not called after Stream returned.
	Moved func(n int64)
	// Interim, if not nil, hears of interim answers of Resumable Uploads for HTTP: status 104 in the version of this device,
	// once it asked for them. It must not wait, and is not called after Stream returned. There may be any number of them.
	Interim func(header http.Header)
}

// Response is an answer in our protocol with a status that the step accepts.
type Response struct {
	Status int
	Header http.Header
	// Body is whole; at most wire.MaxControlBody bytes.
	Body []byte
	// RetryAfter is what the answer asked for; 0 for nothing.
	RetryAfter time.Duration

	step   Step
	client *Client
	asked  *url.URL
}

// Resolve turns an address in the answer into a URL, relative to that of the request where it is relative (RFC 3986, 5).
// The token is sent there, so another scheme or host is refused with ErrForeign.
func (r *Response) Resolve(address string) (*url.URL, error) {
	return r.client.resolve(r.asked, address)
}

// Decode reads the body strictly: one JSON value of v's type and nothing behind it. Members that this version does not
// know are allowed. The error is an *Error of KindForeign.
func (r *Response) Decode(v any) error {
	if err := decodeStrict(r.Body, v); err != nil {
		return r.Foreign(fmt.Errorf("%w: %w", ErrForeign, err))
	}
	return nil
}

// Foreign makes the error for an answer that turns out not to be our protocol.
func (r *Response) Foreign(err error) *Error { return r.judge(KindForeign, err) }

// Mismatch makes the error for an answer that speaks of something else than was asked.
func (r *Response) Mismatch(err error) *Error { return r.judge(KindMismatch, err) }

func (r *Response) judge(kind Kind, err error) *Error {
	return &Error{
		Step: r.step, Kind: kind, Status: r.Status, Err: err,
		Ruling: Classify(Case{Step: r.step, Kind: kind, Status: r.Status}),
	}
}

// Do sends a request and returns the answer. Every error is an *Error.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	t := transfer{step: r.Step, method: r.Method, url: r.URL, header: r.Header}
	if t.url == nil {
		t.url = c.address(r.Path)
	}
	if r.Message != nil {
		body, err := json.Marshal(r.Message)
		if err == nil && len(body) > wire.MaxControlBody {
			err = fmt.Errorf("message of %d bytes, at most %d", len(body), wire.MaxControlBody)
		}
		if err != nil {
			return nil, Fail(r.Step, KindRequest, err)
		}
		t.contentType = wire.ContentTypeJSON
		t.length = int64(len(body))
		t.body = func() *sending { return newSending(bytes.NewReader(body), t.length, nil) }
	}
	return c.exchange(ctx, t)
}

// Stream sends payload bytes and returns the answer. Every error is an *Error; where the bytes could not be read, it is of
// KindUnread and wraps the reader's error. A large body waits for the server's agreement (100 Continue), so that a refusal
// costs no bytes.
func (c *Client) Stream(ctx context.Context, a Append) (*Response, error) {
	t := transfer{
		step: a.Step, method: a.Method, url: a.URL, header: a.Header, stream: true, length: a.Length, interim: a.Interim,
	}
	if a.Length > 0 {
		t.body = func() *sending { return newSending(a.Body(), a.Length, a.Moved) }
	}
	return c.exchange(ctx, t)
}

// Download sends a request and writes the body of an accepted answer to w, for as long as bytes move. What was written
// before an error is of no use.
// Every error is an *Error; one of w itself is of KindUnread.
func (c *Client) Download(ctx context.Context, r Request, w io.Writer) (*Response, error) {
	t := transfer{step: r.Step, method: r.Method, url: r.URL, header: r.Header, sink: w, answered: r.Answered}
	if t.url == nil {
		t.url = c.address(r.Path)
	}
	return c.exchange(ctx, t)
}

// Probe asks whether our server is there. The error is an *Error.
func (c *Client) Probe(ctx context.Context) error { return c.protocol.Probe(ctx, c) }

// address is that of a path below the endpoint, and the endpoint itself for none.
func (c *Client) address(path string) *url.URL {
	if path == "" {
		return c.typed
	}
	return c.endpoint.JoinPath(path)
}

// transfer is a request of either plane.
type transfer struct {
	step        Step
	method      string
	url         *url.URL
	header      http.Header
	contentType string
	body        func() *sending // nil without body
	length      int64
	sink        io.Writer // takes the body of an accepted answer
	interim     func(http.Header)
	answered    func(status int, header http.Header)
	stream      bool // payload: never repeated, and on a connection of its own
}

// exchange sends with the credential, and once more when it was refused and has been replaced meanwhile.
func (c *Client) exchange(ctx context.Context, t transfer) (*Response, error) {
	token, err := c.keys.token()
	if err != nil {
		return nil, Fail(t.step, KindCredential, err)
	}
	resp, failed := c.follow(ctx, t, token)
	if failed == nil || token == "" || failed.Kind != KindProblem || failed.Status != 401 && failed.Status != 403 {
		return orError(resp, failed)
	}
	renewed, other, err := c.keys.renewed(token)
	switch {
	case err != nil:
		failed.Err = errors.Join(failed.Err, err)
		return nil, failed
	case !other:
		return nil, failed
	}
	c.log.InfoContext(ctx, "credential was refused; sending again with the one that replaced it")
	resp, failed = c.follow(ctx, t, renewed)
	return orError(resp, failed)
}

// orError keeps a nil *Error from becoming an error that is not nil.
func orError(resp *Response, failed *Error) (*Response, error) {
	if failed != nil {
		return nil, failed
	}
	return resp, nil
}

// patient are the steps that may make the server read all that it stored before it answers.
var patient = []Step{StepAppend, StepVerify, StepRegister}

// attempt sends once, apart from the quick repetition of a call. The body's readers are out of use when it returns.
func (c *Client) attempt(ctx context.Context, t transfer, token string) (*Response, *Error) {
	planes, err := c.network.ready()
	if err != nil {
		return nil, Fail(t.step, KindCertificate, err)
	}
	var bodies bodies
	w := &watch{idle: c.idle, answer: c.answer, patient: slices.Contains(patient, t.step), ended: bodies.wake}
	bodies.taken = w.moved
	watching := w.start(ctx)
	defer w.stop()
	defer bodies.end()
	watching, deafen := listen(watching, t.interim)
	defer deafen()

	req, err := c.build(watching, t, token, &bodies)
	if err != nil {
		return nil, Fail(t.step, KindRequest, err)
	}
	resp, err := planes.of(t.stream).Do(req)
	if w.multiplexed() {
		planes.multiplexed.Store(true)
	}
	if err != nil {
		return nil, broken(watching, t.step, bodies.end(), err)
	}
	w.answered(t.sink != nil)
	resp.Body = movingBody{resp.Body, w}
	body, unwritten, err := c.read(t, resp)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, broken(watching, t.step, errors.Join(unwritten, bodies.end()), err)
	}
	answer, failed := c.judge(t, resp, body, token)
	if answer != nil {
		answer.client, answer.asked = c, t.url
	}
	return answer, failed
}

// read takes the body of an answer: into memory, or to where a download goes. unwritten is the error of the latter.
func (c *Client) read(t transfer, resp *http.Response) (body []byte, unwritten, err error) {
	if t.sink != nil && c.protocol.ours(t.step, resp) && c.protocol.accepts(t.step, resp.StatusCode) {
		if t.answered != nil {
			t.answered(resp.StatusCode, resp.Header)
		}
		to := &noting{w: t.sink}
		_, err = io.Copy(to, resp.Body)
		return nil, to.err, err
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, wire.MaxControlBody+1))
	return body, nil, err
}

// noting remembers the error of a writer.
type noting struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (n *noting) Write(p []byte) (int, error) {
	k, err := n.w.Write(p)
	n.err = err
	return k, err
}

func (c *Client) build(ctx context.Context, t transfer, token string, b *bodies) (*retryablehttp.Request, error) {
	var body any
	if t.body != nil {
		body = retryablehttp.ReaderFunc(func() (io.Reader, error) { return b.add(t.body()), nil })
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, t.method, t.url.String(), body)
	if err != nil {
		return nil, withoutURL(err)
	}
	req.ContentLength = t.length
	for name, values := range t.header {
		req.Header[name] = values
	}
	if token != "" {
		req.Header.Set("Authorization", c.protocol.authorize(token))
	}
	req.Header.Set("Accept", wire.ContentTypeJSON+", "+wire.ContentTypeProblem)
	if c.userAgent != "" {
		req.Header.Set("User-Agent", c.userAgent)
	}
	if t.contentType != "" {
		req.Header.Set("Content-Type", t.contentType)
	}
	if t.length > continueAbove {
		req.Header.Set("Expect", "100-continue")
	}
	return req, nil
}
