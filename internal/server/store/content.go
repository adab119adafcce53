package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

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
// length and digest. A session of no bytes may have no file. goOn is asked before each read; its error ends the work.
// Errors: ErrLost when the file is missing, no regular file, or the medium does not give it back.
func (f *Files) Measure(s Session, goOn func() error) (Content, error) {
	c, _, err := f.measure(f.upload(s.Account, s.ID), goOn)
	if durable.IsNotExist(err) && s.Length == 0 {
		return Content{SHA256: hex.EncodeToString(sha256.New().Sum(nil))}, nil
	}
	if err != nil {
		err = fmt.Errorf("measure upload %s: %w", s.ID, err)
	}
	return c, err
}

// MeasureContent reads the account's content under a digest, as Measure does, and tells which file that was.
func (f *Files) MeasureContent(account, sha string, goOn func() error) (Content, durable.Identity, error) {
	c, id, err := f.measure(f.blob(account, sha), goOn)
	if err != nil {
		err = fmt.Errorf("measure content %s: %w", sha, err)
	}
	return c, id, err
}

func (f *Files) measure(path string, goOn func() error) (Content, durable.Identity, error) {
	file, err := f.fs.OpenRead(path)
	if err != nil {
		return Content{}, durable.Identity{}, lost(err)
	}
	info, err := file.Stat() // before the reading: a change meanwhile makes it another file
	if err != nil {
		return Content{}, durable.Identity{}, errors.Join(err, file.Close())
	}
	id, _, _ := durable.IdentityOf(info) // a description by fstat(2) always has one
	c, err := hashAll(file, goOn)
	return c, id, lost(err)
}

// lost adds ErrLost to what says that there are no bytes to be had: no file, or one that the medium does not give back
// (EIO; EUCLEAN and EBADMSG where the filesystem found its own checksum wrong). The latter is no proof of what the bytes are.
func lost(err error) error {
	for _, gone := range []error{fs.ErrNotExist, durable.ErrNotRegular, unix.EIO, unix.EUCLEAN, unix.EBADMSG} {
		if errors.Is(err, gone) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return err
}

func hashAll(file *durable.File, goOn func() error) (c Content, err error) {
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
			return Content{}, err
		}
	}
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
