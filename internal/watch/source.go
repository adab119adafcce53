package watch

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Event says that something happened to Path, which is an entry of a watched directory or such a directory itself. What
// happened is not told: the directory is looked at.
type Event struct{ Path string }

// EventSource tells when something happens in directories. It is allowed to miss things, never to block for long in Add
// or Remove while nobody reads its channels.
type EventSource interface {
	// Add watches one directory, not what lies below it. Adding a directory that is watched already is cheap and makes
	// sure that the watch is alive. Errors are those of inotify_add_watch(2).
	Add(dir string) error
	// Remove ends a watch; one that does not exist is no error.
	Remove(dir string) error
	// Events is closed by Close, or earlier when the source has failed for good.
	Events() <-chan Event
	// Errors carries ErrOverflow, and errors after which the source may have missed something.
	Errors() <-chan error
	// Close ends all watches and closes both channels.
	Close() error
}

// noEvents words why a directory gives no events, for a person. Two of the kernel's limits answer with errors that read
// like a full disk or too many open files; they are named as what they are.
func noEvents(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return "the kernel's limit of watches is reached: raise the sysctl fs.inotify.max_user_watches"
	case errors.Is(err, unix.EMFILE):
		return "the kernel's limit of inotify instances is reached: raise the sysctl fs.inotify.max_user_instances"
	case errors.Is(err, errWatchLimit):
		return fmt.Sprintf("fieldgw watches at most %d directories", maxWatches)
	}
	return cause(err)
}
