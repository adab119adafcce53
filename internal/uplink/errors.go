package uplink

import (
	"errors"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Errors of this package.
var (
	// ErrBadOptions is returned by New when an option cannot be used; the text names it.
	ErrBadOptions = errors.New("cannot deliver with these options")
	// ErrPayloadChanged is returned by a Payload, and in Deliver's error, when bytes are not the recorded ones.
	ErrPayloadChanged = errors.New("payload is not what was captured")
	// ErrPayloadMissing is returned by a Payload, and in Deliver's error, when there are no bytes.
	ErrPayloadMissing = errors.New("payload is missing")
	// ErrRecord is returned by Deliver when the Recorder could not make something durable; the Recorder's error is
	// wrapped too. It says nothing about the server or the item.
	ErrRecord = errors.New("delivery could not be recorded")
	// ErrAnswer is returned when the server's answer contradicts what was sent or said before.
	ErrAnswer = errors.New("answer does not fit")
)

// Held is the error of a Gate: sending must stop now. It is no failure.
type Held struct {
	Code   attachment.Code
	Detail string
}

// Error returns the code and the detail.
func (h *Held) Error() string {
	if h.Detail == "" {
		return "held: " + string(h.Code)
	}
	return "held: " + string(h.Code) + ": " + h.Detail
}

// HoldCode returns Code; remote.ClassOf knows a hold by this method.
func (h *Held) HoldCode() attachment.Code { return h.Code }
