package attachment

import (
	"errors"
	"fmt"
)

// Errors of this package.
var (
	// ErrBadID is returned when a text is not the canonical form of a UUID version 7.
	ErrBadID = errors.New("not an attachment ID")
	// ErrTransition is returned by Next for an event that is not possible in a state.
	ErrTransition = errors.New("not possible in this state")
	// ErrBadManifest is returned when a manifest cannot be decoded: damaged, of a newer version, or against its own rules.
	ErrBadManifest = errors.New("manifest cannot be read")
)

// TransitionError says which event was refused in which state. It wraps ErrTransition.
type TransitionError struct {
	From  State
	Event Event
}

// Error names event and state.
func (e *TransitionError) Error() string {
	return fmt.Sprintf("%s in state %s: %v", e.Event, e.From.orAbsent(), ErrTransition)
}

// Unwrap returns ErrTransition.
func (e *TransitionError) Unwrap() error { return ErrTransition }
