package store

import "errors"

// Errors of the contract. An implementation wraps them, so that callers use errors.Is.
var (
	// ErrNotFound is returned when the account has no such row; another account's row is not found either.
	ErrNotFound = errors.New("not found")
	// ErrConflict is returned by Reserve when the ID is known with another length, digest or role.
	ErrConflict = errors.New("attachment is known with another length, digest or role")
	// ErrGone is returned for a session that is void: its bytes are lost or were not the declared ones.
	ErrGone = errors.New("upload session is gone")
	// ErrDigest is returned by operations on an attachment whose stored bytes were not the declared ones and that was
	// not reserved again since.
	ErrDigest = errors.New("stored bytes are not the declared ones")
	// ErrOffset is returned by Advance when the session's offset is not the one that the caller started from.
	ErrOffset = errors.New("offset is not the confirmed one")
	// ErrNotVerified is returned by Register, and by Verify below the full length, while bytes are missing or unverified.
	ErrNotVerified = errors.New("attachment is not verified")
	// ErrState is returned when the attachment is past the state that the operation starts from.
	ErrState = errors.New("not possible in this state")
	// ErrParent is returned by Register when the attachment is registered with another parent.
	ErrParent = errors.New("attachment is registered with another parent")
	// ErrTooManySessions is returned by Reserve when the account has its largest number of open sessions.
	ErrTooManySessions = errors.New("account has too many open upload sessions")
	// ErrFull is returned when there is no room for the bytes or for the record.
	ErrFull = errors.New("no space left for this")
	// ErrExists is returned by CreateToken when the token is there already.
	ErrExists = errors.New("exists already")
	// ErrDamaged is returned for a row that cannot be read. The other rows are not affected.
	ErrDamaged = errors.New("record is damaged")
	// ErrLost is returned by Files when a data file is missing or shorter than its confirmed offset.
	ErrLost = errors.New("stored bytes are missing")
)
