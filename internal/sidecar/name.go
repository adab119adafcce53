package sidecar

import "strings"

// ManifestName is the name of the one file that speaks of all files of its directory.
const ManifestName = "manifest.json"

const suffix = ".json"

// IsManifest reports whether a base name is that of a directory's manifest. FAT knows no case, so either case counts.
func IsManifest(name string) bool { return strings.EqualFold(name, ManifestName) }

// Target returns the base name of the file that the sidecar of this base name speaks of; false when it is not the name of
// a sidecar of one file.
func Target(name string) (string, bool) {
	n := len(name) - len(suffix)
	if n < 1 || !strings.EqualFold(name[n:], suffix) || IsManifest(name) {
		return "", false
	}
	return name[:n], true
}

// Is reports whether a base name is that of a sidecar of either kind.
func Is(name string) bool {
	_, one := Target(name)
	return one || IsManifest(name)
}
