package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/logging"
)

// mountTable tells where filesystems are mounted, and when that changes. A mount that goes away takes its watches with it
// without an event, and one that comes hides the directory that is watched.
type mountTable interface {
	// Points returns the mount points, each with what is mounted there in words that differ for every mount.
	Points() (map[string]string, error)
	// Wait returns when the table may have changed since the last Points.
	Wait(ctx context.Context) error
	Close() error
}

// maxMountTable bounds how much of the mount table is read; container hosts have thousands of lines.
const maxMountTable = 16 << 20

// kernelMounts is /proc/self/mountinfo (proc_pid_mountinfo(5)).
type kernelMounts struct{ file *os.File }

func openMounts() (mountTable, error) {
	const path = "/proc/self/mountinfo"
	// os.Open would enter it into the runtime's poller. Whoever polls first takes the one notice of a change, and Wait would
	// miss what the runtime took.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &kernelMounts{os.NewFile(uintptr(fd), path)}, nil
}

// Points implements mountTable.
func (m *kernelMounts) Points() (map[string]string, error) {
	if _, err := m.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(m.file, maxMountTable))
	if err != nil {
		return nil, err
	}
	return parseMounts(string(text)), nil
}

// unescapeMount undoes the escapes that the kernel writes for what would break a line or a field.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

// parseMounts reads lines of the form "36 35 98:0 /root /point options … - type source options". Several mounts on one
// point are one entry that names them all, since either of them coming or going is a change.
func parseMounts(text string) map[string]string {
	points := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if fields := strings.SplitN(line, " ", 6); len(fields) == 6 {
			points[unescapeMount.Replace(fields[4])] += strings.Join(fields[:4], " ") + ";"
		}
	}
	return points
}

// Wait implements mountTable: the kernel raises an exceptional condition on the open table once after each change.
func (m *kernelMounts) Wait(ctx context.Context) error {
	stop, cancel, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = stop.Close() }()
	// Whoever closes the writing end first wakes poll, or finds nobody waiting: both are fine.
	detach := context.AfterFunc(ctx, func() { _ = cancel.Close() })
	defer func() {
		if detach() {
			_ = cancel.Close()
		}
	}()
	fds := []unix.PollFd{{Fd: int32(m.file.Fd()), Events: unix.POLLPRI | unix.POLLERR}, {Fd: int32(stop.Fd())}}
	for {
		switch _, err := unix.Poll(fds, -1); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("poll the mount table: %w", err)
		default:
			return ctx.Err()
		}
	}
}

// Close implements mountTable.
func (m *kernelMounts) Close() error { return m.file.Close() }

// mounted reads the mount table for the first time: before anything is scanned, so that no change falls in between. Without
// a table the periodic scan finds the same as it would, only later.
func (w *Watcher) mounted() (mountTable, map[string]string) {
	if w.mounts == nil {
		return nil, nil
	}
	var points map[string]string
	table, err := w.mounts()
	if err == nil {
		if points, err = table.Points(); err != nil {
			err = errors.Join(err, table.Close())
		}
	}
	if err != nil {
		w.opts.Logger.Warn("mounts are not followed, their changes are found by the periodic scan", slog.Any(logging.KeyErr, err))
		return nil, nil
	}
	return table, points
}

// followMounts has the roots scanned that a change of mounts concerns.
func (w *Watcher) followMounts(ctx context.Context, table mountTable, before map[string]string) {
	var err error
	for err == nil && ctx.Err() == nil {
		if err = table.Wait(ctx); err != nil {
			break
		}
		var now map[string]string
		if now, err = table.Points(); err != nil {
			break
		}
		w.compareMounts(before, now)
		before = now
		// A host that mounts all the time costs a bounded number of readings.
		rest := time.NewTimer(pace)
		select {
		case <-ctx.Done():
		case <-rest.C:
		}
		rest.Stop()
	}
	if err := errors.Join(err, table.Close()); err != nil && ctx.Err() == nil {
		w.opts.Logger.Warn("mounts are not followed any more, their changes are found by the periodic scan", slog.Any(logging.KeyErr, err))
	}
}

// compareMounts tells every root of the mount points that changed on the way to it or below it.
func (w *Watcher) compareMounts(before, now map[string]string) {
	changed := map[string]bool{}
	for point, what := range now {
		if before[point] != what {
			changed[point] = true
		}
	}
	for point := range before {
		if now[point] == "" {
			changed[point] = true
		}
	}
	for point := range changed {
		for _, t := range w.trees {
			if _, over := below(point, t.root.Path); over {
				t.remounted()
			} else if _, inside := below(t.root.Path, point); inside {
				t.wantWalk()
			}
		}
	}
}
