package disk

import (
	"bufio"
	"io"
	"strings"
)

// maxMounts bounds how many lines of the mount table are read; container hosts have thousands.
const maxMounts = 100_000

// mountType returns the type of the file system that holds the absolute, clean path, by a mount table in the form of
// /proc/self/mountinfo (proc_pid_mountinfo(5)). Of two mounts on one point the later one is seen.
func mountType(table io.Reader, path string) string {
	found, fsType := -1, ""
	lines := bufio.NewScanner(table)
	for n := 0; n < maxMounts && lines.Scan(); n++ {
		// 36 35 98:0 /root /point options optional… - type source super-options
		fields := strings.Split(lines.Text(), " ")
		if len(fields) < 5 {
			continue
		}
		point := unescape(fields[4])
		if len(point) < found || !holds(point, path) {
			continue
		}
		for i := 5; i+1 < len(fields); i++ {
			if fields[i] == "-" {
				found, fsType = len(point), fields[i+1]
				break
			}
		}
	}
	return fsType // of a line too long to read on, the best so far
}

// holds reports whether path lies on or below the mount point.
func holds(point, path string) bool {
	return point == "/" || path == point || strings.HasPrefix(path, point+"/")
}

// unescape undoes the octal escapes that the kernel writes for blanks, tabs, line ends and backslashes.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && isOctal(s[i+1:i+4]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// isOctal reports whether three digits stand for one byte.
func isOctal(s string) bool {
	return '0' <= s[0] && s[0] <= '3' && '0' <= s[1] && s[1] <= '7' && '0' <= s[2] && s[2] <= '7'
}
