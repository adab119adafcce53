package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Op names an operation that a Hook sees.
type Op string

// The operations, named after the system call that does the work.
const (
	OpOpen     Op = "open"
	OpCreate   Op = "create"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "fsync"
	OpSyncDir  Op = "fsyncdir"
	OpClose    Op = "close"
	OpRename   Op = "rename"
	OpRemove   Op = "unlink"
	OpMkdir    Op = "mkdir"
)

// Call describes one operation about to be done.
type Call struct {
	Op   Op
	Path string
	// Bytes is the length of a write; 0 for everything else.
	Bytes int
}

// Hook is asked before each operation. A non-nil error is returned to the caller in place of doing the operation, except
// that a ShortWrite first lets a part of a write through.
type Hook func(Call) error

// ShortWrite is a Hook's answer that lets N bytes of a write reach the file and then fails with Err.
type ShortWrite struct {
	N   int
	Err error
}

// Error says how far the write came and what stopped it.
func (s *ShortWrite) Error() string { return fmt.Sprintf("short write after %d bytes: %v", s.N, s.Err) }

// Unwrap returns the error that the writer sees.
func (s *ShortWrite) Unwrap() error { return s.Err }

// FS does file operations. It holds no state but its hook and may be used by any number of goroutines.
type FS struct{ hook Hook }

// OS returns an FS without a hook: the one that programs use.
func OS() *FS { return &FS{} }

// Hooked returns an FS that asks h before every operation.
func Hooked(h Hook) *FS { return &FS{hook: h} }

// begin stands in front of every operation; the caller ends the passage right after the operation, whatever came of it.
func (f *FS) begin(op Op, path string, n int) (passage, error) {
	p := enter(op, path)
	if f.hook == nil {
		return p, nil
	}
	if err := f.hook(Call{Op: op, Path: path, Bytes: n}); err != nil {
		return p, fmt.Errorf("%s %s: %w", op, path, err)
	}
	return p, nil
}

// OpenRead opens a regular file for reading without following a symbolic link in the last element and without waiting
// for a FIFO's writer (open(2): O_NOFOLLOW, O_NONBLOCK). Errors: ErrNotRegular, or those of open(2); a symbolic link is
// ErrNotRegular too.
func (f *FS) OpenRead(path string) (*File, error) {
	return f.open(OpOpen, path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// OpenWrite opens an existing regular file for reading and writing.
func (f *FS) OpenWrite(path string) (*File, error) {
	return f.open(OpOpen, path, os.O_RDWR|unix.O_NOFOLLOW, 0)
}

// Create makes a new file (O_EXCL) open for reading and writing. The name is not durable before SyncDir.
func (f *FS) Create(path string, perm fs.FileMode) (*File, error) {
	return f.open(OpCreate, path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, perm)
}

func (f *FS) open(op Op, path string, flag int, perm fs.FileMode) (*File, error) {
	p, err := f.begin(op, path, 0)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, flag, perm)
	p.leave()
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("open %s: %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w", path, ErrNotRegular)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &File{file: file, fs: f}, nil
}

// Rename renames a path, replacing what stands at the target. Durable after SyncDir of both directories.
func (f *FS) Rename(from, to string) error {
	p, err := f.begin(OpRename, to, 0)
	if err != nil {
		return err
	}
	err = os.Rename(from, to)
	p.leave()
	return err
}

// RenameNew renames a path and fails with an error that IsExist accepts when the target exists (renameat2(2),
// RENAME_NOREPLACE). Filesystems without that flag (FUSE) get link and unlink, or, where links are missing too, a
// check and a rename: names inside the spool are unique, so the gap between the two is ours alone.
// Durable after SyncDir of both directories.
func (f *FS) RenameNew(from, to string) error {
	p, err := f.begin(OpRename, to, 0)
	if err != nil {
		return err
	}
	err = renameNew(from, to)
	p.leave()
	return err
}

func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return renameByLink(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

func renameByLink(from, to string) error {
	err := os.Link(from, to)
	if err == nil {
		return os.Remove(from)
	}
	if IsExist(err) || IsCrossDevice(err) || IsNotExist(err) {
		return err
	}
	if _, serr := os.Lstat(to); serr == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
	}
	return os.Rename(from, to)
}

// Remove unlinks a file or an empty directory. Durable after SyncDir of its directory.
func (f *FS) Remove(path string) error {
	p, err := f.begin(OpRemove, path, 0)
	if err != nil {
		return err
	}
	err = os.Remove(path)
	p.leave()
	return err
}

// SyncDir makes the entries of a directory durable.
func (f *FS) SyncDir(dir string) (err error) {
	p, err := f.begin(OpSyncDir, dir, 0)
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	err = d.Sync()
	p.leave()
	if err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// SyncDirs makes the entries of several directories durable, each once.
func (f *FS) SyncDirs(dirs ...string) error {
	done := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		dir = filepath.Clean(dir)
		if done[dir] {
			continue
		}
		done[dir] = true
		if err := f.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// MkdirAll makes a directory and every missing parent, and fsyncs the parent of each one made, so that the whole path is
// durable when it returns.
func (f *FS) MkdirAll(dir string, perm fs.FileMode) error {
	info, err := os.Stat(dir)
	if err == nil {
		if !info.IsDir() {
			return fmt.Errorf("make directory %s: %w", dir, unix.ENOTDIR)
		}
		return nil
	}
	if !IsNotExist(err) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := f.MkdirAll(parent, perm); err != nil {
			return err
		}
	}
	p, err := f.begin(OpMkdir, dir, 0)
	if err != nil {
		return err
	}
	err = os.Mkdir(dir, perm)
	p.leave()
	if err != nil && !IsExist(err) {
		return err
	}
	return f.SyncDir(parent)
}

// Lstat describes a path without following a symbolic link.
func (f *FS) Lstat(path string) (fs.FileInfo, error) { return os.Lstat(path) }

// Exists reports whether a path exists; an error other than "does not exist" is returned.
func (f *FS) Exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if IsNotExist(err) {
		return false, nil
	}
	return err == nil, err
}

// listPage bounds how many directory entries are held at once.
const listPage = 512

// List calls visit for the entries of a directory in no particular order, a page at a time, so that a directory of any
// size needs little memory. An error of visit ends the walk and is returned.
func (f *FS) List(dir string, visit func(fs.DirEntry) error) (err error) {
	p, err := f.begin(OpRead, dir, 0)
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	p.leave()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for {
		entries, rerr := d.ReadDir(listPage)
		for _, entry := range entries {
			if err := visit(entry); err != nil {
				return err
			}
		}
		if len(entries) == 0 || rerr != nil {
			if rerr == nil || errors.Is(rerr, io.EOF) {
				return nil
			}
			return rerr
		}
	}
}
