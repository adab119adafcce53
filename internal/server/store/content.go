package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
)

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
// its error ends the work. Errors: ErrLost when there is neither, or only a damaged content.
func (f *Files) Measure(s Session, sha string, goOn func() error) (Content, error) {
	file, err := f.fs.OpenRead(f.upload(s.Account, s.ID))
	moved := durable.IsNotExist(err)
	if moved {
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
	c, err := measure(file, goOn)
	if err == nil && moved && c.SHA256 != sha {
		return Content{}, fmt.Errorf("measure upload %s: its place holds damaged content: %w", s.ID, ErrLost)
	}
	return c, err
}

// MeasureContent reads the account's content under a digest, as Measure does, and tells which file that was. Errors:
// ErrLost when it is missing, no regular file, or the medium does not give it back (EIO).
func (f *Files) MeasureContent(account, sha string, goOn func() error) (Content, durable.Identity, error) {
	file, err := f.fs.OpenRead(f.blob(account, sha))
	if durable.IsNotExist(err) || errors.Is(err, durable.ErrNotRegular) {
		return Content{}, durable.Identity{}, fmt.Errorf("measure content %s: %w: %w", sha, ErrLost, err)
	}
	if err != nil {
		return Content{}, durable.Identity{}, fmt.Errorf("measure content: %w", err)
	}
	info, err := file.Stat() // before the reading: a change meanwhile makes it another file
	if err != nil {
		return Content{}, durable.Identity{}, errors.Join(fmt.Errorf("measure content: %w", err), file.Close())
	}
	id, _, _ := durable.IdentityOf(info) // a description by fstat(2) always has one
	c, err := measure(file, goOn)
	if errors.Is(err, unix.EIO) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return c, id, err
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

// Keep makes a session's measured data file the account's content under its digest, durably, in the place of whatever
// stands there: these bytes were read back a moment ago, and of the others nobody knows what became of them. A damaged
// content is healed by that. It may be repeated after a crash at any point. It returns the identity of the content file, and
// whether a file of another length was replaced. Errors: ErrLost when the data file cannot be made durable and must be
// discarded.
func (f *Files) Keep(account, session string, c Content) (id durable.Identity, replaced bool, err error) {
	from, to := f.upload(account, session), f.blob(account, c.SHA256)
	if err := f.prepare(account); err != nil {
		return id, false, err
	}
	shard := filepath.Dir(to)
	if err := f.fs.MkdirAll(shard, dirMode); err != nil {
		return id, false, fmt.Errorf("keep content: %w", err)
	}
	if id, replaced, err = f.move(from, to, c.Length); err != nil {
		return id, false, fmt.Errorf("keep content %s: %w", c.SHA256, err)
	}
	if err := f.fs.SyncDirs(shard, filepath.Dir(shard), f.uploads(account)); err != nil {
		return id, false, fmt.Errorf("keep content %s: %w", c.SHA256, err)
	}
	return id, replaced, nil
}

func (f *Files) move(from, to string, length int64) (id durable.Identity, replaced bool, err error) {
	old, whole, err := f.look(to, length)
	if err != nil {
		return id, false, err
	}
	file, err := f.fs.OpenWrite(from)
	switch {
	case durable.IsNotExist(err) && whole:
		return old, false, nil // moved before a crash, and read back where it is now
	case durable.IsNotExist(err) && length == 0:
		file, err = f.fs.Create(from, fileMode)
	}
	if err != nil {
		return id, false, err
	}
	err = file.Sync()
	info, serr := file.Stat()
	if err = errors.Join(err, serr, file.Close()); err != nil {
		return id, false, fmt.Errorf("%w: %w", ErrLost, err)
	}
	id, _, _ = durable.IdentityOf(info) // a description by fstat(2) always has one
	stands, err := f.fs.Exists(to)
	if err != nil {
		return id, false, err
	}
	return id, stands && !whole, f.fs.Rename(from, to)
}

// look describes the regular file of this length at path, if it stands there.
func (f *Files) look(path string, length int64) (id durable.Identity, whole bool, err error) {
	info, err := f.fs.Lstat(path)
	if durable.IsNotExist(err) {
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	id, _, ok := durable.IdentityOf(info)
	return id, ok && info.Mode().IsRegular() && info.Size() == length, nil
}

// Look tells whether the account holds a content file of this digest and length, and which file that is. It does not
// read the bytes.
func (f *Files) Look(account, sha string, length int64) (id durable.Identity, whole bool, err error) {
	if id, whole, err = f.look(f.blob(account, sha), length); err != nil {
		return id, false, fmt.Errorf("look for content %s: %w", sha, err)
	}
	return id, whole, nil
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
