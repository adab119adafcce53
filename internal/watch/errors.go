package watch

import "errors"

// Errors of this package.
var (
	// ErrOptions is returned by New when a root or an interval makes no sense; the text names all that do not.
	ErrOptions = errors.New("watch options")
	// ErrRunning is returned by Run when it was called before.
	ErrRunning = errors.New("watcher was started before")
	// ErrOverflow is sent by an EventSource when it lost events: everything has to be looked at again.
	ErrOverflow = errors.New("events were lost")
)

// Errors that do not leave the package.
var (
	// errNoSource is returned by registry.add when no events can be had at all.
	errNoSource = errors.New("no source of events")
	// errWatchLimit is returned by registry.add when this package's own limit is reached.
	errWatchLimit = errors.New("limit of watched directories")
	// errNoMarker is returned by tree.checkMarker when the marker is not there.
	errNoMarker = errors.New("the marker is missing")
	// errGone ends the listing of a directory that another scan found replaced or removed.
	errGone = errors.New("directory is gone")
)
