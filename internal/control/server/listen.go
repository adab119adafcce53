package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

const (
	// maxConnections bounds the open connections; further ones wait in the kernel's queue.
	maxConnections = 128

	modeSocket    fs.FileMode = 0o660
	modeDirectory fs.FileMode = 0o750

	// probeTimeout bounds the question whether somebody answers at an existing socket.
	probeTimeout = time.Second
)

// Listen makes the socket at path, usable by its owner and by group (a name or a number; empty keeps the process's own
// group). A missing directory is made, open to the same group. A socket that nobody answers at is replaced. Until the
// group is set only the owner can connect. Errors wrap ErrInUse, ErrNotSocket or ErrUnsafeDirectory, or are the kernel's.
// Closing the listener removes the socket.
func Listen(path, group string) (net.Listener, error) {
	l, err := listen(path, group)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return l, nil
}

func listen(path, group string) (net.Listener, error) {
	gid, err := lookupGroup(group)
	if err != nil {
		return nil, err
	}
	if err := prepareDirectory(filepath.Dir(path), gid); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	return open(path, gid)
}

// lookupGroup returns the group's number, or -1 for "keep the process's own".
func lookupGroup(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if gid, err := strconv.Atoi(group); err == nil && gid >= 0 {
		return gid, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}

func prepareDirectory(dir string, gid int) error {
	info, err := os.Stat(dir)
	switch {
	case durable.IsNotExist(err):
		if err := durable.OS().MkdirAll(dir, modeDirectory); err != nil {
			return err
		}
		return admit(dir, gid, modeDirectory)
	case err != nil:
		return err
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("%s: %w", dir, ErrUnsafeDirectory)
	}
	return nil
}

// admit gives path to the group and then sets the mode. The group is set only where it differs: the service may be
// forbidden to change owners, and inside its own RuntimeDirectory= it has no need to.
func admit(path string, gid int, mode fs.FileMode) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	if gid >= 0 && st.Gid != uint32(gid) {
		if err := os.Lchown(path, -1, gid); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}

// removeStale makes room at path. The socket of a dead process refuses connections; whatever else answers is left alone.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case durable.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return ErrNotSocket
	}
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	if err == nil {
		return errors.Join(ErrInUse, conn.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return durable.OS().Remove(path)
}

// open makes the socket and admits the group before it listens: until then connecting is refused.
func open(path string, gid int) (net.Listener, error) {
	file, err := bind(path)
	if err != nil {
		return nil, err
	}
	l, err := admitAndListen(file, path, gid)
	if err != nil {
		return nil, errors.Join(err, file.Close(), durable.OS().Remove(path))
	}
	if err := file.Close(); err != nil { // the listener has a descriptor of its own
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// bind makes a socket of mode 0600 that does not listen. The mode is there from the start, whatever the umask: on Linux a
// bound socket has the mode of the unbound one (the kernel's unix_bind_bsd). The umask itself belongs to the whole process
// and cannot be changed for a moment.
func bind(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), path)
	err = unix.Fchmod(fd, 0o600)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bind: %w", err), file.Close())
	}
	return file, nil
}

func admitAndListen(file *os.File, path string, gid int) (net.Listener, error) {
	if err := admit(path, gid, modeSocket); err != nil {
		return nil, err
	}
	own, err := inode(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(int(file.Fd()), maxConnections); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is not a unix listener", l), l.Close())
	}
	return &listener{
		UnixListener: ul, path: path, inode: own,
		free: make(chan struct{}, maxConnections), closed: make(chan struct{}),
	}, nil
}

func inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return st.Ino, nil
}

// listener bounds the number of connections and removes its socket when it closes.
type listener struct {
	*net.UnixListener
	path   string
	inode  uint64
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
	err    error
}

// Accept waits for a connection while fewer than maxConnections are open.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.AcceptUnix()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &conn{UnixConn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close stops accepting and removes the socket, unless another process has put its own there meanwhile.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		if now, err := inode(l.path); err == nil && now == l.inode {
			l.err = durable.OS().Remove(l.path)
		}
		l.err = errors.Join(l.err, l.UnixListener.Close())
	})
	return l.err
}

// conn is a counted connection.
type conn struct {
	*net.UnixConn
	release func()
}

// Close closes the connection and makes room for another.
func (c *conn) Close() error {
	defer c.release()
	return c.UnixConn.Close()
}
