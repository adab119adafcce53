package remote

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Errors of this package. Those of a request come wrapped in an *Error.
var (
	// ErrBadToken is returned when a credential's text is not a token of this protocol.
	ErrBadToken = errors.New("not a fieldgw token")
	// ErrBadOptions is returned by New when an option cannot be used; the text names it.
	ErrBadOptions = errors.New("cannot make a client")
	// ErrForeign is returned when what answered does not speak the protocol, or an address is not on the server's host.
	ErrForeign = errors.New("not the kind of server that is configured")
	// ErrStalled is returned when no byte moved in either direction for the idle timeout.
	ErrStalled = errors.New("no byte moved in time")
	// ErrMoved is returned when the connection was ended because addresses or routes changed, or the machine was suspended.
	ErrMoved = errors.New("the way to the server changed")
	// ErrSilent is returned when the whole answer did not come in time after the last byte of the request.
	ErrSilent = errors.New("no answer in time")
	// ErrShortBody is returned when a stream's body ended before its stated length.
	ErrShortBody = errors.New("fewer bytes to send than announced")
)

// Error is a failed request, judged. Class, Reason, Charge, Repeats, Confirm and Shrink come from Classify.
type Error struct {
	Step    Step
	Kind    Kind
	Status  int       // of the answer; 0 without one
	Problem wire.Code // of a KindProblem; empty where the answer had no body

	Ruling

	// RetryAfter is what the answer asked for, at most MaxRetryAfter; 0 when it asked for nothing.
	RetryAfter time.Duration
	// Detail is the server's text or a description of a foreign answer: one printable line of bounded length.
	Detail string
	// location is where a 307 or 308 leads.
	location string
	// Err is the cause below; nil when the answer says it all. It contains no URL and no credential.
	Err error
}

// Error returns one printable line.
func (e *Error) Error() string {
	parts := []string{string(e.Step)}
	if e.Status != 0 {
		parts = append(parts, strings.TrimSpace(strconv.Itoa(e.Status)+" "+string(e.Problem)))
	} else if e.Err == nil {
		parts = append(parts, string(e.Kind))
	}
	if e.Detail != "" {
		parts = append(parts, e.Detail)
	}
	if e.Err != nil && (e.Err != ErrForeign || e.Detail == "") { // the detail says it better
		parts = append(parts, attachment.Printable(e.Err.Error()))
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Gone reports that the server does not know the session or the attachment (any more).
func (e *Error) Gone() bool {
	return e.Kind == KindProblem && (e.Status == 404 || e.Status == 410 || e.Problem == wire.CodeSessionGone)
}

// Busy reports that another request holds the session.
func (e *Error) Busy() bool {
	return e.Kind == KindProblem && (e.Status == 423 || e.Problem == wire.CodeBusy)
}

// Smallest judges a refused append again, given that it cannot be made smaller.
func (e *Error) Smallest() *Error {
	again := *e
	again.Ruling = Classify(Case{
		Step: e.Step, Kind: e.Kind, Status: e.Status, Problem: e.Problem, Waits: e.RetryAfter > 0, Smallest: true,
	})
	return &again
}

// Fail makes the judged error of something that was found on the device or in the meaning of an answer.
func Fail(step Step, kind Kind, err error) *Error {
	return &Error{Step: step, Kind: kind, Ruling: Classify(Case{Step: step, Kind: kind}), Err: err}
}

// Refused makes the judged error of a refusal that an answer expressed without an error's status.
func Refused(step Step, code wire.Code) *Error {
	c := Case{Step: step, Kind: KindProblem, Problem: code}
	return &Error{Step: step, Kind: c.Kind, Problem: code, Ruling: Classify(c)}
}

// ClassOf returns the class of any error: that of an *Error; Held for an error that has a method HoldCode; Cancelled for
// an ended context; else Local. It returns "" for nil.
func ClassOf(err error) Class {
	if err == nil {
		return ""
	}
	if e, ok := asError(err); ok {
		return e.Class
	}
	var hold interface{ HoldCode() attachment.Code }
	switch {
	case errors.As(err, &hold):
		return Held
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Cancelled
	}
	return Local
}

func asError(err error) (*Error, bool) { return errors.AsType[*Error](err) }
