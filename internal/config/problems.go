package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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
	if best := nearest(word, candidates); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// nearest returns the candidate with the smallest edit distance to word. Beyond a third of the letters (at least two)
// a likeness is an accident, and it returns "".
func nearest(word string, candidates []string) string {
	const longest = 64 // longer words are no misspelling of ours, and the distance costs their product
	if word == "" || len(word) > longest {
		return ""
	}
	best, bestDist := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(word), c); d < bestDist {
			best, bestDist = c, d
		}
	}
	// Two short words of the same length and without a common letter have a small distance as well.
	if bestDist >= min(len(word), len(best)) {
		return ""
	}
	return best
}

// editDistance counts insertions, deletions, substitutions and swaps of neighbours (optimal string alignment).
func editDistance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	before, prev := make([]int, len(rb)+1), make([]int, len(rb)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(ra); i++ {
		row := make([]int, len(rb)+1)
		row[0] = i
		for j := 1; j <= len(rb); j++ {
			cost := 1
			if ra[i-1] == rb[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(rb)]
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
