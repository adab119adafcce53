package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The file systems.
const (
	ext4  = "ext4"
	xfs   = "xfs"
	btrfs = "btrfs"
)

var allSystems = []string{ext4, xfs, btrfs}

// system is how a file system is made and mounted. A volume must have room for the device's default storage reserve.
type system struct {
	size    int64
	mkfs    []string
	options string
}

// The mount options keep journals from being committed by the clock. An xfs below 300 MiB is refused by its mkfs; nouuid
// lets it mount although a copy with the same UUID may still be mounted.
var systems = map[string]system{
	ext4:  {256 << 20, []string{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"}, "commit=600"},
	xfs:   {320 << 20, []string{"mkfs.xfs", "-q", "-f"}, "nouuid"},
	btrfs: {256 << 20, []string{"mkfs.btrfs", "-q", "-f"}, "commit=600"},
}

// format makes an image with an empty file system.
func format(ctx context.Context, image, fs string) error {
	s := systems[fs]
	file, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Truncate(s.size), file.Close()); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, s.mkfs[0], append(s.mkfs[1:], image)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", s.mkfs[0], err, out)
	}
	return nil
}

// attachTries bounds the race for a free loop device with other programs.
const attachTries = 20

// attach connects an image to a free loop device (loop(4)) that detaches itself when its last user closes it.
func attach(image string) (*os.File, error) {
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	for range attachTries {
		var n int
		if n, err = unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE); err != nil {
			return nil, fmt.Errorf("get a loop device: %w", err)
		}
		var dev *os.File
		if dev, err = openLoop(n); err != nil {
			return nil, err
		}
		if err = unix.IoctlLoopConfigure(int(dev.Fd()), &config); err == nil {
			return dev, nil
		}
		err = errors.Join(fmt.Errorf("attach %s: %w", dev.Name(), err), dev.Close())
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, err
}

// openLoop opens a loop device; a container's /dev may lack nodes that the kernel made later.
func openLoop(n int) (*os.File, error) {
	const loopMajor = 7
	path := fmt.Sprintf("/dev/loop%d", n)
	dev, err := os.OpenFile(path, os.O_RDWR, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return dev, err
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(n)))); err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// volume is an image that is mounted somewhere, or not at this moment.
type volume struct {
	fs      string
	image   string
	at      string
	mounted bool
}

// mount lets the kernel replay the journal and mount the image.
func (v *volume) mount() error {
	dev, err := attach(v.image)
	if err != nil {
		return err
	}
	defer dev.Close() // the mount holds the device
	if err := os.MkdirAll(v.at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(dev.Name(), v.at, v.fs, unix.MS_NOATIME, systems[v.fs].options); err != nil {
		return fmt.Errorf("mount %s of %s: %w", v.fs, v.image, err)
	}
	v.mounted = true
	return nil
}

// unmount writes back what is dirty, so it comes after the copy. Nobody may have a file open any more: a btrfs that stays
// mounted would be taken for its copy, which has the same UUID.
func (v *volume) unmount() error {
	if !v.mounted {
		return nil
	}
	if err := unix.Unmount(v.at, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", v.at, err)
	}
	v.mounted = false
	return nil
}

// abandon unmounts even when somebody still has files open; for clearing up after a failure.
func (v *volume) abandon() error {
	if !v.mounted {
		return nil
	}
	v.mounted = false
	return unix.Unmount(v.at, unix.MNT_DETACH)
}

// flush makes everything on the volume durable.
func (v *volume) flush() error {
	dir, err := os.Open(v.at)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}

// copySparse copies an image without its holes (lseek(2), SEEK_DATA).
func copySparse(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	for end := int64(0); ; {
		begin, err := in.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole is left
			return out.Truncate(info.Size())
		}
		if err == nil {
			end, err = in.Seek(begin, unix.SEEK_HOLE)
		}
		if err != nil {
			return err
		}
		if _, err := in.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(begin, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, end-begin); err != nil {
			return fmt.Errorf("copy %s: %w", filepath.Base(from), err)
		}
	}
}
