package sidecar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/spelling"
)

// maxProblems bounds what one document is told.
const maxProblems = 20

// Problem is one thing wrong with a document. Line and Column begin at 1; a column is a character.
type Problem struct {
	Line, Column int
	Message      string
	// Hint is what was probably meant; may be empty.
	Hint string
}

// String renders the problem as "line:column: message (hint)".
func (p Problem) String() string {
	s := fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message)
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Error is everything wrong with a document, in the order of the document; there is at least one problem.
type Error struct{ Problems []Problem }

// Error gives the first problem and how many more there are, in one printable line.
func (e *Error) Error() string {
	if more := len(e.Problems) - 1; more > 0 {
		return fmt.Sprintf("%s, and %d more", e.Problems[0], more)
	}
	return e.Problems[0].String()
}

// document is one JSON text that is valid, on its way into facts. Offsets are into data.
type document struct {
	data     []byte
	dec      *json.Decoder
	problems []Problem
	over     bool // nothing follows
}

// open checks size, encoding and syntax; what follows can rely on them.
func open(data []byte, limit int) (*document, error) {
	d := &document{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	d.dec.UseNumber()
	var syntax *json.SyntaxError
	switch whole := (json.RawMessage{}); {
	case len(data) > limit:
		d.data = nil
		d.problem(0, fmt.Sprintf("the file is larger than %d bytes", limit), "")
	case bytes.HasPrefix(data, []byte("\ufeff")):
		d.problem(0, "the file begins with a byte order mark", "save it as UTF-8 without one")
	case len(bytes.TrimSpace(data)) == 0:
		d.problem(0, "the file is empty", "")
	case !utf8.Valid(data):
		d.problem(invalidAt(data), "this is not UTF-8", "")
	case errors.As(json.Unmarshal(data, &whole), &syntax):
		d.problem(max(0, int(syntax.Offset)-1), syntax.Error(), "")
	}
	return d, d.err()
}

func invalidAt(data []byte) (at int) {
	for at < len(data) {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

func (d *document) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	return &Error{Problems: d.problems}
}

// problem notes what is wrong at an offset.
func (d *document) problem(at int, message, hint string) {
	if len(d.problems) == maxProblems {
		return
	}
	before := d.data[:min(at, len(d.data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	d.problems = append(d.problems, Problem{Line: line, Column: column, Message: message, Hint: hint})
}

// offset is where the last token ended.
func (d *document) offset() int { return int(d.dec.InputOffset()) }

// next is where the next token begins.
func (d *document) next() int {
	at := d.offset()
	for at < len(d.data) && bytes.IndexByte([]byte(" \t\r\n,:"), d.data[at]) >= 0 {
		at++
	}
	return at
}

// token returns the next token. Syntax was checked, so that there is one; over only keeps a mistake here from never ending.
func (d *document) token() json.Token {
	t, err := d.dec.Token()
	d.over = d.over || err != nil
	return t
}

// object reads an object and calls value for each of its keys, which must read the value. Keys that are not known are
// refused, unless known is nil, and so are keys that come twice. seen holds where each key stands. first demands that
// the key "version" is there.
func (d *document) object(known []string, first bool, value func(key string, at int)) (seen map[string]int) {
	seen = map[string]int{}
	begin := d.next()
	if d.token() != json.Delim('{') {
		d.skipFrom(begin)
		d.problem(begin, "want an object in { }", "")
		return seen
	}
	for d.dec.More() && !d.over {
		at := d.next()
		key, ok := d.str()
		_, twice := seen[key]
		seen[key] = at
		switch {
		case !ok:
			d.skip()
		case twice:
			d.problem(at, "the key "+quote(key)+" stands here twice", "")
			d.skip()
		case known != nil && !slices.Contains(known, key):
			d.problem(at, "unknown key "+quote(key), suggest(key, known))
			d.skip()
		default:
			value(key, at)
		}
	}
	d.token()
	if _, there := seen["version"]; first && !there && len(d.problems) == 0 {
		d.problem(begin, "the key \"version\" is missing", fmt.Sprintf("\"version\": %d", Version))
	}
	return seen
}

func suggest(key string, known []string) string {
	if near := spelling.Nearest(key, known); near != "" {
		return near + "?"
	}
	return "known are " + strings.Join(known, ", ")
}

// str reads a string. An escape that stands for no character (RFC 8259, section 8.2) is refused: the decoder would replace
// it, and two names would become one.
func (d *document) str() (string, bool) {
	at := d.next()
	s, ok := d.token().(string)
	switch {
	case !ok:
		d.skipFrom(at)
		d.problem(at, "want a string in quotes", "")
		return "", false
	case strings.ContainsRune(s, utf8.RuneError):
		d.problem(at, "the string holds a character that was lost", "U+FFFD stands for it")
		return "", false
	}
	return s, true
}

// skip reads a value of any kind.
func (d *document) skip() { d.skipFrom(d.next()) }

// skipFrom reads to the end of the value that begins at an offset, whose first token may have been read.
func (d *document) skipFrom(begin int) {
	depth := 0
	if d.offset() > begin {
		if c := d.data[begin]; c != '{' && c != '[' {
			return
		}
		depth = 1
	}
	for {
		switch d.token() {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 || d.over {
			return
		}
	}
}

// quote renders a foreign string for a message: in one printable line of bounded length.
func quote(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}
