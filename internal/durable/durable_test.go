package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func readBack(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// WriteFile leaves the old content or the new one, whole, wherever it is stopped, and no temporary file on failure.
func TestWriteFileIsAllOrNothing(t *testing.T) {
	for n := 0; ; n++ {
		dir := t.TempDir()
		path := filepath.Join(dir, "state")
		if err := OS().WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		count, hit := 0, Op("")
		fsys := Hooked(func(c Call) error {
			defer func() { count++ }()
			if count == n {
				hit = c.Op
				return unix.EIO
			}
			return nil
		})
		err := fsys.WriteFile(path, []byte("new content"), 0o600)
		if hit == "" {
			if err != nil || n < 6 {
				t.Fatalf("after %d operations: %v", n, err)
			}
			return
		}
		if err == nil || !errors.Is(err, unix.EIO) {
			t.Fatalf("operation %d (%s) failed and WriteFile said %v", n, hit, err)
		}
		if got := readBack(t, path); got != "old" && (got != "new content" || hit != OpSyncDir) {
			t.Fatalf("operation %d (%s): content %q", n, hit, got)
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if IsTemp(e.Name()) {
				t.Errorf("operation %d (%s): left %s", n, hit, e.Name())
			}
		}
	}
}

// A full disk in mid-write is told as one, and the part that was written does not stay.
func TestShortWriteIsNoSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	fsys := Hooked(func(c Call) error {
		if c.Op == OpWrite {
			return &ShortWrite{N: 3, Err: unix.ENOSPC}
		}
		return nil
	})
	err := fsys.WriteFile(path, []byte("abcdef"), 0o600)
	if !IsNoSpace(err) {
		t.Fatalf("got %v, want a full disk", err)
	}
	if ok, _ := OS().Exists(path); ok {
		t.Error("half a file stands under the final name")
	}
}

// After one failed fsync the file never claims to be durable again.
func TestFailedSyncIsFinal(t *testing.T) {
	fail := true
	fsys := Hooked(func(c Call) error {
		if c.Op == OpSync && fail {
			return unix.EIO
		}
		return nil
	})
	f, err := fsys.Create(filepath.Join(t.TempDir(), "f"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); !errors.Is(err, unix.EIO) {
		t.Fatalf("first: %v", err)
	}
	fail = false
	if err := f.Sync(); !errors.Is(err, unix.EIO) {
		t.Fatalf("second sync after a failed one: %v", err)
	}
}

// RenameNew never replaces, also without RENAME_NOREPLACE in the kernel.
func TestRenameNewKeepsTarget(t *testing.T) {
	for name, rename := range map[string]func(a, b string) error{"renameat2": OS().RenameNew, "link": renameByLink} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
			for _, p := range []string{a, b} {
				if err := os.WriteFile(p, []byte(p), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := rename(a, b); !IsExist(err) {
				t.Fatalf("got %v, want exists", err)
			}
			if readBack(t, a) != a || readBack(t, b) != b {
				t.Fatal("content moved although the rename was refused")
			}
			if err := rename(a, c); err != nil || readBack(t, c) != a {
				t.Fatalf("rename to a free name: %v", err)
			}
		})
	}
}

// What is not a regular file is refused without waiting, a symbolic link included.
func TestOpenReadRefusesOddFiles(t *testing.T) {
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/hostname", link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{fifo, link, dir} {
		if _, err := OS().OpenRead(p); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: got %v", p, err)
		}
	}
}

// A lease is refused while a writer has the file open, and turns to not held when one comes.
func TestLeaseSeesWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	writer, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := OS().OpenRead(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Lease(); errors.Is(err, ErrNoLease) {
		t.Skipf("not run: no leases on this filesystem: %v", err)
	} else if !errors.Is(err, ErrBusy) {
		t.Fatalf("with an open writer: %v", err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	lease, err := f.Lease()
	if err != nil {
		t.Fatal(err)
	}
	if !lease.Held() {
		t.Fatal("fresh lease is not held")
	}
	if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("writer got in: fd %d, %v", fd, err)
	}
	if lease.Held() {
		t.Error("a writer waits and the lease still says held")
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
}

// MkdirAll and List work on deep and large trees.
func TestMkdirAllAndList(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "c")
	var synced []string
	fsys := Hooked(func(c Call) error {
		if c.Op == OpSyncDir {
			synced = append(synced, strings.TrimPrefix(c.Path, root))
		}
		return nil
	})
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(synced, ","); got != ",/a,/a/b" {
		t.Errorf("parents synced: %q", got)
	}
	for i := range listPage + 10 {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i%26))+strings.Repeat("x", i)[:min(i, 200)]+string(rune('a'+i/200))), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, _ := os.ReadDir(dir)
	n := 0
	if err := OS().List(dir, func(fs.DirEntry) error { n++; return nil }); err != nil || n != len(want) {
		t.Errorf("listed %d of %d: %v", n, len(want), err)
	}
}

// ReadFile refuses what is larger than allowed.
func TestReadFileLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := OS().WriteNew(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := OS().WriteNew(path, []byte("x"), 0o600); !IsExist(err) {
		t.Errorf("WriteNew over an existing file: %v", err)
	}
	if _, err := OS().ReadFile(path, 4); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if data, err := OS().ReadFile(path, 5); err != nil || string(data) != "12345" {
		t.Errorf("got %q, %v", data, err)
	}
}

// ClearTemps removes the leftovers of a crash and nothing else.
func TestClearTemps(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".state" + tempMark + "00ff", ".hidden", "state"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := OS().ClearTemps(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%d files left, %v", len(left), err)
	}
}
