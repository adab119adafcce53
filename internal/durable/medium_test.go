package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// What is trusted follows from the kind of filesystem: events and leases not where others write unseen, times not on FAT,
// directory times on few, and nothing on what nobody knows. A FUSE mount with a block device has no other writers.
func TestMedia(t *testing.T) {
	disk, anonymous := unix.Mkdev(8, 17), unix.Mkdev(0, 52)
	for _, tc := range []struct {
		name                      string
		magic                     uint32
		device                    uint64
		foreign, dirTimes, coarse bool
	}{
		{"ext4", unix.EXT4_SUPER_MAGIC, disk, false, true, false},
		{"btrfs", unix.BTRFS_SUPER_MAGIC, anonymous, false, true, false},
		{"overlayfs", unix.OVERLAYFS_SUPER_MAGIC, anonymous, false, false, false},
		{"FAT", unix.MSDOS_SUPER_MAGIC, disk, false, false, true},
		{"FUSE", unix.FUSE_SUPER_MAGIC, anonymous, true, false, true},
		{"FUSE", unix.FUSE_SUPER_MAGIC, disk, false, false, true},
		{"NFS", unix.NFS_SUPER_MAGIC, anonymous, true, false, true},
		{"SMB", unix.SMB2_SUPER_MAGIC, anonymous, true, false, true},
		{"an unknown filesystem", 0x12345678, disk, false, false, true},
	} {
		want := Medium{Name: tc.name, Foreign: tc.foreign, DirTimes: tc.dirTimes, CoarseTimes: tc.coarse}
		if got := mediumOf(tc.magic, tc.device); got != want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, want)
		}
	}
	if m, err := OS().Medium("/proc"); err != nil || m.DirTimes || !m.CoarseTimes {
		t.Errorf("/proc: %+v, %v", m, err)
	}
	if _, err := OS().Medium("/nowhere"); !IsNotExist(err) {
		t.Errorf("a path that leads nowhere: %v", err)
	}
}

// A lease on a file behind FUSE is granted although somebody behind the mount has the file open for writing; it is not given
// out as proof. A writer that the kernel does know is reported.
func TestLeaseOnForeignFilesystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not run: a FUSE mount needs root")
	}
	behind, mount := t.TempDir(), t.TempDir()
	loopback, err := fs.NewLoopbackRoot(behind)
	if err != nil {
		t.Fatal(err)
	}
	server, err := fs.Mount(mount, loopback, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true}})
	if err != nil {
		t.Skipf("not run: FUSE cannot be used here: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	lease := func(writer string) error {
		t.Helper()
		w, err := os.Create(filepath.Join(writer, "f"))
		if err != nil {
			t.Fatal(err)
		}
		f, err := OS().OpenRead(filepath.Join(mount, "f"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Lease()
		if got != nil {
			t.Errorf("a lease was given out on %s", writer)
		}
		if e := errors.Join(f.Close(), w.Close()); e != nil {
			t.Error(e)
		}
		return err
	}
	if err := lease(behind); !errors.Is(err, ErrNoLease) {
		t.Errorf("with a writer behind the mount: %v", err)
	}
	if err := lease(mount); !errors.Is(err, ErrBusy) {
		t.Errorf("with a writer on the mount: %v", err)
	}
}
