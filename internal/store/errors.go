package store

import (
	"errors"
	"fmt"
)

// Errors of opening a store and of its lock.
var (
	// ErrDamaged is returned when the file cannot be what a store left behind: by Open for an empty, cut or inconsistent
	// file, and by every later call once a fault shows in a file that is open. The text says what and where; the file is left
	// as it was found.
	ErrDamaged = errors.New("store file is damaged")
	// ErrOtherSchema is returned by Open when the file belongs to a schema of another name.
	ErrOtherSchema = errors.New("store file belongs to another schema")
	// ErrNewerSchema is returned by Open when the file was written by a later version of the schema.
	ErrNewerSchema = errors.New("store file was written by a newer version")
	// ErrLocked is returned by Open and LockDir while another process (or this one) holds the lock.
	ErrLocked = errors.New("in use")
)

// Errors of a store that is open.
var (
	// ErrNoSpace is returned by Update when the volume, the quota or the permitted file size is exhausted. The
	// transaction was rolled back and the store goes on: deletions still work, and so does everything once there is room.
	ErrNoSpace = errors.New("no space left for the store")
	// ErrFull is returned by Update, as one kind of ErrNoSpace, when the file would exceed Options.MaxSize: room on the
	// volume does not help, deletions do.
	ErrFull = errors.New("the store has reached its permitted size")
	// ErrUnknownOutcome is returned by an Update whose commit broke in a way that leaves open whether it will be there
	// after a restart, and by every later call: the store has failed closed and the process must end. A compaction whose
	// rename is not known to be durable has the same effect, except that no Update is concerned.
	ErrUnknownOutcome = errors.New("outcome of a commit is unknown")
	// ErrAborted is returned by an Update whose function ended its goroutine (runtime.Goexit, as t.FailNow does), and by
	// every later call. Nothing of that transaction was committed.
	ErrAborted = errors.New("update function ended the writer")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("store is closed")
	// ErrReadOnly is returned by a write inside View.
	ErrReadOnly = errors.New("transaction is read-only")
	// ErrTooLarge is returned by Bucket.Put for a key or value above MaxKey or MaxValue.
	ErrTooLarge = errors.New("key or value is too large")
	// ErrEmptyKey is returned by Bucket.Put for a key without bytes.
	ErrEmptyKey = errors.New("key is empty")
	// ErrBadValue is what a *BadValueError is, for errors.Is.
	ErrBadValue = errors.New("stored value is damaged")
	// ErrStop ends a Scan early; Scan then returns nil.
	ErrStop = errors.New("stop")
)

// BadValueError names one stored value whose checksum or content is wrong. It is that value's damage, not the store's:
// the key can be written again or deleted.
type BadValueError struct {
	Bucket string
	Key    []byte // a copy
	Reason string
}

// Error names bucket, key and reason.
func (e *BadValueError) Error() string {
	return fmt.Sprintf("stored value is damaged: bucket %s, key %q: %s", e.Bucket, e.Key, e.Reason)
}

// Is reports whether target is ErrBadValue.
func (e *BadValueError) Is(target error) bool { return target == ErrBadValue }
