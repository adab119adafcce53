package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Errors of the way to the daemon. What the daemon itself refuses is a *control.Error.
var (
	// ErrNotRunning is returned when nobody answers at the socket.
	ErrNotRunning = errors.New("fieldgwd is not running")
	// ErrNotPermitted is returned when this user may not connect to the socket.
	ErrNotPermitted = errors.New("no permission for the control socket")
	// ErrNotSocket is returned when the path given for the socket names something else.
	ErrNotSocket = errors.New("not a socket")
	// ErrBadAnswer is returned when the answer is not what the control API says, or is too large.
	ErrBadAnswer = errors.New("the answer cannot be understood")
	// ErrFileChanged is returned by Submit when a file had more or fewer bytes than it was announced with.
	ErrFileChanged = errors.New("the file changed while it was read")
)

// dialError gives a failure to connect to a path its meaning. To what is no socket the kernel answers as to a socket that
// nobody listens at, so that the path is looked at.
func dialError(path string, err error) error {
	if info, statErr := os.Stat(path); statErr == nil && info.Mode().Type() != fs.ModeSocket {
		what := "a file"
		if info.IsDir() {
			what = "a directory"
		}
		return fmt.Errorf("%s is %s, %w", path, what, ErrNotSocket)
	}
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w: %w", ErrNotPermitted, err)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	return err
}
