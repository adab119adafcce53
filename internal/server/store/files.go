package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

// Layout below the data directory:
//
//	accounts/ACCOUNT/uploads/SESSION     bytes of one open session, from its first append to its verification
//	accounts/ACCOUNT/blobs/XX/SHA256     one finished content, XX being the first two digits of SHA256; never written again
//	accounts/ACCOUNT/blobs/XX/SHA256.damaged, SHA256.damaged.2 …
//	                                     what stood in that place and was found to have other bytes; kept for a person,
//	                                     nothing reads or removes it
const (
	accountsDir = "accounts"
	uploadsDir  = "uploads"
	blobsDir    = "blobs"

	damagedSuffix = ".damaged"

	dirMode  = 0o700
	fileMode = 0o600
)

// Files holds the bytes of uploads and contents. It may be used by any number of goroutines; the caller sees to it that
// one session is written, verified or discarded by one goroutine at a time.
type Files struct {
	fs  *durable.FS
	dir string
	// ready holds the accounts whose directories this process has made durable itself: that a directory is there does
	// not say so, since the process that made it may have died before it could sync the parent.
	ready sync.Map
	// shards holds a *shard for each directory of contents that was used.
	shards sync.Map
}

// NewFiles returns the files below the data directory dir. It creates nothing.
func NewFiles(fs *durable.FS, dir string) *Files { return &Files{fs: fs, dir: dir} }

func (f *Files) uploads(account string) string {
	return filepath.Join(f.dir, accountsDir, account, uploadsDir)
}

func (f *Files) upload(account, session string) string {
	return filepath.Join(f.uploads(account), session)
}

// prepare makes an account's directories durable, once for a process.
func (f *Files) prepare(account string) error {
	if _, ok := f.ready.Load(account); ok {
		return nil
	}
	home := filepath.Join(f.dir, accountsDir, account)
	for _, dir := range []string{f.uploads(account), filepath.Join(home, blobsDir)} {
		if err := f.fs.MkdirAll(dir, dirMode); err != nil {
			return fmt.Errorf("make directories of account %s: %w", account, err)
		}
	}
	if err := f.fs.SyncDirs(home, filepath.Dir(home), f.dir); err != nil {
		return fmt.Errorf("make directories of account %s: %w", account, err)
	}
	f.ready.Store(account, nil)
	return nil
}

func (f *Files) blob(account, sha string) string {
	return filepath.Join(f.dir, accountsDir, account, blobsDir, sha[:2], sha)
}

// Room returns how many bytes of the volume this process may still use (statfs(2), f_bavail).
func (f *Files) Room() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(f.dir, &st); err != nil {
		return 0, fmt.Errorf("measure free space: %w", err)
	}
	// The conversions widen on 32-bit ARM. A filesystem without fragments counts in blocks.
	unit := int64(st.Frsize)
	if unit <= 0 {
		unit = int64(st.Bsize)
	}
	if unit <= 0 || uint64(st.Bavail) > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, nil // it does not say, or more than anybody can use
	}
	return int64(st.Bavail) * unit, nil
}

// Upload is an open session's data file, positioned at the confirmed offset.
type Upload struct{ file *durable.File }

// Open opens the data file of a session for appending at offset, the confirmed one. Bytes beyond it were never confirmed
// and are cut off. Offset 0 makes the file where it is missing. Errors: ErrLost when the file is shorter than offset.
func (f *Files) Open(account, session string, offset int64) (*Upload, error) {
	file, err := f.openUpload(account, session, offset)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Upload{file: file}, nil
}

func (f *Files) openUpload(account, session string, offset int64) (*durable.File, error) {
	path := f.upload(account, session)
	if offset == 0 {
		if err := f.prepare(account); err != nil {
			return nil, err
		}
	}
	file, err := f.fs.OpenWrite(path)
	if durable.IsNotExist(err) {
		if offset > 0 {
			return nil, fmt.Errorf("open upload %s: no file, %d bytes confirmed: %w", session, offset, ErrLost)
		}
		file, err = f.fs.Create(path, fileMode)
	}
	if err != nil {
		return nil, fmt.Errorf("open upload: %w", err)
	}
	err = cut(file, offset)
	if err == nil && offset == 0 {
		// Also where the file was there: whoever made it may have failed before its name was durable.
		err = f.fs.SyncDir(f.uploads(account))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open upload %s: %w", session, err), file.Close())
	}
	return file, nil
}

// cut brings a data file down to its confirmed offset. The cut needs no fsync of its own: whatever stands behind the
// offset is overwritten before the next fsync and cut off again at the next start.
func cut(file *durable.File, offset int64) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() < offset:
		return fmt.Errorf("%d bytes stored, %d confirmed: %w", info.Size(), offset, ErrLost)
	case info.Size() > offset:
		return file.Truncate(offset)
	}
	return nil
}

// Write appends bytes. They are durable after Sync.
func (u *Upload) Write(p []byte) (int, error) { return u.file.Write(p) }

// Sync makes the bytes written so far durable. A failure is final: the session's bytes can no longer be trusted.
func (u *Upload) Sync() error { return u.file.Sync() }

// Close closes the data file.
func (u *Upload) Close() error { return u.file.Close() }

// Settle brings a session's data file down to its confirmed offset after a restart and reports whether it was longer.
// Errors: ErrLost when bytes that were confirmed are missing, or something else stands in the file's place.
func (f *Files) Settle(account, session string, offset int64) (shortened bool, err error) {
	path := f.upload(account, session)
	info, err := f.fs.Lstat(path)
	switch {
	case durable.IsNotExist(err) && offset == 0:
		return false, nil // nothing was confirmed, so nothing need be there
	case durable.IsNotExist(err):
		return false, fmt.Errorf("settle upload %s: no file, %d bytes confirmed: %w", session, offset, ErrLost)
	case err != nil:
		return false, fmt.Errorf("settle upload: %w", err)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("settle upload %s: %w: %w", session, durable.ErrNotRegular, ErrLost)
	case info.Size() == offset:
		return false, nil
	}
	file, err := f.fs.OpenWrite(path)
	if err != nil {
		return false, fmt.Errorf("settle upload: %w", err)
	}
	err = cut(file, offset)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return false, fmt.Errorf("settle upload %s: %w", session, err)
	}
	return true, nil
}

// Discard removes a session's data file; that there is none is fine.
func (f *Files) Discard(account, session string) error {
	if err := f.fs.Remove(f.upload(account, session)); err != nil && !durable.IsNotExist(err) {
		return fmt.Errorf("discard upload: %w", err)
	}
	return nil
}

// Accounts calls visit for every account that has a directory.
func (f *Files) Accounts(visit func(account string) error) error {
	err := f.fs.List(filepath.Join(f.dir, accountsDir), func(entry fs.DirEntry) error {
		if !entry.IsDir() {
			return nil
		}
		return visit(entry.Name())
	})
	if err != nil && !durable.IsNotExist(err) {
		return fmt.Errorf("list accounts: %w", err)
	}
	return nil
}

// Empty reports whether there is nothing at all of any account: no content, no upload, no directory for them.
func (f *Files) Empty() (bool, error) {
	err := f.fs.List(filepath.Join(f.dir, accountsDir), func(fs.DirEntry) error { return errFound })
	switch {
	case errors.Is(err, errFound):
		return false, nil
	case err == nil, durable.IsNotExist(err):
		return true, nil
	}
	return false, fmt.Errorf("list accounts: %w", err)
}

// errFound ends the walk of Empty.
var errFound = errors.New("found")

// Uploads calls visit for every data file of an account.
func (f *Files) Uploads(account string, visit func(session string) error) error {
	err := f.fs.List(f.uploads(account), func(file fs.DirEntry) error { return visit(file.Name()) })
	if err != nil && !durable.IsNotExist(err) {
		return fmt.Errorf("list uploads: %w", err)
	}
	return nil
}
