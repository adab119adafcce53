package queue

import "errors"

// Errors of looking up and changing attachments.
var (
	// ErrNotFound is returned when no attachment has the ID asked for.
	ErrNotFound = errors.New("no such attachment")
	// ErrExists is returned by Adopt when the ID is in the queue already.
	ErrExists = errors.New("attachment exists already")
	// ErrStaleSession is returned by CommitOffset when the offset belongs to another session than the recorded one.
	ErrStaleSession = errors.New("offset of another session")
	// ErrOffset is returned by CommitOffset for an offset outside the payload or below the recorded one.
	ErrOffset = errors.New("offset is not possible")
)
