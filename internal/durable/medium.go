package durable

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Medium is what the type of a filesystem tells about how far it can be trusted.
type Medium struct {
	// Name is for people, such as "NFS".
	Name string
	// Foreign: others change files without this kernel knowing of it, another machine or the program behind a FUSE mount.
	// Events and leases tell of this machine's own programs only.
	Foreign bool
	// DirTimes: a directory's change time moves whenever an entry is made, renamed or removed in it.
	DirTimes bool
	// CoarseTimes: a file that is written again may keep its modification time for as long as 2 s (FAT), or nothing is
	// known about that.
	CoarseTimes bool
}

// vboxsf is VirtualBox's shared folders; unix has no name for it (fs/vboxsf in the kernel's source), nor for ZFS.
const (
	magicVBoxSF = 0x786f4256
	magicZFS    = 0x2fc12fc1
)

// media are the filesystems that something is known about, by their magic number (statfs(2)). vfat and exfat keep even
// and odd seconds, overlayfs shows the times of whichever layer a directory comes from.
var media = map[uint32]Medium{
	unix.EXT4_SUPER_MAGIC:      {Name: "ext4", DirTimes: true},
	unix.XFS_SUPER_MAGIC:       {Name: "xfs", DirTimes: true},
	unix.BTRFS_SUPER_MAGIC:     {Name: "btrfs", DirTimes: true},
	unix.F2FS_SUPER_MAGIC:      {Name: "f2fs", DirTimes: true},
	unix.TMPFS_MAGIC:           {Name: "tmpfs", DirTimes: true},
	magicZFS:                   {Name: "ZFS"},
	unix.OVERLAYFS_SUPER_MAGIC: {Name: "overlayfs"},
	unix.MSDOS_SUPER_MAGIC:     {Name: "FAT", CoarseTimes: true},
	unix.EXFAT_SUPER_MAGIC:     {Name: "exFAT", CoarseTimes: true},
	unix.FUSE_SUPER_MAGIC:      {Name: "FUSE", Foreign: true, CoarseTimes: true},
	unix.NFS_SUPER_MAGIC:       {Name: "NFS", Foreign: true, CoarseTimes: true},
	unix.CIFS_SUPER_MAGIC:      {Name: "CIFS", Foreign: true, CoarseTimes: true},
	unix.SMB_SUPER_MAGIC:       {Name: "SMB", Foreign: true, CoarseTimes: true},
	unix.SMB2_SUPER_MAGIC:      {Name: "SMB", Foreign: true, CoarseTimes: true},
	unix.V9FS_MAGIC:            {Name: "9p", Foreign: true, CoarseTimes: true},
	unix.CEPH_SUPER_MAGIC:      {Name: "Ceph", Foreign: true, CoarseTimes: true},
	unix.AFS_SUPER_MAGIC:       {Name: "AFS", Foreign: true, CoarseTimes: true},
	unix.CODA_SUPER_MAGIC:      {Name: "Coda", Foreign: true, CoarseTimes: true},
	magicVBoxSF:                {Name: "vboxsf", Foreign: true, CoarseTimes: true},
}

// mediumOf judges by a filesystem's magic number and device.
func mediumOf(magic uint32, device uint64) Medium {
	m, known := media[magic]
	if !known {
		return Medium{Name: "an unknown filesystem", CoarseTimes: true}
	}
	if magic == unix.FUSE_SUPER_MAGIC && unix.Major(device) != 0 {
		// It has a block device (exfat-fuse, ntfs-3g), which nobody else writes to. Others have anonymous numbers.
		m.Foreign = false
	}
	return m
}

// Medium describes the filesystem that a path lies on.
func (f *FS) Medium(path string) (Medium, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Medium{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	info, err := os.Stat(path)
	if err != nil {
		return Medium{}, err
	}
	id, _, _ := IdentityOf(info)
	return mediumOf(uint32(st.Type), id.Device), nil
}

// medium describes the filesystem that the file lies on.
func (f *File) medium() (Medium, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.file.Fd()), &st); err != nil {
		return Medium{}, &fs.PathError{Op: "fstatfs", Path: f.Name(), Err: err}
	}
	info, err := f.file.Stat()
	if err != nil {
		return Medium{}, err
	}
	id, _, _ := IdentityOf(info)
	return mediumOf(uint32(st.Type), id.Device), nil
}
