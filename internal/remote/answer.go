package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// maxDetail bounds what is kept of a server's prose, in bytes.
const maxDetail = 240

// judge takes an answer apart.
func (p *Protocol) judge(step Step, method string, resp *http.Response, body []byte) (*Response, *Error) {
	wait := retryAfter(resp.Header)
	e := &Error{Step: step, Kind: KindForeign, Status: resp.StatusCode, RetryAfter: wait}
	if resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect {
		e.location = resp.Header.Get("Location")
	}
	switch {
	case !p.ours(step, resp):
		e.Detail, e.Err = p.describe(resp), ErrForeign
	case len(body) > wire.MaxControlBody:
		e.Detail, e.Err = "the answer is too long", ErrForeign
	case p.accepts(step, resp.StatusCode):
		return &Response{Status: resp.StatusCode, Header: resp.Header, Body: body, RetryAfter: wait, step: step}, nil
	case method == http.MethodHead && resp.StatusCode >= 400:
		e.Kind = KindProblem
	default:
		code, detail, err := p.problem(resp, body)
		if err != nil {
			e.Detail, e.Err = p.describe(resp), ErrForeign
			break
		}
		e.Kind, e.Problem, e.Detail = KindProblem, code, printable(detail)
	}
	e.Ruling = Classify(Case{Step: step, Kind: e.Kind, Status: e.Status, Problem: e.Problem, Waits: wait > 0})
	return nil, e
}

// describe says what a foreign answer looks like, without its content.
func (p *Protocol) describe(resp *http.Response) string {
	parts := []string{"no " + p.Name + " answer"}
	if version := resp.Header.Get(wire.HeaderProtocol); version != "" {
		parts = append(parts, "speaks version "+version+" of the protocol")
	}
	if media := resp.Header.Get("Content-Type"); media != "" {
		parts = append(parts, "content type "+media)
	}
	if to, err := url.Parse(resp.Header.Get("Location")); err == nil && to.Host != "" {
		parts = append(parts, "redirects to "+to.Host)
	}
	return printable(strings.Join(parts, ", "))
}

func printable(s string) string {
	s = attachment.Printable(strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= maxDetail {
		return s
	}
	cut := maxDetail
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

var errNoProblem = errors.New("not a problem document")

// readProblem reads an answer as RFC 9457 problem details with our stable code.
func readProblem(h http.Header, body []byte) (wire.Problem, error) {
	var p wire.Problem
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || media != wire.ContentTypeProblem {
		return p, errNoProblem
	}
	if err := decodeStrict(body, &p); err != nil {
		return p, err
	}
	if p.Code == "" || len(p.Code) > 64 || strings.Trim(string(p.Code), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return p, errNoProblem
	}
	return p, nil
}

// decodeStrict reads one JSON value and nothing behind it.
func decodeStrict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// retryAfter reads Retry-After (RFC 9110, 10.2.3). A date counts from the answer's own Date, for the device's clock may be
// anywhere; without a Date it says nothing.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	sent, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return min(max(until.Sub(sent), 0), MaxRetryAfter)
}

// broken judges a request without a whole answer. unread is the error of reading the bytes to send.
func broken(watching context.Context, step Step, unread, err error) *Error {
	if unread != nil {
		return Fail(step, KindUnread, unread)
	}
	err = withoutURL(err)
	if cause := context.Cause(watching); cause != nil {
		switch {
		case errors.Is(cause, ErrStalled):
			return Fail(step, KindStalled, cause)
		case errors.Is(cause, ErrSilent):
			return Fail(step, KindSilent, cause)
		}
		return Fail(step, KindCancelled, cause)
	}
	if status, refused := refusedByProxy(err); refused {
		c := Case{Step: step, Kind: KindProxy, Status: status}
		return &Error{Step: step, Kind: c.Kind, Status: status, Ruling: Classify(c), Err: err}
	}
	switch {
	case uprooted(watching):
		return Fail(step, KindMoved, ErrMoved)
	case isCertificate(err):
		return Fail(step, KindTLS, err)
	case isOwnCertificate(err):
		return Fail(step, KindCertificate, err)
	case isPlain(err):
		return Fail(step, KindForeign, fmt.Errorf("%w: it does not speak TLS", ErrForeign))
	case !wasConnected(watching):
		return Fail(step, KindConnect, err)
	}
	return Fail(step, KindBroken, err)
}

// withoutURL takes the address out of an error's text: addresses of uploads are nobody else's business.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// isPlain reports that what answered does not speak TLS.
func isPlain(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok || errors.Is(err, http.ErrSchemeMismatch)
}

func isCertificate(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &invalid)
}
