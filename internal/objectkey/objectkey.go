// Package objectkey makes the names of objects in a store from a template such as "{account}/{date}/{id}-{filename}".
//
// It promises that a template which Parse took gives a key that is no longer than a store allows, whose parts between
// slashes are all named, and in which nothing but the template's own slashes separates. It is pure.
package objectkey

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// Max is the longest key, in bytes of UTF-8 (Amazon S3 User Guide, "Naming Amazon S3 objects").
	Max = 1024
	// MaxText bounds the template's own text, in bytes, so that no value can make a key too long.
	MaxText = 256
	// maxValue bounds one name from outside, in bytes.
	maxValue = 160
)

// ErrTemplate is returned by Parse; the text says what is wrong.
var ErrTemplate = errors.New("not a template for keys")

// Facts are what an object is named after.
type Facts struct {
	ID, SHA256                        string // unique; of letters, digits and hyphens
	Account, Device, Parent, Filename string // anything
	Captured                          time.Time
}

var placeholders = map[string]func(f *Facts) string{
	"id":       func(f *Facts) string { return f.ID },
	"sha256":   func(f *Facts) string { return f.SHA256 },
	"account":  func(f *Facts) string { return name(f.Account) },
	"device":   func(f *Facts) string { return name(f.Device) },
	"parent":   func(f *Facts) string { return name(f.Parent) },
	"filename": func(f *Facts) string { return name(f.Filename) },
	"date":     func(f *Facts) string { return f.Captured.UTC().Format(time.DateOnly) },
	"year":     func(f *Facts) string { return f.Captured.UTC().Format("2006") },
	"month":    func(f *Facts) string { return f.Captured.UTC().Format("01") },
}

// Names are the placeholders, sorted.
func Names() []string {
	var names []string
	for n := range placeholders {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// piece is a text, or a placeholder.
type piece struct{ text, placeholder string }

// Template is a parsed template.
type Template struct{ pieces []piece }

// Parse reads a template. Each placeholder may stand in it once, and {id} or {sha256} must, so that no two files get one
// key. Errors wrap ErrTemplate.
func Parse(text string) (*Template, error) {
	t := &Template{}
	own := 0
	seen := map[string]bool{}
	for rest := text; rest != ""; {
		literal, after, opens := strings.Cut(rest, "{")
		own += len(literal)
		if bad := strings.IndexFunc(literal, unfit); bad >= 0 || strings.Contains(literal, "}") {
			return nil, fmt.Errorf("%w: %q holds a sign that no key may have", ErrTemplate, literal)
		}
		if literal != "" {
			t.pieces = append(t.pieces, piece{text: literal})
		}
		if !opens {
			break
		}
		placeholder, behind, closes := strings.Cut(after, "}")
		switch {
		case !closes:
			return nil, fmt.Errorf("%w: a { without its }", ErrTemplate)
		case placeholders[placeholder] == nil:
			return nil, fmt.Errorf("%w: there is no {%.40s}", ErrTemplate, strings.ToValidUTF8(placeholder, "?"))
		case seen[placeholder]:
			return nil, fmt.Errorf("%w: {%s} stands in it twice", ErrTemplate, placeholder)
		}
		seen[placeholder] = true
		t.pieces = append(t.pieces, piece{placeholder: placeholder})
		rest = behind
	}
	switch {
	case !seen["id"] && !seen["sha256"]:
		return nil, fmt.Errorf("%w: it needs {id} or {sha256}, so that no two files get one name", ErrTemplate)
	case own > MaxText:
		return nil, fmt.Errorf("%w: %d bytes beside its placeholders, at most %d", ErrTemplate, own, MaxText)
	}
	// Every value is a name, so that the template alone can make a part that is none.
	for part := range strings.SplitSeq(t.Key(Facts{ID: "x", SHA256: "x", Filename: "x", Parent: "x", Account: "x", Device: "x"}), "/") {
		if part == "" || strings.Trim(part, ".") == "" {
			return nil, fmt.Errorf("%w: a part between slashes is empty or only dots", ErrTemplate)
		}
	}
	return t, nil
}

// Key names the object of f.
func (t *Template) Key(f Facts) string {
	var b strings.Builder
	for _, p := range t.pieces {
		b.WriteString(p.text)
		if p.placeholder != "" {
			b.WriteString(placeholders[p.placeholder](&f))
		}
	}
	return b.String()
}

// unfit are the characters that separate, steer, or do not survive in every store and tool.
func unfit(r rune) bool {
	return r == utf8.RuneError || !unicode.IsPrint(r) || r == '\\'
}

// name makes one part of a key, or a piece of one, from a text of any origin: it is never empty, has no slash, and something
// else than dots.
func name(text string) string {
	text = strings.Map(func(r rune) rune {
		if unfit(r) || r == '/' {
			return '_'
		}
		return r
	}, text)
	if strings.Trim(text, ".") == "" {
		return strings.Repeat("_", max(1, min(len(text), maxValue)))
	}
	return shorten(text)
}

// shorten keeps the beginning and, for the sake of what opens the file, a short extension.
func shorten(text string) string {
	if len(text) <= maxValue {
		return text
	}
	extension := ""
	if dot := strings.LastIndexByte(text, '.'); dot >= 0 && len(text)-dot <= 16 {
		extension = text[dot:]
	}
	cut := maxValue - len(extension)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + extension
}
