//go:build killpoints

package durable

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A build with the tag killpoints counts every operation of the process, whichever FS it passes, and can kill itself at
// one of them. Commands are built so by test/killsweep alone. The environment says where; one kill at most is done:
//
//	FIELDGW_KILL_AT=n          SIGKILL right before operation n, the first being 1
//	FIELDGW_KILL_AFTER=n       SIGKILL right after operation n
//	FIELDGW_KILL_POINT=name:k  SIGKILL the k-th time that a named point is passed; without :k the first time
//	FIELDGW_COUNT_FILE=path    a line "n operation path" is appended for each operation, a line "point name k" for each
//	                           named point, and a last line "kill n operation path" before the kill
const (
	envKillAt    = "FIELDGW_KILL_AT"
	envKillAfter = "FIELDGW_KILL_AFTER"
	envKillPoint = "FIELDGW_KILL_POINT"
	envCountFile = "FIELDGW_COUNT_FILE"
)

// OpCommit is a commit of a database, which the kill sweep counts among the operations.
const OpCommit Op = "commit"

// CountCommit does a commit of the database at path as a counted operation. The kill sweep builds internal/store with
// it; nothing else calls it.
func CountCommit(path string, commit func() error) error {
	p := enter(OpCommit, path)
	err := commit()
	p.leave()
	return err
}

// passage is one operation under way.
type passage struct {
	n    int
	op   Op
	path string
}

// counter is the count of the process. The lock is held while the process dies, so that no other goroutine begins an
// operation meanwhile.
var counter = newKillCounter()

type killCounter struct {
	mu        sync.Mutex
	n         int
	at, after int
	point     string
	pointTime int
	points    killPoints
	passed    map[string]int
	file      *os.File
}

func newKillCounter() *killCounter {
	c := &killCounter{
		at: envNumber(envKillAt, os.Getenv(envKillAt)), after: envNumber(envKillAfter, os.Getenv(envKillAfter)),
		points: newKillPoints(), passed: map[string]int{},
	}
	if spec := os.Getenv(envKillPoint); spec != "" {
		name, times, found := strings.Cut(spec, ":")
		c.point, c.pointTime = name, 1
		if found {
			c.pointTime = envNumber(envKillPoint, times)
		}
		if !knownKillPoint(name) {
			refuseEnv("%s=%s: no such point", envKillPoint, spec)
		}
	}
	if path := os.Getenv(envCountFile); path != "" {
		var err error
		if c.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			refuseEnv("%s: %v", envCountFile, err)
		}
	}
	return c
}

func envNumber(name, text string) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		refuseEnv("%s=%s: want a number from 1", name, text)
	}
	return n
}

// refuseEnv ends a process that was told to die at a place that cannot be: a sweep must not take it for one that
// survived.
func refuseEnv(format string, args ...any) {
	// There is nobody to tell when not even this can be written; the exit code stays.
	_, _ = unix.Write(2, fmt.Appendf(nil, "killpoints: "+format+"\n", args...))
	os.Exit(2)
}

func enter(op Op, path string) passage {
	c := counter
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	p := passage{n: c.n, op: op, path: path}
	c.say("%d %s %s", p.n, op, path)
	if c.at == p.n {
		c.die(p)
	}
	c.pass(p, c.points.before(op, path))
	return p
}

func (p passage) leave() {
	c := counter
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.after == p.n {
		c.die(p)
	}
	c.pass(p, c.points.after(p.op, p.path))
}

// pass counts a named point, "" for none.
func (c *killCounter) pass(p passage, point string) {
	if point == "" {
		return
	}
	c.passed[point]++
	c.say("point %s %d", point, c.passed[point])
	if c.point == point && c.pointTime == c.passed[point] {
		c.die(p)
	}
}

func (c *killCounter) say(format string, args ...any) {
	if c.file == nil {
		return
	}
	if _, err := c.file.Write(fmt.Appendf(nil, format+"\n", args...)); err != nil {
		refuseEnv("%s: %v", envCountFile, err)
	}
}

// die kills the process as a power switch would: no deferred function, no handler, no flush. It does not return.
func (c *killCounter) die(p passage) {
	c.say("kill %d %s %s", p.n, p.op, p.path)
	if err := unix.Kill(unix.Getpid(), unix.SIGKILL); err != nil {
		refuseEnv("kill: %v", err)
	}
	select {}
}
