package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// File is an open regular file. Its methods are those of os.File, with the FS's hook before each operation and with one
// rule added: after a failed Sync every later Sync fails with the same error.
type File struct {
	file     *os.File
	fs       *FS
	syncFail error
}

// Name returns the path the file was opened by; it does not follow renames.
func (f *File) Name() string { return f.file.Name() }

// Stat describes the open file.
func (f *File) Stat() (fs.FileInfo, error) { return f.file.Stat() }

// Read reads from the current position.
func (f *File) Read(p []byte) (int, error) {
	pass, err := f.fs.begin(OpRead, f.Name(), 0)
	if err != nil {
		return 0, err
	}
	n, err := f.file.Read(p)
	pass.leave()
	return n, err
}

// ReadAt reads from a byte offset and may be called concurrently.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	pass, err := f.fs.begin(OpRead, f.Name(), 0)
	if err != nil {
		return 0, err
	}
	n, err := f.file.ReadAt(p, off)
	pass.leave()
	return n, err
}

// Seek moves the current position.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.file.Seek(offset, whence) }

// Write writes at the current position. The bytes are durable after Sync.
func (f *File) Write(p []byte) (int, error) {
	return f.write(p, func(q []byte) (int, error) { return f.file.Write(q) })
}

// WriteAt writes at a byte offset. The bytes are durable after Sync.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(q []byte) (int, error) { return f.file.WriteAt(q, off) })
}

func (f *File) write(p []byte, do func([]byte) (int, error)) (int, error) {
	pass, err := f.fs.begin(OpWrite, f.Name(), len(p))
	if err != nil {
		var short *ShortWrite
		if !errors.As(err, &short) || short.N > len(p) {
			return 0, err
		}
		n, werr := do(p[:short.N])
		return n, errors.Join(short.Err, werr)
	}
	n, err := do(p)
	pass.leave()
	return n, err
}

// Truncate cuts or extends the file. Durable after Sync.
func (f *File) Truncate(size int64) error {
	pass, err := f.fs.begin(OpTruncate, f.Name(), 0)
	if err != nil {
		return err
	}
	err = f.file.Truncate(size)
	pass.leave()
	return err
}

// Sync makes the file's bytes and length durable (fsync(2)). A failure is final: discard the file and start again from
// its source, since the page cache no longer tells what the disk holds.
func (f *File) Sync() error {
	if f.syncFail != nil {
		return f.syncFail
	}
	pass, err := f.fs.begin(OpSync, f.Name(), 0)
	if err == nil {
		err = f.file.Sync()
		pass.leave()
	}
	if err != nil {
		f.syncFail = fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return f.syncFail
}

// DropCache asks the kernel to forget cached pages of the file, so that the next read comes from the medium
// (posix_fadvise(2), POSIX_FADV_DONTNEED). It is advice: an error only says that the cache stays.
func (f *File) DropCache() error {
	return unix.Fadvise(int(f.file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// Close closes the file and, with it, ends a lease held on it.
func (f *File) Close() error {
	pass, err := f.fs.begin(OpClose, f.Name(), 0)
	if err != nil {
		return errors.Join(err, f.file.Close())
	}
	err = f.file.Close()
	pass.leave()
	return err
}

// Identity is what tells whether a path still leads to the same unchanged file. The change time is left out: a rename
// or a new link moves it without touching the content.
type Identity struct {
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"`
	Size    int64  `json:"size"`
	MTimeNS int64  `json:"mtime_ns"`
}
