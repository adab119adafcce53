package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// lockName is the file inside a directory that its lock is taken on. It is never renamed or removed.
const lockName = "lock"

// maxHolder bounds what is read about a holder, in bytes.
const maxHolder = 4096

// DirLock is the lock of a directory. bbolt's own lock is not enough: a file that was replaced by a rename can be opened
// twice.
type DirLock struct{ file *os.File }

// holder is what the lock file says. It is for people; the lock is flock's.
type holder struct {
	PID     int    `json:"pid"`
	Program string `json:"program"`
	BootID  string `json:"boot_id"`
}

// LockDir takes the lock of a directory, which must exist, before anything else in it is read, and leaves in its file who
// holds it: program is its name, and its command where it has several. The lock ends with Release or with the process, and is
// not inherited by programs that it starts. It does not wait for the lock: ErrLocked names the process that holds it.
func LockDir(fsys *durable.FS, dir, program string) (*DirLock, error) {
	path := filepath.Join(dir, lockName)
	if err := makeLockFile(fsys, dir, path); err != nil {
		return nil, fmt.Errorf("lock directory %s: %w", dir, err)
	}
	f, err := openForLock(path)
	if err != nil {
		return nil, fmt.Errorf("lock directory %s: %w", dir, err)
	}
	err = flock(f)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%w: held by %s", ErrLocked, describeHolder(fsys, path))
	} else if err == nil {
		err = writeHolder(fsys, f, program)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock directory %s: %w", dir, err), f.Close())
	}
	return &DirLock{file: f}, nil
}

// makeLockFile sees to it that the file exists and will after a crash, so that all lock one inode.
func makeLockFile(fsys *durable.FS, dir, path string) error {
	f, err := fsys.Create(path, 0o600)
	if durable.IsExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

func writeHolder(fsys *durable.FS, f *os.File, program string) error {
	h := holder{PID: os.Getpid(), Program: program}
	if id, err := fsys.ReadFile("/proc/sys/kernel/random/boot_id", maxHolder); err == nil {
		h.BootID = string(bytes.TrimSpace(id))
	}
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(data, '\n'), 0)
	return err
}

// nameWait bounds how long a refusal waits for the holder's name: a holder that came a moment ago has not written it yet, and
// what stands there until then is nothing, or the name of one that was killed.
const nameWait = 500 * time.Millisecond

// describeHolder says in words who holds the lock, as far as the file and /proc tell.
func describeHolder(fsys *durable.FS, path string) string {
	for began := time.Now(); ; time.Sleep(lockPoll) {
		text, seen := readHolder(fsys, path)
		if seen || time.Since(began) >= nameWait {
			return text
		}
	}
}

// readHolder is describeHolder at one moment; seen says that the process that is named exists.
func readHolder(fsys *durable.FS, path string) (text string, seen bool) {
	data, err := fsys.ReadFile(path, maxHolder)
	var h holder
	if err != nil || json.Unmarshal(data, &h) != nil || h.PID <= 0 {
		return "another process", false
	}
	text = fmt.Sprintf("%s, pid %d", h.Program, h.PID)
	comm, err := fsys.ReadFile("/proc/"+strconv.Itoa(h.PID)+"/comm", maxHolder)
	if err != nil {
		return text + " (not visible from here)", false
	}
	// The kernel keeps 15 bytes of a program's name (proc_pid_comm(5)), and nothing of its command.
	program, _, _ := strings.Cut(h.Program, " ")
	if name := string(bytes.TrimSpace(comm)); name != program[:min(len(program), 15)] {
		return fmt.Sprintf("%s, running as %q", text, name), true
	}
	return text, true
}

// Release gives the lock up. The file stays, and names nobody.
func (l *DirLock) Release() error {
	if err := errors.Join(l.file.Truncate(0), l.file.Close()); err != nil {
		return fmt.Errorf("release %s: %w", l.file.Name(), err)
	}
	return nil
}
