package durable

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// tempMark stands in the name of every temporary file that WriteFile makes, so that start-up can clear what a crash left.
const tempMark = ".fieldgw-tmp-"

// IsTemp reports whether a base name is that of a temporary file of WriteFile: never a finished one, safe to remove at
// start-up.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, tempMark)
}

// WriteFile makes path hold data, whole or not at all: temporary file in the same directory, write, length check, fsync,
// close, rename, fsync of the directory. When it returns nil the file is durable; when it fails the old file, if any,
// stands untouched, except that after a failed directory fsync the outcome is unknown until the next start.
func (f *FS) WriteFile(path string, data []byte, perm fs.FileMode) error {
	temp, err := f.writeTemp(path, data, perm)
	if err != nil {
		return err
	}
	if err := f.Rename(temp, path); err != nil {
		return errors.Join(err, f.discard(temp))
	}
	return f.SyncDir(filepath.Dir(path))
}

// WriteNew is WriteFile for a path that must not exist yet: it fails with an error that IsExist accepts otherwise.
func (f *FS) WriteNew(path string, data []byte, perm fs.FileMode) error {
	temp, err := f.writeTemp(path, data, perm)
	if err != nil {
		return err
	}
	if err := f.RenameNew(temp, path); err != nil {
		return errors.Join(err, f.discard(temp))
	}
	return f.SyncDir(filepath.Dir(path))
}

func (f *FS) writeTemp(path string, data []byte, perm fs.FileMode) (string, error) {
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	dir, base := filepath.Split(path)
	temp := filepath.Join(dir, "."+base+tempMark+hex.EncodeToString(random[:]))
	file, err := f.Create(temp, perm)
	if err != nil {
		return "", err
	}
	if err := fill(file, data); err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), file.Close(), f.discard(temp))
	}
	if err := file.Close(); err != nil {
		return "", errors.Join(err, f.discard(temp))
	}
	return temp, nil
}

func fill(file *File, data []byte) error {
	if _, err := file.Write(data); err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != int64(len(data)) {
		return io.ErrShortWrite
	}
	return file.Sync()
}

// discard removes a temporary file after a failure; that it is gone already is fine.
func (f *FS) discard(path string) error {
	if err := f.Remove(path); err != nil && !IsNotExist(err) {
		return err
	}
	return nil
}

// ReadFile returns the whole content of a regular file of at most limit bytes. Errors: ErrTooLarge, ErrNotRegular, or
// those of open and read.
func (f *FS) ReadFile(path string, limit int64) (data []byte, err error) {
	file, err := f.OpenRead(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data, err = io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: %w (%d bytes)", path, ErrTooLarge, limit)
	}
	return data, nil
}

// ClearTemps removes what a crash in the middle of WriteFile or WriteNew left in a directory. Call it at start, before
// anything else writes there.
func (f *FS) ClearTemps(dir string) error {
	var temps []string
	err := f.List(dir, func(e fs.DirEntry) error {
		if IsTemp(e.Name()) {
			temps = append(temps, filepath.Join(dir, e.Name()))
		}
		return nil
	})
	for _, temp := range temps {
		err = errors.Join(err, f.discard(temp))
	}
	return err
}
