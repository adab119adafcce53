// Package placement names where an attachment lies at a server that takes names instead of giving them: a template over facts
// that never change, such as {parent}/{date}/{id}-{filename}. It promises that two attachments never get one name, and that
// whatever captures and records are called, a name stays below where it is put and fits every server's file system.
package placement

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Default is the template where none is configured.
const Default = "{parent}/{date}/{id}-{filename}"

// ErrBadTemplate is returned by Parse; the text says what is wrong.
var ErrBadTemplate = errors.New("unusable template")

// Bounds, in bytes. A segment made of an ID, a name and a few letters stays below what file systems take (255).
const (
	maxTemplate = 512
	maxSegment  = 255
	maxValue    = 120
	maxExt      = 16
)

// noParent stands for the parent of what belongs to nothing.
const noParent = "no-parent"

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
func Parse(text string) (Template, error) {
	bad := func(format string, args ...any) (Template, error) {
		return Template{}, fmt.Errorf("%w: "+format, append([]any{ErrBadTemplate}, args...)...)
	}
	if text == "" || len(text) > maxTemplate || !utf8.ValidString(text) {
		return bad("want 1 to %d bytes of UTF-8", maxTemplate)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }) {
		return bad("a sign that does not belong into a name")
	}
	if !strings.Contains(text, "{id}") {
		return bad("without {id} two files could get one name")
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
