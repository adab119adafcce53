package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/spelling"
)

// maxProblems bounds what one Load reports; a file that is something else altogether would give one per line.
const maxProblems = 100

// Problem is one thing wrong with the configuration.
type Problem struct {
	File    string // path of the file, or of the main file when no file set the value
	Line    int    // 1-based; 0 when the problem belongs to no line
	Path    string // key path such as uplink.chunk_size; empty for the file as a whole
	Message string // one line, without the values of secrets
	Hint    string // what to do about it; may be empty
	Excerpt string // for syntax errors: the line and a caret under the place; may be empty
}

// String renders the problem as "file:line: path: message (hint)", followed by the excerpt, if any, on lines of its own.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(printable(p.File))
	if p.Line > 0 {
		b.WriteString(":" + strconv.Itoa(p.Line))
	}
	if p.Path != "" {
		b.WriteString(": " + printable(p.Path))
	}
	b.WriteString(": " + printable(p.Message))
	if p.Hint != "" {
		b.WriteString(" (" + printable(p.Hint) + ")")
	}
	if p.Excerpt != "" {
		b.WriteString("\n" + p.Excerpt)
	}
	return b.String()
}

// Problems is everything wrong with a configuration, in the order of files and lines. It is returned as *Problems.
type Problems []Problem

// Error renders one problem per line.
func (p *Problems) Error() string {
	lines := make([]string, len(*p))
	for i, one := range *p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// valueError is a refusal of one value, with its remedy kept apart.
type valueError struct{ msg, hint string }

func (e *valueError) Error() string {
	if e.hint == "" {
		return e.msg
	}
	return e.msg + " (" + e.hint + ")"
}

// tokenPrefix begins every device token. A person may paste the token where its file belongs; it must not be echoed.
const tokenPrefix = "fgw1."

// quote renders a foreign value for a message: on one line, of bounded length, and never a token.
func quote(s string) string {
	const most = 60
	if strings.Contains(s, tokenPrefix) {
		return "a value that looks like a token"
	}
	if len(s) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return strconv.Quote(s[:cut]) + "…"
	}
	return strconv.Quote(s)
}

// printable escapes what could move a terminal's cursor or begin a line that is not ours.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// orList renders words as `"a", "b" or "c"`.
func orList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	last := len(quoted) - 1
	if last < 1 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// didYouMean returns the hint for a misspelt word, or nothing when no candidate is near.
func didYouMean(word string, candidates []string) string {
	if best := spelling.Nearest(word, candidates); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// sortProblems orders by file as the files were read, then by line, then by path.
func sortProblems(list []Problem, files []string) {
	rank := make(map[string]int, len(files))
	for i, f := range files {
		rank[f] = i
	}
	slices.SortStableFunc(list, func(a, b Problem) int {
		if d := rank[a.File] - rank[b.File]; d != 0 {
			return d
		}
		if d := a.Line - b.Line; d != 0 {
			return d
		}
		return strings.Compare(a.Path, b.Path)
	})
}
