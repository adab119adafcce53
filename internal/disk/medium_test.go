package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A marker's content names the medium; an empty or missing one, a link and one on another device do not.
func TestMarkerNamesMedium(t *testing.T) {
	root := t.TempDir()
	sub := filepath.Join(root, "DCIM")
	write := func(path, content string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	marker := filepath.Join(root, "card.id")
	write(filepath.Join(sub, "a.jpg"), "x")
	named := func(marker string) bool {
		return strings.HasPrefix(mediumIn("/nowhere", root, sub, marker).Name, "marker:")
	}
	if named("card.id") {
		t.Error("a missing marker names a medium")
	}
	write(marker, "")
	if named("card.id") {
		t.Error("an empty marker names a medium")
	}
	write(marker, "card A")
	a := MediumOf(root, sub, "card.id")
	if abs := MediumOf(root, sub, marker); !named("card.id") || abs != a || a.Device == 0 {
		t.Errorf("%+v, %+v", a, abs)
	}
	write(marker, "card B"+strings.Repeat("b", 2*maxMarker))
	if b := MediumOf(root, sub, "card.id"); b.Name == a.Name {
		t.Error("two cards have one name")
	}
	if err := os.Symlink(marker, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	var here, there unix.Stat_t
	if named("link") {
		t.Error("a link names a medium")
	}
	if err := errors.Join(unix.Stat(root, &here), unix.Stat("/proc/self/status", &there)); err != nil || here.Dev == there.Dev || named("/proc/self/status") {
		t.Errorf("a file elsewhere names a medium, %v", err)
	}
	if m := MediumOf(root, filepath.Join(root, "gone"), "card.id"); m != (Medium{}) {
		t.Errorf("of a directory that is not there: %+v", m)
	}
}

// Where the filesystem does not tell its UUID, udev's links do.
func TestLinkedUUID(t *testing.T) {
	links := t.TempDir()
	var block string
	for _, path := range []string{"/dev/loop0", "/dev/vda", "/dev/sda", "/dev/nvme0n1"} {
		if _, err := os.Stat(path); err == nil {
			block = path
			break
		}
	}
	if block == "" {
		t.Skip("not run: this machine has no block device to link to")
	}
	if err := errors.Join(os.Symlink(block, filepath.Join(links, "4A1B-77EE")), os.Symlink("/nowhere", filepath.Join(links, "dangling"))); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(block, &st); err != nil {
		t.Fatal(err)
	}
	if got := linkedUUID(links, uint64(st.Rdev)); got != "uuid:4A1B-77EE" {
		t.Errorf("got %q", got)
	}
	if got := linkedUUID(links, uint64(st.Rdev)+1); got != "" {
		t.Errorf("another device is %q", got)
	}
}
