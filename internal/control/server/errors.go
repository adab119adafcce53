package server

import "errors"

// Errors of Listen.
var (
	// ErrInUse is returned when another process answers at the socket, or may do so.
	ErrInUse = errors.New("another daemon uses the control socket")
	// ErrNotSocket is returned when something else than a socket is at the path; it is left alone.
	ErrNotSocket = errors.New("not a socket")
	// ErrUnsafeDirectory is returned when every user could replace the socket in its directory.
	ErrUnsafeDirectory = errors.New("the directory can be written by everybody")
)
