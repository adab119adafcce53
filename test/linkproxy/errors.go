package linkproxy

import "errors"

var (
	// ErrNotLoopback is returned when New is asked to listen anywhere but on a loopback address.
	ErrNotLoopback = errors.New("listen address is not a loopback address")
	// ErrBadCommand is returned when a control line is not one of the commands that Control knows.
	ErrBadCommand = errors.New("bad control command")
	// ErrRefused is returned by Do when the proxy answered that it did not carry out the command.
	ErrRefused = errors.New("proxy refused the command")
)

// errCut ends a connection because the link is cut; it never leaves the package.
var errCut = errors.New("link is cut")
