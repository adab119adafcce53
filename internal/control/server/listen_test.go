package server

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func mustListen(t *testing.T, path, group string) net.Listener {
	t.Helper()
	l, err := Listen(path, group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// The socket ends with mode 0660 and the wanted group, in a directory that is made for the same group; closing removes it.
func TestListenRights(t *testing.T) {
	gid := os.Getgid()
	if os.Getuid() == 0 {
		gid = 65534 // a group that is not the process's own: it has to be set
	}
	path := filepath.Join(t.TempDir(), "run", "control.sock")
	l := mustListen(t, path, strconv.Itoa(gid))
	for name, want := range map[string]fs.FileMode{path: fs.ModeSocket | 0o660, filepath.Dir(path): fs.ModeDir | 0o750} {
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want || st.Gid != uint32(gid) {
			t.Errorf("%s: mode %v, group %d, want %v, %d", name, info.Mode(), st.Gid, want, gid)
		}
	}
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// Before the group is set nobody can connect: the bound socket does not listen, and its mode is the owner's alone although
// the umask would leave more.
func TestNobodyConnectsTooEarly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	file, err := bind(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if c, err := net.Dial("unix", path); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connected: %v, %v", c, err)
	}
}

// A dead process's socket is replaced; a living one's, and anything that is not a socket, is left alone.
func TestListenReplacesOnlyTheDead(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	file, err := bind(dead)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	mustListen(t, dead, "")
	if _, err := Listen(dead, ""); !errors.Is(err, ErrInUse) {
		t.Errorf("a living socket: %v", err)
	}
	if c, err := net.Dial("unix", dead); err != nil {
		t.Errorf("the living socket was harmed: %v", err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("evidence"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(plain, ""); !errors.Is(err, ErrNotSocket) {
		t.Errorf("a plain file: %v", err)
	}
	if data, err := os.ReadFile(plain); err != nil || string(data) != "evidence" {
		t.Errorf("the plain file was harmed: %q, %v", data, err)
	}
}

// A directory in which everybody could replace the socket is refused, unless it is sticky; an unknown group is refused.
func TestListenRefusals(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(dir, "s"), ""); !errors.Is(err, ErrUnsafeDirectory) {
		t.Errorf("open directory: %v", err)
	}
	if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	mustListen(t, filepath.Join(dir, "s"), "")
	if _, err := Listen(filepath.Join(t.TempDir(), "s"), "no-such-group-fieldgw"); err == nil {
		t.Error("an unknown group is accepted")
	}
}

// A daemon that stops late does not take away the socket that its successor made at the same path.
func TestCloseLeavesTheSuccessorsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old := mustListen(t, path, "")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustListen(t, path, "")
	if err := old.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the successor's socket is gone: %v", err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// The number of open connections is bounded, one that closes makes room, and closing twice makes no more.
func TestConnectionsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := mustListen(t, path, "")
	dial := func() {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	var open []net.Conn
	for range maxConnections {
		dial()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if free := l.(*listener).free; len(free) != cap(free) {
		t.Fatalf("%d of %d in use", len(free), cap(free))
	}
	dial()
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Close()
		}
		accepted <- err
	}()
	if err := open[0].Close(); err != nil {
		t.Fatal(err)
	}
	_ = open[0].Close() // a second time: reports that it is closed
	if err := receive(t, accepted); err != nil {
		t.Error(err)
	}
	for _, c := range open[1:] {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if free := l.(*listener).free; len(free) != 0 {
		t.Errorf("%d still in use", len(free))
	}
}
