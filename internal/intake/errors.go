package intake

import (
	"errors"
	"fmt"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Errors of submissions.
var (
	// ErrSubmissionBusy is returned by Submit while the same submission is being taken already.
	ErrSubmissionBusy = errors.New("this submission is being taken already")
	// ErrSubmissionLength is returned by Submit when a file has another length than was declared for it.
	ErrSubmissionLength = errors.New("file has another length than declared")
	// ErrSubmissionInvalid is returned by Submit for a submission without files, with too many, or with a bad name.
	ErrSubmissionInvalid = errors.New("submission is not valid")
)

// NotTakenError says why a source was not taken. The source is where it was.
type NotTakenError struct {
	Code   attachment.Code
	Detail string
	Err    error
}

// Error gives the code and its cause or detail.
func (e *NotTakenError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("not taken: %s: %v", e.Code, e.Err)
	}
	return fmt.Sprintf("not taken: %s: %s", e.Code, e.Detail)
}

// Unwrap returns the cause.
func (e *NotTakenError) Unwrap() error { return e.Err }

func notTaken(code attachment.Code, detail string, err error) *NotTakenError {
	return &NotTakenError{Code: code, Detail: detail, Err: err}
}
