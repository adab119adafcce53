package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// Protocol says how the answers of a kind of server are understood. It never changes once a Client has it.
type Protocol struct {
	// Name is what errors call it.
	Name string
	// Ours reports whether an answer is of this protocol at all; nil takes every answer for one, which is right only where
	// nothing but the server's certificate can tell.
	Ours func(step Step, resp *http.Response) bool
	// Accepts are the statuses by which a step succeeds; those of the fieldgw protocol for a step that is not named.
	Accepts map[Step][]int
	// Refusal reports whether the body of an answer with an accepted status is a refusal all the same; nil: none is.
	Refusal func(body []byte) bool
	// Problem reads a refusal: the code by which the class table knows it, "" where only its status speaks, and the server's
	// words. An error means that it is no answer of this protocol. nil goes by the status alone.
	Problem func(resp *http.Response, body []byte) (code wire.Code, detail string, err error)
	// CheckCredential looks at a credential's text before it is sent; its errors contain none of it. nil accepts one word of
	// printable ASCII.
	CheckCredential func(text string) error
	// Authorize turns the credential's text into an Authorization header; nil makes a bearer token of it (RFC 6750, 2.1).
	Authorize func(text string) string
	// Probe asks whether the server is there.
	Probe func(ctx context.Context, c *Client) error
	// Redirects: a resource may move within the server's origin, which the server says by 307 or 308. Without it a redirect
	// is a foreign answer: portals redirect.
	Redirects bool
	// Anonymous: a client needs no credential. Without one nothing is sent in its place.
	Anonymous bool
}

// Fieldgw is the protocol of docs/protocol.md: every answer is marked, and every refusal is a problem document.
func Fieldgw() *Protocol {
	return &Protocol{
		Name: "fieldgw",
		Ours: func(_ Step, resp *http.Response) bool {
			return resp.Header.Get(wire.HeaderProtocol) == strconv.Itoa(wire.Protocol)
		},
		Problem: func(resp *http.Response, body []byte) (wire.Code, string, error) {
			p, err := readProblem(resp.Header, body)
			return p.Code, p.Detail, err
		},
		CheckCredential: func(text string) error {
			_, err := ParseToken(text)
			return err
		},
		Probe: probeStatus,
	}
}

// probeStatus asks the status endpoint. A server need not look at the credential for it.
func probeStatus(ctx context.Context, c *Client) error {
	resp, err := c.Do(ctx, Request{Step: StepProbe, Method: http.MethodGet, Path: "v1/status"})
	if err != nil {
		return err
	}
	var status wire.Status
	if err := resp.Decode(&status); err != nil {
		return err
	}
	if status.Service != wire.ServiceName || status.Protocol != wire.Protocol {
		return resp.Foreign(ErrForeign)
	}
	return nil
}

// accepted are the statuses by which a step succeeds. After a cancellation the session is gone, by whomever.
var accepted = map[Step][]int{
	StepProbe:    {200},
	StepReserve:  {200, 201},
	StepOffset:   {200, 204},
	StepAppend:   {200, 204},
	StepVerify:   {200},
	StepRegister: {200, 201, 202},
	StepCancel:   {200, 204, 404, 410},
}

func (p *Protocol) accepts(step Step, status int) bool {
	statuses, ok := p.Accepts[step]
	if !ok {
		statuses = accepted[step]
	}
	return slices.Contains(statuses, status)
}

func (p *Protocol) ours(step Step, resp *http.Response) bool {
	return p.Ours == nil || p.Ours(step, resp)
}

func (p *Protocol) problem(resp *http.Response, body []byte) (wire.Code, string, error) {
	if p.Problem == nil || resp.Request != nil && resp.Request.Method == http.MethodHead {
		return "", "", nil
	}
	return p.Problem(resp, body)
}

// check looks at a credential's text.
func (p *Protocol) check(text string) error {
	if p.CheckCredential != nil {
		return p.CheckCredential(text)
	}
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%w: not one word of printable ASCII", ErrBadCredential)
	}
	return nil
}

func (p *Protocol) authorize(text string) string {
	if p.Authorize != nil {
		return p.Authorize(text)
	}
	return "Bearer " + text
}

// CodeFinal is the code of a refusal by which the server has done with a session, though bytes of it arrived. No server sends
// this text: a Protocol finds it out.
const CodeFinal wire.Code = "final"

// CodeSetup is the code of a refusal that comes from how another kind of server, or this device, is set up. No fieldgw server
// sends it.
const CodeSetup wire.Code = "setup"

// ErrBadCredential is returned when a credential's text cannot be one of the protocol.
var ErrBadCredential = errors.New("not a usable credential")
