// Package placement names where an attachment lies at a server that takes names instead of giving them: a template over facts
// that never change, such as {parent}/{date}/{id}-{filename}. It promises that two attachments never get one name, or only two
// of the same bytes where a template says so, and that whatever captures and records are called, a name stays below where it is put and fits every server's file system.
package placement

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Default is the template where none is configured, and DefaultKey the one for the keys of objects.
const (
	Default    = "{parent}/{date}/{id}-{filename}"
	DefaultKey = "{account}/" + Default
)

// ErrBadTemplate is returned by Parse; the text says what is wrong.
var ErrBadTemplate = errors.New("unusable template")

// Bounds, in bytes. A segment made of an ID, a name and a few letters stays below what file systems take (255).
const (
	maxTemplate = 512
	maxSegment  = 255
	maxValue    = 120
	maxExt      = 16
	maxKey      = 1024 // Amazon S3 User Guide, "Naming Amazon S3 objects"
)

// noParent stands for the parent of what belongs to nothing, noDevice for the name of a device without one.
const (
	noParent = "no-parent"
	noDevice = "no-device"
)

// facts are the placeholders. Each is immutable from the adoption on, but for the parent, which is bound before sending.
var facts = []struct {
	name string
	most int // bytes
	of   func(*attachment.Manifest) string
}{
	{"id", 36, func(m *attachment.Manifest) string { return string(m.ID) }},
	{"parent", maxValue, func(m *attachment.Manifest) string {
		if m.Parent.LocalID.Empty() {
			return noParent
		}
		return m.Parent.LocalID.Text
	}},
	{"date", 10, func(m *attachment.Manifest) string { return m.CapturedAt.UTC().Format("2006-01-02") }},
	{"year", 4, func(m *attachment.Manifest) string { return m.CapturedAt.UTC().Format("2006") }},
	{"month", 2, func(m *attachment.Manifest) string { return m.CapturedAt.UTC().Format("01") }},
	{"day", 2, func(m *attachment.Manifest) string { return m.CapturedAt.UTC().Format("02") }},
	{"filename", maxValue, func(m *attachment.Manifest) string { return m.Filename.Text }},
	{"sha256", 64, func(m *attachment.Manifest) string { return m.SHA256.String() }},
	{"role", 8, func(m *attachment.Manifest) string { return string(m.Role) }},
}

// Names lists the placeholders.
func Names() []string {
	names := make([]string, len(facts))
	for i, f := range facts {
		names[i] = "{" + f.name + "}"
	}
	return names
}

// Template is a parsed template. The zero value names nothing.
type Template struct{ segments [][]part }

// part is literal text, or a fact.
type part struct {
	text string
	fact func(*attachment.Manifest) string
	most int // bytes of the fact
}

// Parse reads a template strictly: segments between single slashes, none of them empty, "." or "..", of printable text and
// placeholders, with {id} among them. Errors wrap ErrBadTemplate.
func Parse(text string) (Template, error) { return parse(text, "{id}") }

// ParseKey reads a template for the keys of objects in a store. It may have {sha256} in the place of {id}, so that the same
// bytes are one object, and {account} and {device}, which are names of letters, digits, hyphens and underscores.
func ParseKey(text, account, device string) (Template, error) {
	if device == "" {
		device = noDevice
	}
	t, err := parse(strings.NewReplacer("{account}", account, "{device}", device).Replace(text), "{id}", "{sha256}")
	if err != nil {
		return Template{}, err
	}
	longestKey := len(t.segments) - 1
	for _, parts := range t.segments {
		longestKey += longest(parts)
	}
	if longestKey > maxKey {
		return Template{}, fmt.Errorf("%w: a key may become %d bytes long, stores take %d", ErrBadTemplate, longestKey, maxKey)
	}
	return t, nil
}

// parse reads a template with one of the placeholders in it that make a name unique.
func parse(text string, unique ...string) (Template, error) {
	bad := func(format string, args ...any) (Template, error) {
		return Template{}, fmt.Errorf("%w: "+format, append([]any{ErrBadTemplate}, args...)...)
	}
	if text == "" || len(text) > maxTemplate || !utf8.ValidString(text) {
		return bad("want 1 to %d bytes of UTF-8", maxTemplate)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }) {
		return bad("a sign that does not belong into a name")
	}
	if !slices.ContainsFunc(unique, func(u string) bool { return strings.Contains(text, u) }) {
		return bad("without %s two files could get one name", strings.Join(unique, " or "))
	}
	var t Template
	for segment := range strings.SplitSeq(text, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return bad("an empty segment, or one that leads elsewhere")
		}
		parts, err := parseSegment(segment)
		if err != nil {
			return Template{}, err
		}
		if n := longest(parts); n > maxSegment {
			return bad("a segment may become %d bytes long, file systems take %d", n, maxSegment)
		}
		t.segments = append(t.segments, parts)
	}
	return t, nil
}

func parseSegment(text string) (parts []part, err error) {
	for text != "" {
		literal, rest, found := strings.Cut(text, "{")
		if strings.Contains(literal, "}") {
			return nil, fmt.Errorf("%w: } without {", ErrBadTemplate)
		}
		if literal != "" {
			parts = append(parts, part{text: literal})
		}
		if !found {
			return parts, nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return nil, fmt.Errorf("%w: { without }", ErrBadTemplate)
		}
		fact, most := factOf(name)
		if fact == nil {
			return nil, fmt.Errorf("%w: {%s} is unknown, there are %s", ErrBadTemplate, name, strings.Join(Names(), " "))
		}
		parts, text = append(parts, part{fact: fact, most: most}), after
	}
	return parts, nil
}

// longest is how many bytes a segment may become.
func longest(parts []part) (n int) {
	for _, p := range parts {
		n += len(p.text) + p.most
	}
	return n
}

func factOf(name string) (fact func(*attachment.Manifest) string, most int) {
	for _, f := range facts {
		if f.name == name {
			return f.of, f.most
		}
	}
	return nil, 0
}

// Path is the attachment's name: slash-separated segments of printable UTF-8, not escaped for anything.
func (t Template) Path(m *attachment.Manifest) string {
	segments := make([]string, len(t.segments))
	for i, parts := range t.segments {
		var b strings.Builder
		for _, p := range parts {
			if p.fact == nil {
				b.WriteString(p.text)
				continue
			}
			b.WriteString(short(tame(p.fact(m)), p.most))
		}
		segments[i] = b.String()
		if strings.Trim(segments[i], ".") == "" {
			segments[i] += "_"
		}
	}
	return strings.Join(segments, "/")
}

// tame makes one harmless part of a name.
func tame(value string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || strings.ContainsRune(`/\`, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(value, "_"))
}

// short cuts a value in front of its extension, between letters.
func short(value string, limit int) string {
	if len(value) <= limit {
		return value
	}
	ext := path.Ext(value)
	if len(ext) > maxExt {
		ext = ""
	}
	cut := limit - len(ext)
	for !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + ext
}
