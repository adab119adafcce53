package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Medium is the card or filesystem that a path lies on.
type Medium struct {
	// Name tells it from others and stays the same when it is mounted again: "marker:" and a digest, or "uuid:" and the
	// filesystem's UUID as the system writes it. Empty when it is not known.
	Name string
	// Device is the device number of the filesystem, 0 when the path cannot be opened.
	Device uint64
	// Fleeting: the numbers of its files do not survive a remount.
	Fleeting bool
}

// maxMarker is how much of a marker file tells cards apart.
const maxMarker = 256

// byUUID is where udev keeps a link for each filesystem.
const byUUID = "/dev/disk/by-uuid"

// MediumOf returns the medium that holds a directory of a capture tree. A marker file in its root that is not empty names
// the medium; marker is its path, absolute or below root, and empty where there is none. Otherwise the filesystem's UUID
// does. It needs no rights but to read the directory.
func MediumOf(root, dir, marker string) Medium { return mediumIn(byUUID, root, dir, marker) }

func mediumIn(links, root, dir, marker string) Medium {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return Medium{}
	}
	defer unix.Close(fd)
	var (
		st unix.Stat_t
		sf unix.Statfs_t
	)
	if unix.Fstat(fd, &st) != nil || unix.Fstatfs(fd, &sf) != nil {
		return Medium{}
	}
	m := Medium{Device: uint64(st.Dev), Fleeting: slices.Contains(fleeting, uint32(sf.Type))}
	if marker != "" {
		if !filepath.IsAbs(marker) {
			marker = filepath.Join(root, marker)
		}
		m.Name = markerName(marker, m.Device)
	}
	if m.Name == "" {
		m.Name = uuidOf(fd)
	}
	if m.Name == "" {
		m.Name = linkedUUID(links, m.Device)
	}
	return m
}

// fleeting are the filesystems whose drivers number files as they meet them: FAT, exFAT, FUSE and SMB (statfs(2)). One that
// is missing here costs the reading of files that could have been recognized without.
var fleeting = []uint32{unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC}

// markerName digests a marker file that lies on the device itself, not below a mount point whose card is away.
func markerName(path string, device uint64) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || uint64(st.Dev) != device || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ""
	}
	content := make([]byte, maxMarker)
	n, err := f.Read(content)
	if err != nil || n == 0 {
		return ""
	}
	sum := sha256.Sum256(content[:n])
	return "marker:" + hex.EncodeToString(sum[:16])
}

// fsUUID is struct fsuuid2 of linux/fs.h.
type fsUUID struct {
	len  uint8
	uuid [16]byte
}

// getFSUUID is FS_IOC_GETFSUUID of linux/fs.h, _IOR(0x15, 0, struct fsuuid2).
const getFSUUID = 2<<30 | unsafe.Sizeof(fsUUID{})<<16 | 0x15<<8

// uuidOf asks the filesystem itself; kernels before 6.9, and some filesystems, do not answer.
func uuidOf(fd int) string {
	var u fsUUID
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getFSUUID, uintptr(unsafe.Pointer(&u)))
	if errno != 0 || u.len == 0 || int(u.len) > len(u.uuid) || u.uuid == ([16]byte{}) {
		return ""
	}
	text := hex.EncodeToString(u.uuid[:u.len])
	if u.len == 16 {
		text = text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
	}
	return "uuid:" + text
}

// linkedUUID looks for the device among the links of udev.
func linkedUUID(links string, device uint64) string {
	entries, err := os.ReadDir(links)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(links, e.Name()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && uint64(st.Rdev) == device {
			return "uuid:" + e.Name()
		}
	}
	return ""
}
