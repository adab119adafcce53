package watch

import "time"

// limits bound what is kept in memory for one root. The counts are those of the whole watcher divided by its roots.
type limits struct {
	fresh  int // files that settle, wait for their turn or are with the taker
	held   int // files that wait for long: still open, empty, answered with Again
	listed int // paths that are only listed: temporary, special, unreadable, directories with a condition
	stays  int // files that stay in place and are known; up to 85 bytes each, with the map's own
	depth  int // directories below the root
	path   int // bytes of an absolute path
}

// The limits of a whole watcher.
const (
	maxFresh   = 100_000
	maxHeld    = 50_000
	maxListed  = 10_000
	maxStays   = 1 << 20
	maxWatches = 100_000
	maxDepth   = 64
	// maxPath is PATH_MAX without its final zero (limits.h): open(2) takes no more.
	maxPath = 4095
	// minShare is what a root gets of each count, however many roots there are.
	minShare = 1_000
)

func limitsFor(roots int) limits {
	share := func(n int) int { return max(minShare, n/max(1, roots)) }
	return limits{
		fresh: share(maxFresh), held: share(maxHeld), listed: share(maxListed), stays: share(maxStays),
		depth: maxDepth, path: maxPath,
	}
}

// announcedShare is the part of the room for fresh files that is kept for those that events announce: one in so many.
const announcedShare = 4

// Bounds of work and of waiting.
const (
	// handOver is how many candidates wait in the channel for the taker.
	handOver = 64
	// breath is how many entries a listing visits before everything else gets a turn.
	breath = 256
	// maxBreathing is how many listings may be under way, each within a breath of the one before.
	maxBreathing = 3
	// batch is how many files are probed before everything else gets a turn.
	batch = 64
	// pace is the least time between two scans of one directory; a scan that took longer than a fifth of the time since
	// the last one waits, so that a large and busy directory costs a bounded share of one processor.
	pace       = 100 * time.Millisecond
	paceFactor = 4
	// rescanFactor keeps a periodic rescan below a tenth of the time, however large the tree.
	rescanFactor = 9
	// quietWithoutLease is how long a file must be unchanged when nothing can tell whether it is open. To look for it among
	// the open files of all processes (/proc/PID/fd) is no substitute: those of other users may not be looked at, mappings
	// and other machines are not there, and it costs tens of milliseconds for each file.
	quietWithoutLease = 3 * time.Second
	// quietCoarse is how long a file must be unchanged where its times may stand still although it is written to: far more
	// than the 2 s of FAT.
	quietCoarse = 10 * time.Second
	// pollInterval is between two scans of a root on a filesystem that tells nothing, or not all, of what happens on it.
	pollInterval = 5 * time.Second
	// thoroughEvery is which of the periodic scans lists every directory, and does not pass over those whose change time
	// stands still: a file that is written in place changes no directory.
	thoroughEvery = 10
	// dirTimeDoubt is for how long after a change of a directory another one may leave its change time as it is: far more
	// than the steps of any clock in use, and than the full seconds of old ext4 volumes.
	dirTimeDoubt = 3 * time.Second
	// busyRetry is the longest wait before a file that was open is looked at again; closing it makes no event.
	busyRetry = 10 * time.Second
	// againRetry is the wait after an answer Again that names none; answers are not followed faster than againFloor.
	againRetry = 30 * time.Second
	againFloor = 100 * time.Millisecond

	defaultSettle     = 2 * time.Second
	defaultRescan     = 30 * time.Second
	defaultEmptyGrace = 10 * time.Minute
)
