package spool

import "errors"

// Errors of reading payloads.
var (
	// ErrMissing is returned when a payload is neither in the spool nor among the delivered copies.
	ErrMissing = errors.New("payload is missing")
	// ErrChanged is returned when a payload's length or a segment's digest is not the recorded one.
	ErrChanged = errors.New("payload has changed")
)
