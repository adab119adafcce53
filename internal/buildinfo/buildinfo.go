// Package buildinfo says which build of fieldgw this is.
package buildinfo

import "runtime/debug"

// Version is set by the linker; empty in a plain `go build`.
var Version string

// String returns the version that the programs print: the linker's, else the module version or revision that the Go
// toolchain recorded, else "unversioned".
func String() string {
	if Version != "" {
		return Version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unversioned"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "unversioned"
}
