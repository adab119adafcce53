// Package sidecar reads the small JSON files that say what captured files belong to: NAME.json beside a file NAME, or one
// manifest.json for all files of a directory. It is pure.
//
// Reading is strict: a document is taken as a whole or refused as a whole, with every problem at its line and column, so
// that a misspelt key never binds evidence to half of what its author meant. Read Facts for what a sidecar may say,
// document.go for how it is read, and name.go for which names are sidecars.
package sidecar

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Version is the one format that this build reads.
const Version = 1

// Limits, in bytes.
const (
	// MaxFile bounds the sidecar of one file, and each entry of a manifest.
	MaxFile = 64 << 10
	// MaxManifest bounds a directory's manifest.json.
	MaxManifest = 1 << 20

	maxParent      = 1024 // what the server takes
	maxDescription = 1024
	maxName        = 255 // NAME_MAX
)

// Facts are what a sidecar says about one file. Only Parent is always there.
type Facts struct {
	Parent string
	// CapturedAt is zero where nothing was said, Role and the IDs are empty, Priority is 0.
	CapturedAt  time.Time
	Role        attachment.Role
	Of          attachment.ID
	Priority    int
	Supersedes  attachment.ID
	Description string
}

// Entry is one file's part of a manifest.
type Entry struct {
	Facts Facts
	// Text is the entry as it stands in the document.
	Text []byte
}

// ParseFile reads the sidecar of one file. The error is a *Error.
func ParseFile(data []byte) (Facts, error) {
	d, err := open(data, MaxFile)
	if err != nil {
		return Facts{}, err
	}
	var f Facts
	seen := d.object(factKeys, true, func(key string, at int) { d.fact(&f, key, at) })
	d.complete(&f, seen, 0)
	return f, d.err()
}

// ParseManifest reads a directory's manifest: the facts of its files by base name. The error is a *Error.
func ParseManifest(data []byte) (map[string]Entry, error) {
	d, err := open(data, MaxManifest)
	if err != nil {
		return nil, err
	}
	files := map[string]Entry{}
	seen := d.object([]string{"version", "files"}, true, func(key string, _ int) {
		if key == "version" {
			d.version()
			return
		}
		d.object(nil, false, func(name string, at int) { d.entry(files, name, at) })
	})
	if _, there := seen["files"]; !there && len(d.problems) == 0 {
		d.problem(0, "the key \"files\" is missing", "")
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return files, nil
}

// entryKeys are what an entry of a manifest may say; a sidecar of its own has a version too.
var (
	entryKeys = []string{"parent", "captured_at", "role", "of", "priority", "supersedes", "description"}
	factKeys  = append([]string{"version"}, entryKeys...)
)

func (d *document) entry(files map[string]Entry, name string, at int) {
	if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
		d.problem(at, quote(name)+" is no name of a file in this directory", "")
	}
	var f Facts
	begin := d.next()
	seen := d.object(entryKeys, false, func(key string, at int) { d.fact(&f, key, at) })
	d.complete(&f, seen, begin)
	text := d.data[begin:d.offset()]
	if len(text) > MaxFile {
		d.problem(begin, fmt.Sprintf("the entry is larger than %d bytes", MaxFile), "")
	}
	files[name] = Entry{Facts: f, Text: text}
}

// complete demands what must be there and what belongs together. Where something was refused already it says nothing.
func (d *document) complete(f *Facts, seen map[string]int, at int) {
	if len(d.problems) > 0 {
		return
	}
	_, of := seen["of"]
	switch {
	case f.Parent == "":
		d.problem(at, "the key \"parent\" is missing", "it names the record that the file belongs to")
	case f.Role == attachment.RolePreview && !of:
		d.problem(seen["role"], "a preview needs the key \"of\"", "the ID of what it is a preview of")
	case f.Role != attachment.RolePreview && of:
		d.problem(seen["of"], "\"of\" belongs to role \"preview\" alone", "")
	}
}

// fact reads the value of one key.
func (d *document) fact(f *Facts, key string, _ int) {
	switch key {
	case "version":
		d.version()
	case "parent":
		f.Parent = d.text("a record's ID", maxParent, func(r rune) bool { return !unicode.IsControl(r) })
	case "captured_at":
		d.capturedAt(f)
	case "role":
		at := d.next()
		if s, ok := d.str(); ok {
			if f.Role = attachment.Role(s); f.Role != attachment.RoleOriginal && f.Role != attachment.RolePreview {
				d.problem(at, "want \"original\" or \"preview\", got "+quote(s), "")
			}
		}
	case "of":
		f.Of = d.id()
	case "supersedes":
		f.Supersedes = d.id()
	case "priority":
		f.Priority = d.whole(0, attachment.MaxPriority)
	case "description":
		f.Description = d.text("a description", maxDescription, unicode.IsPrint)
	}
}

func (d *document) version() {
	at := d.next()
	if n := d.whole(1, 1<<30); n > Version {
		d.problem(at, fmt.Sprintf("version %d; this build reads version %d", n, Version), "")
	}
}

func (d *document) capturedAt(f *Facts) {
	at := d.next()
	s, ok := d.str()
	if !ok {
		return
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(s)); err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		d.problem(at, "want a time such as \"2026-03-04T05:06:07Z\", got "+quote(s), "")
		return
	}
	f.CapturedAt = t.UTC()
}

// text reads a string that is not empty, of at most limit bytes, of allowed characters.
func (d *document) text(what string, limit int, allowed func(rune) bool) string {
	at := d.next()
	s, ok := d.str()
	switch {
	case !ok:
	case s == "":
		d.problem(at, what+" is empty", "leave the key out")
	case len(s) > limit:
		d.problem(at, fmt.Sprintf("%s has at most %d bytes, this one has %d", what, limit, len(s)), "")
	case strings.ContainsFunc(s, func(r rune) bool { return !allowed(r) }):
		d.problem(at, what+" holds a character that cannot be shown", "")
	}
	return s
}

func (d *document) id() attachment.ID {
	at := d.next()
	s, ok := d.str()
	if !ok {
		return ""
	}
	id, err := attachment.ParseID(s)
	if err != nil {
		d.problem(at, "want the ID of an attachment, got "+quote(s), "")
	}
	return id
}

func (d *document) whole(low, high int) int {
	at := d.next()
	number, ok := d.token().(json.Number)
	n, err := strconv.Atoi(number.String())
	if !ok || err != nil || n < low || n > high {
		d.skipFrom(at)
		want := fmt.Sprintf("want a whole number from %d to %d", low, high)
		if low == 1 {
			want = "want a version, a whole number"
		}
		d.problem(at, want, "")
		return low
	}
	return n
}
