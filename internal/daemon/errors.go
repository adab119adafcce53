package daemon

import "errors"

// Errors that end Run.
var (
	// ErrQueueFailed is returned when the outcome of a commit is unknown or the queue file shows damage while it is in
	// use: the process must end and start again.
	ErrQueueFailed = errors.New("the queue can no longer be trusted")
	// errRebind ends one assembly because the credential names another account than the one that is open.
	errRebind = errors.New("the credential names another account")
	// errStopping is the cause with which workers are stopped at shutdown, errStale when a worker shows no progress.
	errStopping = errors.New("the daemon is stopping")
	errStale    = errors.New("no progress for too long")
	errHeld     = errors.New("all sending was paused")
	// errYield is the cause with which a worker is stopped between two chunks when something more urgent waits.
	errYield = errors.New("stepped aside for a smaller or more urgent file")
)
