package watch

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/sidecar"
)

// releasePrefix begins the name that fieldgw itself gives to a source while it removes it; the attachment's ID follows, and
// releaseSidecar where it is the source's sidecar.
const (
	releasePrefix  = ".fieldgw-release-"
	releaseSidecar = ".sidecar"
)

// ours reports whether a name is such a one. It is never a candidate and never listed. Another file that only begins like
// it is hidden, and is listed as every hidden file is.
func ours(name string) bool {
	id, ok := strings.CutPrefix(name, releasePrefix)
	if !ok {
		return false
	}
	_, err := attachment.ParseID(strings.TrimSuffix(id, releaseSidecar))
	return err == nil
}

// temporarySuffixes end the names of files that some program has not finished: browsers, curl and wget wrappers, WinSCP and
// other SFTP clients, editors. Letters of either case match, since FAT knows no case.
var temporarySuffixes = []string{
	"~", ".part", ".partial", ".filepart", ".tmp", ".temp", ".crdownload", ".download", ".opdownload", ".swp",
}

// ownerPrefix begins the file beside an open document in which office programs keep who has it open.
const ownerPrefix = "~$"

// naming is what a base name alone decides.
type naming int

const (
	nameTaken     naming = iota // may become a candidate
	nameSkipped                 // not this watch's business: left out silently
	nameTemporary               // another program's unfinished file: listed
)

// nameRules are a watch's patterns on base names (path.Match).
type nameRules struct {
	include, exclude, temporary []string
	// sidecars: there are some in this watch.
	sidecars bool
}

func (r *Root) nameRules() nameRules {
	return nameRules{include: r.Include, exclude: r.Exclude, temporary: r.Temporary, sidecars: r.Sidecars}
}

// check returns what is wrong with the patterns.
func (r nameRules) check() error {
	for _, pattern := range slices.Concat(r.include, r.exclude, r.temporary) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	return nil
}

// sidecar reports whether a base name is that of a sidecar of this watch.
func (r nameRules) sidecar(name string) bool { return r.sidecars && sidecar.Is(name) }

// included reports whether the watch takes files of this name. A sidecar goes with its file, and a directory's manifest
// with all of them.
func (r nameRules) included(name string) bool {
	if r.sidecars {
		if target, ok := sidecar.Target(name); ok {
			name = target
		} else if sidecar.IsManifest(name) {
			return true
		}
	}
	return len(r.include) == 0 || matches(r.include, name)
}

// judge decides about the base name of a file. Exclusion is stronger than inclusion, and a temporary name is temporary
// even where a pattern includes it.
func (r nameRules) judge(name string) naming {
	switch {
	case ours(name), matches(r.exclude, name), !r.included(name):
		return nameSkipped
	case temporary(name), matches(r.temporary, name):
		return nameTemporary
	}
	return nameTaken
}

func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		// check refused malformed patterns, which are the only error.
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

// temporary reports whether a base name says that its file is not finished. Names that begin with a dot are all
// temporary: hidden files, rsync's .NAME.XXXXXX, LibreOffice's .~lock.NAME#, and the temporary files of most programs.
func temporary(name string) bool {
	if hidden(name) || strings.HasPrefix(name, ownerPrefix) {
		return true
	}
	for _, suffix := range temporarySuffixes {
		if n := len(name) - len(suffix); n >= 0 && strings.EqualFold(name[n:], suffix) {
			return true
		}
	}
	return false
}

// hidden reports whether a file or a directory is hidden. Hidden directories are not entered: they are rsync's partial
// files, a desktop's wastebasket, thumbnails.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// parentOf returns the first directory of a relative path, which names the record that the file belongs to; empty for a
// file that lies directly in the root.
func parentOf(rel string) string {
	if first, _, nested := strings.Cut(rel, "/"); nested {
		return first
	}
	return ""
}

// below returns path relative to root, both clean and absolute; "" for the root itself.
func below(root, path string) (rel string, ok bool) {
	if path == root {
		return "", true
	}
	if root == "/" {
		return strings.CutPrefix(path, "/")
	}
	rest, ok := strings.CutPrefix(path, root)
	if !ok {
		return "", false
	}
	return strings.CutPrefix(rest, "/")
}

// join appends a base name to a directory's clean path. Unlike filepath.Join it never changes the bytes of either.
func join(dir, name string) string {
	if dir == "/" {
		return dir + name
	}
	return dir + "/" + name
}
