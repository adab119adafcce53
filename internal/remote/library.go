package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxMade bounds a body that a library makes by itself, in bytes.
const maxMade = 8 << 20

// Operation is a request of a library that makes, signs and reads its requests itself, such as the SDK of a store. It is sent
// as every other request is: the same connections, limits and classes.
type Operation struct {
	Step Step
	// Body returns a new reader of the same Length bytes of payload at each call. They are sent in place of the body that
	// the library gives, and never repeated; no reader is used after Operate returned. nil: the library's body, a small one.
	Body   func() io.Reader
	Length int64
	// Moved, if not nil, hears of bytes as they are taken for sending.
	Moved func(n int64)
	// Sink, if not nil, takes the body of an accepted answer; the library gets an empty one.
	Sink io.Writer
	// Run has the library do its work with the credential's text and send its request by do. It may be called twice, with
	// another credential. An *Error of its own is returned as it is.
	Run func(ctx context.Context, credential string, do Doer) error
}

// Doer sends a request; it is what libraries call an HTTP client.
type Doer interface {
	Do(req *http.Request) (*http.Response, error)
}

// Operate runs an operation, and once more when the credential was refused and has been replaced meanwhile. Every error is an
// *Error: the refusal or the failure as the protocol judges it, whatever the library makes of it.
func (c *Client) Operate(ctx context.Context, o Operation) error {
	token, err := c.keys.token()
	if err != nil {
		return Fail(o.Step, KindCredential, err)
	}
	failed := c.operate(ctx, o, token)
	if renewed, other := c.replaced(ctx, token, failed); other {
		failed = c.operate(ctx, o, renewed)
	}
	if failed != nil {
		return failed
	}
	return nil
}

func (c *Client) operate(ctx context.Context, o Operation, token string) *Error {
	d := &doer{client: c, operation: o, token: token}
	err := o.Run(ctx, token, d)
	switch {
	case d.failed != nil:
		return d.failed // also where the library takes an answer of somebody else for one of its own
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return Fail(o.Step, KindCancelled, context.Cause(ctx))
	}
	if own, ok := asError(err); ok {
		return own
	}
	if d.answered {
		return Fail(o.Step, KindForeign, fmt.Errorf("%w: %w", ErrForeign, err)).conceal(token)
	}
	return Fail(o.Step, KindRequest, err).conceal(token)
}

// doer sends the requests of one operation and remembers how the last one was judged.
type doer struct {
	client    *Client
	operation Operation
	token     string
	failed    *Error
	answered  bool
}

// Do implements Doer. The library gets every answer, refusals too: it may learn from them, as about the server's clock.
func (d *doer) Do(req *http.Request) (*http.Response, error) {
	t, err := d.transfer(req)
	if err != nil {
		return nil, Fail(d.operation.Step, KindRequest, err)
	}
	var answer *http.Response
	t.seen = func(resp *http.Response, body []byte) {
		seen := *resp
		seen.Body, seen.ContentLength, seen.Request = io.NopCloser(bytes.NewReader(body)), int64(len(body)), req
		answer = &seen
	}
	_, failed := d.client.attempt(req.Context(), t, d.token)
	if d.failed = failed.conceal(d.token); answer == nil {
		return nil, d.failed
	}
	d.answered = true
	return answer, nil
}

func (d *doer) transfer(req *http.Request) (transfer, error) {
	o := d.operation
	t := transfer{
		step: o.Step, method: req.Method, url: req.URL, header: req.Header, sink: o.Sink, signed: true, stream: o.Body != nil,
	}
	if !d.client.owns(req.URL) {
		return t, fmt.Errorf("send for a library: %w: it leads elsewhere than the endpoint", ErrForeign)
	}
	switch {
	case o.Body != nil:
		t.length = o.Length
		if t.length > 0 {
			t.body = func() *sending { return newSending(o.Body(), o.Length, o.Moved) }
		}
	case req.Body != nil && req.Body != http.NoBody:
		made, err := io.ReadAll(io.LimitReader(req.Body, maxMade+1))
		if err == nil && len(made) > maxMade {
			err = fmt.Errorf("more than %d bytes", maxMade)
		}
		if err != nil {
			return t, fmt.Errorf("read what a library sends: %w", err)
		}
		t.length = int64(len(made))
		t.body = func() *sending { return newSending(bytes.NewReader(made), t.length, nil) }
	}
	return t, nil
}

// owns reports whether a URL is of the endpoint's server: its host, or a name below it, which stores give to each bucket.
func (c *Client) owns(u *url.URL) bool {
	at, end := hostPort(u), hostPort(c.endpoint)
	return u.Scheme == c.endpoint.Scheme && u.User == nil && u.Opaque == "" && (at == end || strings.HasSuffix(at, "."+end))
}
