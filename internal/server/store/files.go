package store

import (
	"crypto/sha256"
	"encoding/hex"
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
const (
	accountsDir = "accounts"
	uploadsDir  = "uploads"
	blobsDir    = "blobs"

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

// Uploads calls visit for every data file of every account.
func (f *Files) Uploads(visit func(account, session string) error) error {
	err := f.fs.List(filepath.Join(f.dir, accountsDir), func(account fs.DirEntry) error {
		if !account.IsDir() {
			return nil
		}
		err := f.fs.List(f.uploads(account.Name()), func(file fs.DirEntry) error {
			return visit(account.Name(), file.Name())
		})
		if durable.IsNotExist(err) {
			return nil
		}
		return err
	})
	if err != nil && !durable.IsNotExist(err) {
		return fmt.Errorf("list uploads: %w", err)
	}
	return nil
}

// Content is what the server itself found by reading stored bytes.
type Content struct {
	Length int64
	SHA256 string
}

// sumBuffer is the size of a read while hashing, in bytes.
const sumBuffer = 256 << 10

// Measure reads a session's whole data file from the medium, as far as the kernel lets go of its cache, and returns its
// length and digest. A session of no bytes may have no file. When the file is missing because a crash came between
// Keep and its record, the content under the declared digest is read in its place. goOn is asked before each read;
// its error ends the work. Errors: ErrLost when there is neither.
func (f *Files) Measure(s Session, sha string, goOn func() error) (Content, error) {
	file, err := f.fs.OpenRead(f.upload(s.Account, s.ID))
	if durable.IsNotExist(err) {
		file, err = f.fs.OpenRead(f.blob(s.Account, sha))
	}
	if durable.IsNotExist(err) {
		if s.Length == 0 {
			return Content{SHA256: hex.EncodeToString(sha256.New().Sum(nil))}, nil
		}
		return Content{}, fmt.Errorf("measure upload %s: %w", s.ID, ErrLost)
	}
	if err != nil {
		return Content{}, fmt.Errorf("measure upload: %w", err)
	}
	return measure(file, goOn)
}

// MeasureContent reads the account's content under a digest, as Measure does. Errors: ErrLost when it is missing.
func (f *Files) MeasureContent(account, sha string, goOn func() error) (Content, error) {
	file, err := f.fs.OpenRead(f.blob(account, sha))
	if durable.IsNotExist(err) {
		return Content{}, fmt.Errorf("measure content %s: %w", sha, ErrLost)
	}
	if err != nil {
		return Content{}, fmt.Errorf("measure content: %w", err)
	}
	return measure(file, goOn)
}

func measure(file *durable.File, goOn func() error) (c Content, err error) {
	defer func() { err = errors.Join(err, file.Close()) }()
	_ = file.DropCache() // advice: where it is not taken, the cache holds what was fsynced
	sum, buf := sha256.New(), make([]byte, sumBuffer)
	for {
		if err := goOn(); err != nil {
			return Content{}, err
		}
		n, err := file.Read(buf)
		c.Length += int64(n)
		sum.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			c.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return c, nil
		}
		if err != nil {
			return Content{}, fmt.Errorf("measure: %w", err)
		}
	}
}

// Keep makes a session's measured data file the account's content under its digest, durably, and leaves one file when
// the content is there already. It may be repeated after a crash at any point. Replaced reports that a file of another
// length stood in the content's place. Errors: ErrLost when the data file cannot be made durable and must be discarded.
func (f *Files) Keep(account, session string, c Content) (replaced bool, err error) {
	from, to := f.upload(account, session), f.blob(account, c.SHA256)
	if err := f.prepare(account); err != nil {
		return false, err
	}
	shard := filepath.Dir(to)
	if err := f.fs.MkdirAll(shard, dirMode); err != nil {
		return false, fmt.Errorf("keep content: %w", err)
	}
	if replaced, err = f.move(account, from, to, c.Length); err != nil {
		return false, fmt.Errorf("keep content %s: %w", c.SHA256, err)
	}
	if err := f.fs.SyncDirs(shard, filepath.Dir(shard), f.uploads(account)); err != nil {
		return false, fmt.Errorf("keep content %s: %w", c.SHA256, err)
	}
	return replaced, nil
}

func (f *Files) move(account, from, to string, length int64) (replaced bool, err error) {
	present, err := f.whole(to, length)
	if err != nil {
		return false, err
	}
	file, err := f.fs.OpenWrite(from)
	switch {
	case durable.IsNotExist(err) && present:
		return false, nil // moved before a crash
	case durable.IsNotExist(err) && length == 0:
		file, err = f.fs.Create(from, fileMode)
	}
	if err != nil {
		return false, err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return false, fmt.Errorf("%w: %w", ErrLost, err)
	}
	if present {
		return false, f.fs.Remove(from)
	}
	if err := f.fs.RenameNew(from, to); !durable.IsExist(err) {
		return false, err
	}
	// Another attachment of the same content was faster, or a damaged file of another length stands there.
	if present, err := f.whole(to, length); err != nil || present {
		return false, errors.Join(err, f.fs.Remove(from))
	}
	return true, f.fs.Rename(from, to)
}

// whole reports whether a regular file of this length stands at path.
func (f *Files) whole(path string, length int64) (bool, error) {
	info, err := f.fs.Lstat(path)
	if durable.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return info.Mode().IsRegular() && info.Size() == length, nil
}

// Stored reports whether the account holds a content file of this digest and length. It does not read the bytes.
func (f *Files) Stored(account, sha string, length int64) (bool, error) {
	ok, err := f.whole(f.blob(account, sha), length)
	if err != nil {
		return false, fmt.Errorf("look for content %s: %w", sha, err)
	}
	return ok, nil
}

// OpenContent opens the account's content under a digest for reading. Errors: ErrLost when it is missing or has another
// length.
func (f *Files) OpenContent(account, sha string, length int64) (*durable.File, error) {
	file, err := f.fs.OpenRead(f.blob(account, sha))
	if durable.IsNotExist(err) {
		return nil, fmt.Errorf("open content %s: %w", sha, ErrLost)
	}
	if err != nil {
		return nil, fmt.Errorf("open content: %w", err)
	}
	info, err := file.Stat()
	if err == nil && info.Size() != length {
		err = fmt.Errorf("%d bytes, %d registered: %w", info.Size(), length, ErrLost)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open content %s: %w", sha, err), file.Close())
	}
	return file, nil
}
