package placement

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

func manifest(filename, parent string) *attachment.Manifest {
	m := &attachment.Manifest{
		ID: "01979e6a-7b1c-7def-8123-456789abcdef", Filename: attachment.NameOf(filename), Role: attachment.RoleOriginal,
		CapturedAt: time.Date(2026, 3, 4, 23, 30, 0, 0, time.FixedZone("", -7200)),
	}
	if parent != "" {
		m.Parent.LocalID = attachment.NameOf(parent)
	}
	return m
}

// A name is made of the facts, in UTC, and stays where it is put whatever things are called.
func TestPath(t *testing.T) {
	long := strings.Repeat("ü", 200) + ".jpeg"
	for _, c := range []struct{ template, filename, parent, want string }{
		{Default, "a b.jpg", "insp-7", "insp-7/2026-03-05/01979e6a-7b1c-7def-8123-456789abcdef-a b.jpg"},
		{"{parent}/{id}", "x", "", "no-parent/01979e6a-7b1c-7def-8123-456789abcdef"},
		{"{parent}/{id}", "x", "..", ".._/01979e6a-7b1c-7def-8123-456789abcdef"},
		{"{filename}/{id}", "../../etc\n", "", ".._.._etc_/01979e6a-7b1c-7def-8123-456789abcdef"},
		{"x-{year}{month}{day}/{id}.{role}", "x", "", "x-20260305/01979e6a-7b1c-7def-8123-456789abcdef.original"},
		{"{id}{filename}", long, "", "01979e6a-7b1c-7def-8123-456789abcdef" + strings.Repeat("ü", 57) + ".jpeg"},
		{"{id}{filename}", "\xff\xfe/", "", "01979e6a-7b1c-7def-8123-456789abcdef" + tame(attachment.NameOf("\xff\xfe/").Text)},
	} {
		parsed, err := Parse(c.template)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		if got := parsed.Path(manifest(c.filename, c.parent)); got != c.want {
			t.Errorf("%s: %q, want %q", c.template, got, c.want)
		}
	}
}

// What could give two attachments one name, or lead elsewhere, is refused.
func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "{parent}", "/{id}", "{id}/", "a//{id}", "./{id}", "../{id}", "{id", "id}", "{id}{", "{id}}", "{Id}{id}", "{}{id}", "{id}\n", `a\{id}`,
		"{id}{filename}{parent}", "{id}\xff", strings.Repeat("x", 600) + "{id}",
	} {
		if _, err := Parse(text); !errors.Is(err, ErrBadTemplate) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzPath: no name of a capture or a record leads out of its place or cannot be written.
func FuzzPath(f *testing.F) {
	f.Add("{parent}/{date}/{id}-{filename}", "a.jpg", "insp-7")
	f.Add("{filename}/{parent}{id}", "..", "/")
	f.Fuzz(func(t *testing.T, template, filename, parent string) {
		parsed, err := Parse(template)
		if err != nil || filename == "" {
			return
		}
		m := manifest(filename, parent)
		got := parsed.Path(m)
		if !strings.Contains(got, string(m.ID)) || !utf8.ValidString(got) ||
			strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }) {
			t.Errorf("%q", got)
		}
		for segment := range strings.SplitSeq(got, "/") {
			if len(segment) > 255 || segment == "" || segment == "." || segment == ".." {
				t.Errorf("%q has a segment %q", got, segment)
			}
		}
		if strings.Count(got, "/") != strings.Count(template, "/") {
			t.Errorf("%q of %q", got, template)
		}
	})
}
