package config

import (
	"bytes"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2/unstable"
)

// place is where something stands in a document.
type place struct {
	line  int
	table bool // it can hold keys
}

// placesIn returns the place of every key, table and array element of a document that parses, by key path. A table
// that is opened more than once keeps its first line.
//
// The decoder of go-toml forgets positions once a value is decoded, so rules that run afterwards need this.
func placesIn(doc []byte) map[string]place {
	x := &indexer{places: map[string]place{}, p: &unstable.Parser{}}
	for i, c := range doc {
		if c == '\n' {
			x.newlines = append(x.newlines, i)
		}
	}
	x.p.Reset(doc)
	table := ""
	for x.p.NextExpression() {
		switch e := x.p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = x.keys("", e, true)
		case unstable.KeyValue:
			x.keyValue(table, e)
		}
	}
	return x.places
}

type indexer struct {
	p        *unstable.Parser
	newlines []int // offsets, ascending
	places   map[string]place
}

// keys records each step of a dotted key below prefix and returns the whole path. Every step but the last is a table;
// table says whether the last one is.
func (x *indexer) keys(prefix string, n *unstable.Node, table bool) string {
	const longest = 4096 // bytes; keys of ours are short, and the paths of a key of n steps cost n² bytes
	path := prefix
	for it := n.Key(); it.Next() && len(path) < longest; {
		path = joinPath(path, string(it.Node().Data))
		x.note(path, it.Node(), table || !it.IsLast())
	}
	return path
}

func (x *indexer) keyValue(table string, n *unstable.Node) {
	path := x.keys(table, n, n.Value().Kind == unstable.InlineTable)
	x.value(path, n.Value())
}

// value records what lies inside a value. Elements of nested arrays stay with the line of the outer one: no key of
// ours has any.
func (x *indexer) value(path string, n *unstable.Node) {
	switch n.Kind {
	case unstable.InlineTable:
		for it := n.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				x.keyValue(path, it.Node())
			}
		}
	case unstable.Array:
		i := 0
		for it := n.Children(); it.Next(); i++ {
			if it.Node().Raw.Length > 0 {
				x.note(elementPath(path, i), it.Node(), false)
			}
		}
	}
}

func (x *indexer) note(path string, n *unstable.Node, table bool) {
	if _, known := x.places[path]; !known {
		x.places[path] = place{1 + sort.SearchInts(x.newlines, int(n.Raw.Offset)), table}
	}
}

// joinPath appends a key to a path, quoting what TOML would have to quote.
func joinPath(path, key string) string {
	if !isBare(key) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func elementPath(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// isBare reports whether a key needs no quotes (TOML 1.0, Keys).
func isBare(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
	})
}

// tokenText matches a device token, which somebody may have pasted into the file.
var tokenText = regexp.MustCompile(`fgw1\.[^\s"']*`)

// excerpt renders one line of a document and a caret under the given column (1-based, in bytes).
func excerpt(doc []byte, line, column int) string {
	const before, after = 60, 40 // letters shown around the place
	all := bytes.Split(doc, []byte("\n"))
	if line < 1 || line > len(all) {
		return ""
	}
	text := strings.TrimSuffix(string(all[line-1]), "\r")
	split := min(max(column-1, 0), len(text))
	for split > 0 && split < len(text) && !utf8.RuneStart(text[split]) {
		split--
	}
	left, right := visible(text[:split]), visible(text[split:])
	if whole := tokenText.ReplaceAllString(text, "fgw1.…"); whole != text {
		// The caret's place inside the line is lost with the token; the line number is enough.
		return fmt.Sprintf("  %d | %s", line, string(visible(whole)))
	}
	if len(left) > before {
		left = append([]rune("…"), left[len(left)-before:]...)
	}
	if len(right) > after {
		right = append(right[:after:after], '…')
	}
	number := strconv.Itoa(line)
	return fmt.Sprintf("  %s | %s%s\n  %s | %s^", number, string(left), string(right),
		strings.Repeat(" ", len(number)), strings.Repeat(" ", len(left)))
}

// visible replaces what a terminal would not show as one letter by a blank or a replacement mark.
func visible(s string) []rune {
	out := []rune(strings.ToValidUTF8(s, "\uFFFD"))
	for i, r := range out {
		switch {
		case r == '\t':
			out[i] = ' '
		case !unicode.IsPrint(r):
			out[i] = '\uFFFD'
		}
	}
	return out
}
