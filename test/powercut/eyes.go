package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// prove makes the image that all cuts of a file system begin with, and shows that the method sees a missing fsync: of two
// files written before a cut, the one that was not synced must be gone or empty in the copy, the other whole.
func prove(ctx context.Context, dir, fs string, out io.Writer) (pristine string, err error) {
	pristine = filepath.Join(dir, fs+".pristine")
	if err := format(ctx, pristine, fs); err != nil {
		return "", err
	}
	v := &volume{fs: fs, image: filepath.Join(dir, fs+".eyes"), at: filepath.Join(dir, "eyes-"+fs)}
	defer func() { err = errors.Join(err, v.abandon(), os.RemoveAll(v.image), os.RemoveAll(v.at)) }()
	content := bytes.Repeat([]byte("evidence"), 40<<10)
	after := filepath.Join(dir, fs+".eyes-after")
	defer func() { err = errors.Join(err, os.RemoveAll(after)) }()
	err = inOrder(
		func() error { return copySparse(pristine, v.image) },
		v.mount,
		func() error { return os.WriteFile(filepath.Join(v.at, "unsynced"), content, 0o644) },
		func() error { return writeSynced(filepath.Join(v.at, "synced"), content) },
		func() error { return copySparse(v.image, after) },
		v.unmount,
		func() error { return os.Rename(after, v.image) },
		v.mount,
	)
	if err != nil {
		return "", err
	}
	unsynced, err := survives(filepath.Join(v.at, "unsynced"))
	if err != nil {
		return "", err
	}
	synced, err := os.ReadFile(filepath.Join(v.at, "synced"))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: a synced file is not there after a cut: the method is broken: %w", fs, err)
	case !bytes.Equal(synced, content):
		return "", fmt.Errorf("%s: a synced file is not whole after a cut: the method is broken", fs)
	case unsynced:
		return "", fmt.Errorf("%s: an unsynced file survives a cut: a missing fsync would not be seen here", fs)
	}
	fmt.Fprintf(out, "control %-5s  the file without fsync is gone or empty after a cut, the one with fsync is whole\n", fs)
	return pristine, v.unmount()
}

// survives reports whether a file is there with any byte that is not zero.
func survives(path string) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return len(bytes.Trim(data, "\x00")) > 0, err
}

// writeSynced writes a file as a careful program does: the file is synced, and then the directory that names it.
func writeSynced(path string, content []byte) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// inOrder runs steps until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
