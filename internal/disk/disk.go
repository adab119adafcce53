// Package disk is the sensor for free space: how much a service without privileges can still write to one file system.
// It promises an answer within a deadline, whatever state the mount is in; what it could not find out in that time is
// unknown, which is a value like any other. It decides nothing: thresholds are policy.
//
// Beside it stands MediumOf, which tells cards and file systems apart.
//
// Read Sensor first.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v3/disk"
)

const (
	// DefaultDeadline is how long a reading may take.
	DefaultDeadline = 2 * time.Second

	source         = "statfs"
	maxInterrupted = 3 // tries of a call that a signal interrupted, as FUSE allows
)

// Reading is what one look at a file system showed.
type Reading struct {
	Known      bool   // false: nothing but Source, Path, Err and At means anything
	Source     string // where the figures come from
	Path       string // path that was asked about
	FreeBytes  uint64 // what a writer without privileges can use (f_bavail of statfs(2))
	TotalBytes uint64 // size of the file system; more than free and used together, where root has a reserve
	FSType     string // type as the kernel names it, such as ext4; empty when not known

	// Inodes. Both are 0 when the file system does not count them (vfat, exfat, btrfs): that is no shortage.
	InodesFree  uint64
	InodesTotal uint64

	Err string    // why the reading is unknown
	At  time.Time // when it was taken
}

// Options are the choices of New.
type Options struct {
	// Deadline is how long Read waits; 0 means DefaultDeadline.
	Deadline time.Duration

	// Usage asks the system; nil means gopsutil's disk.Usage. It may block for ever.
	Usage func(path string) (*disk.UsageStat, error)
}

// Sensor reads one path. Its methods may be called from several goroutines.
type Sensor struct {
	path     string
	deadline time.Duration
	usage    func(path string) (*disk.UsageStat, error)

	mu      sync.Mutex
	pending *call // the one call that has not returned yet
}

// call is one question to the system. done is closed when reading is set.
type call struct {
	done    chan struct{}
	reading Reading
}

// New returns a sensor for the file system that holds path. It asks nothing yet.
func New(path string, o Options) *Sensor {
	s := &Sensor{path: path, deadline: o.Deadline, usage: o.Usage}
	if s.deadline <= 0 {
		s.deadline = DefaultDeadline
	}
	if s.usage == nil {
		s.usage = disk.Usage
	}
	return s
}

// Read returns a fresh reading, or an unknown one when ctx ends, the deadline passes or the system refuses.
//
// On a dead network or USB mount statfs(2) blocks and cannot be cancelled. The call then stays behind in a goroutine
// of its own; until it returns, further Reads ask nothing new but wait, each up to its deadline, for that call, and
// take its answer when it comes. So there is never more than one such goroutine for each sensor.
func (s *Sensor) Read(ctx context.Context) Reading {
	c := s.ask()
	timer := time.NewTimer(s.deadline)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.reading
	case <-timer.C:
		return s.unknown(fmt.Errorf("no answer within %s: the file system does not respond", s.deadline))
	case <-ctx.Done():
		return s.unknown(ctx.Err())
	}
}

// ask returns the call in flight, or starts one.
func (s *Sensor) ask() *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		return s.pending
	}
	c := &call{done: make(chan struct{})}
	s.pending = c
	go func() {
		c.reading = s.read()
		s.mu.Lock()
		s.pending = nil
		s.mu.Unlock()
		close(c.done)
	}()
	return c
}

func (s *Sensor) unknown(err error) Reading {
	return Reading{Source: source, Path: s.path, Err: err.Error(), At: time.Now()}
}

// read asks the system and may block for ever.
func (s *Sensor) read() Reading {
	var stat *disk.UsageStat
	err := error(syscall.EINTR)
	for range maxInterrupted {
		if stat, err = s.usage(s.path); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case err != nil:
		return s.unknown(fmt.Errorf("ask for free space: %w", err))
	case stat.Total == 0:
		// Some FUSE file systems answer with zeros. Taken at their word they would be full for ever.
		return s.unknown(errors.New("the file system does not tell its size"))
	}
	r := Reading{
		Known: true, Source: source, Path: s.path, At: time.Now(),
		FreeBytes: stat.Free, TotalBytes: stat.Total, FSType: fsTypeOf(s.path),
		InodesFree: stat.InodesFree, InodesTotal: stat.InodesTotal,
	}
	if r.InodesFree > r.InodesTotal { // ntfs-3g: free ones are made up
		r.InodesFree, r.InodesTotal = 0, 0
	}
	if r.FSType == "" {
		r.FSType = stat.Fstype // from the magic number: one name for ext2, ext3 and ext4, none for others
	}
	return r
}

// fsTypeOf returns the kernel's name for the file system that holds path, or "" when it cannot be found.
func fsTypeOf(path string) string {
	full, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	if full, err = filepath.Abs(full); err != nil {
		return ""
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	fsType := mountType(mounts, full)
	if err := mounts.Close(); err != nil {
		return ""
	}
	return fsType
}
