package attachment

import (
	"strings"
	"unicode/utf8"
)

// Name is a file name or an identifier that came from outside: its exact bytes, and a text that can be shown.
type Name struct {
	// Text is valid UTF-8: the bytes themselves, or a replacement for showing where they are not.
	Text string `json:"text"`
	// Raw holds the exact bytes where Text is not exact (JSON: base64).
	Raw []byte `json:"raw,omitempty"`
}

// NameOf keeps the exact bytes of s.
func NameOf(s string) Name {
	if utf8.ValidString(s) {
		return Name{Text: s}
	}
	return Name{Text: strings.ToValidUTF8(s, "\uFFFD"), Raw: []byte(s)}
}

// Exact returns the exact bytes.
func (n Name) Exact() string {
	if n.Raw != nil {
		return string(n.Raw)
	}
	return n.Text
}

// Empty reports whether there is no name at all.
func (n Name) Empty() bool { return n.Text == "" && n.Raw == nil }

// Printable returns a text that is safe on a terminal, in one line: control, formatting and bidirectional characters are
// written as escapes.
func (n Name) Printable() string { return Printable(n.Text) }

// Printable makes a foreign text safe for a terminal and for one line of a log.
func Printable(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			b.WriteString(escape(r))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
