package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// op is one entry of a disk's log: a write, or a flush, before which every earlier write is durable.
type op struct {
	flush bool
	off   int64
	data  []byte
}

// disk is an image behind FUSE that remembers every write and flush in their order, and can answer chosen writes with
// EIO. A loop device on its file is a disk whose cache may be lost in any part: see state.
type disk struct {
	fs.Inode
	backing *os.File
	size    int64
	server  *fuse.Server

	mu      sync.Mutex
	log     []op
	stopped bool // nothing is written any more
	// refuse answers EIO for a write without doing it.
	refuse func(data []byte) bool
}

// diskFile is the name of the image in the mount of a disk.
const diskFile = "image"

// serveDisk serves an image in a new directory. The caller ends it with close, after the last user of the file.
func serveDisk(image, dir string) (*disk, error) {
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := backing.Stat()
	if err != nil {
		return nil, errors.Join(err, backing.Close())
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, errors.Join(err, backing.Close())
	}
	d := &disk{backing: backing, size: info.Size(), refuse: func([]byte) bool { return false }}
	root := &diskDir{file: d}
	d.server, err = fs.Mount(dir, root, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, MaxWrite: 1 << 20}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mount the FUSE disk: %w", err), backing.Close())
	}
	return d, nil
}

// close ends the disk.
func (d *disk) close() error { return errors.Join(d.server.Unmount(), d.backing.Close()) }

// diskDir is the root of the mount; it holds the one file.
type diskDir struct {
	fs.Inode
	file *disk
}

// OnAdd puts the file into the directory.
func (r *diskDir) OnAdd(ctx context.Context) {
	r.AddChild(diskFile, r.NewPersistentInode(ctx, r.file, fs.StableAttr{Mode: fuse.S_IFREG}), true)
}

// Getattr tells mode and size.
func (d *disk) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = fuse.S_IFREG|0o600, uint64(d.size)
	return 0
}

// Open asks the kernel to keep no pages of the file: each request of the block layer arrives here as it was made.
func (d *disk) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read reads from the image.
func (d *disk) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := d.backing.ReadAt(dest, off)
	if err != nil && n == 0 && off < d.size {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Write writes to the image and to the log, in one order for both.
func (d *disk) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped || d.refuse(data) {
		return 0, syscall.EIO
	}
	if _, err := d.backing.WriteAt(data, off); err != nil {
		return 0, fs.ToErrno(err)
	}
	d.log = append(d.log, op{off: off, data: bytes.Clone(data)})
	return uint32(len(data)), 0
}

// Fsync is the block layer's flush.
func (d *disk) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, op{flush: true})
	return 0
}

// stop is the power cut: no write is done any more.
func (d *disk) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
}

// index is the length of the log by now.
func (d *disk) index() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.log)
}

// recorded is the log by now.
func (d *disk) recorded() []op {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

// state writes into image, a copy of what the log began with, what a power cut after the first n operations may leave:
// every write before the last flush, and of the later ones those that keep chooses.
func state(image string, log []op, n int, keep func() bool) (err error) {
	file, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("build state in %s: %w", filepath.Base(image), err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	flushed := lastFlush(log, n)
	for i, o := range log[:n] {
		if o.flush || i > flushed && !keep() {
			continue
		}
		if _, err := file.WriteAt(o.data, o.off); err != nil {
			return err
		}
	}
	return nil
}

// lastFlush is the index of the last flush among the first n operations, -1 without one.
func lastFlush(log []op, n int) int {
	for i := n - 1; i >= 0; i-- {
		if log[i].flush {
			return i
		}
	}
	return -1
}
