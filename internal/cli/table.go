package cli

import (
	"io"
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// screen measures text in columns of a terminal. The locale is not asked: the same answer looks the same everywhere.
var screen = &runewidth.Condition{StrictEmojiNeutral: true}

// ellipsis ends a text that was cut.
const ellipsis = "…"

// style is how a cell looks where colours are shown. The text says the same without it.
type style string

// The styles, as parameters of SGR (ECMA-48, 8.3.117).
const (
	plain   style = ""
	strong  style = "1"
	good    style = "32"
	waits   style = "33"
	bad     style = "1;31"
	working style = "36"
)

func (s style) paint(text string, color bool) string {
	if s == plain || !color || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// cell is one field of a table. Its text is printable already.
type cell struct {
	text  string
	style style
}

func cells(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, t := range texts {
		row[i].text = t
	}
	return row
}

// column describes one column. limit is its largest width on the screen; 0 means as wide as it gets.
type column struct {
	title string
	limit int
	right bool
	// middle: what is too wide loses its middle rather than its end.
	middle bool
}

// fit shortens a text to the column's limit.
func (c *column) fit(text string) string {
	switch {
	case c.limit == 0 || screen.StringWidth(text) <= c.limit:
		return text
	case !c.middle:
		return screen.Truncate(text, c.limit, ellipsis)
	}
	// A path's end tells more than its beginning.
	head := c.limit / 3
	return screen.Truncate(text, head, "") + screen.TruncatePrefix(text, c.limit-head, ellipsis)
}

// table prints rows in columns that are aligned by their width on the screen. It prints in blocks: each is aligned with what came
// before where the widths allow, so that a long list is never collected.
type table struct {
	columns []column
	indent  string
	color   bool
	widths  []int
}

// print writes a block of rows, the first time below the titles. The last column is not padded.
func (t *table) print(w io.Writer, rows [][]cell) error {
	var b strings.Builder
	first := t.widths == nil
	if first {
		t.widths = make([]int, len(t.columns))
		for i, c := range t.columns {
			t.widths[i] = screen.StringWidth(c.title)
		}
	}
	for _, row := range rows {
		for i, c := range t.columns {
			row[i].text = c.fit(row[i].text)
			t.widths[i] = max(t.widths[i], screen.StringWidth(row[i].text))
		}
	}
	if first {
		titles := make([]cell, len(t.columns))
		for i, c := range t.columns {
			titles[i] = cell{c.title, strong}
		}
		t.line(&b, titles)
	}
	for _, row := range rows {
		t.line(&b, row)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *table) line(b *strings.Builder, row []cell) {
	b.WriteString(t.indent)
	for i, c := range t.columns {
		pad := strings.Repeat(" ", t.widths[i]-screen.StringWidth(row[i].text))
		shown := row[i].style.paint(row[i].text, t.color)
		switch {
		case c.right:
			b.WriteString(pad + shown)
		case i == len(t.columns)-1:
			b.WriteString(shown)
		default:
			b.WriteString(shown + pad)
		}
		if i < len(t.columns)-1 {
			b.WriteString("  ")
		}
	}
	b.WriteString("\n")
}

// marks stand before a condition, so that it is told by more than a colour.
var marks = map[attachment.Condition]struct {
	mark  string
	style style
}{
	attachment.ShownAttention: {"!", bad},
	attachment.ShownReview:    {"?", bad},
	attachment.ShownUploading: {">", working},
	attachment.ShownWaiting:   {"~", waits},
	attachment.ShownPaused:    {"=", waits},
	attachment.ShownCaptured:  {".", waits},
	attachment.ShownUploaded:  {"^", working},
	attachment.ShownSent:      {"^", waits},
	attachment.ShownDelivered: {"+", good},
	attachment.ShownDiscarded: {"x", plain},
	attachment.ShownCancelled: {"x", plain},
}

// condition is the cell of a condition; one that this version does not know gets a mark too. A grade follows where bytes were
// sent without a receipt that counts.
func condition(c attachment.Condition, grade string) cell {
	m, known := marks[c]
	if !known {
		m.mark = "*"
	}
	text := m.mark + " " + attachment.Printable(string(c))
	if c == attachment.ShownSent && grade != "" {
		text += " (" + attachment.Printable(grade) + ")"
	}
	return cell{text, m.style}
}
