package sidecar

import (
	"slices"
	"strings"
)

// The names count in small letters and, as cards without long names write them, in capitals.
var (
	manifests = []string{"manifest.json", "MANIFEST.JSON"}
	suffixes  = []string{".json", ".JSON"}
)

// IsManifest reports whether a base name is that of the one file that speaks of all files of its directory.
func IsManifest(name string) bool { return slices.Contains(manifests, name) }

// Manifests returns the names that a directory's manifest may have.
func Manifests() []string { return slices.Clone(manifests) }

// Own returns the paths that the sidecar of the file at a path may have.
func Own(path string) []string {
	var own []string
	for _, suffix := range suffixes {
		own = append(own, path+suffix)
	}
	return own
}

// Target returns the base name of the file that the sidecar of this base name speaks of; false when it is not the name of
// a sidecar of one file.
func Target(name string) (string, bool) {
	for _, suffix := range suffixes {
		if target, ok := strings.CutSuffix(name, suffix); ok && target != "" && !IsManifest(name) {
			return target, true
		}
	}
	return "", false
}

// Is reports whether a base name is that of a sidecar of either kind.
func Is(name string) bool {
	_, one := Target(name)
	return one || IsManifest(name)
}
