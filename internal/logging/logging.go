// Package logging makes the one logger of a process: log/slog records, written as text, as JSON or into systemd's
// journal with every attribute as a field of its own. It promises that no foreign text (a file name, a server's
// answer) can forge a line of text output, that a record which the journal does not take is written as text instead,
// and, with [Repeat], that a lasting failure does not fill the log.
//
// Read keys.go first: attributes have fixed keys.
package logging

import (
	"encoding"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
)

// Format says how records are written.
type Format string

// The formats.
const (
	FormatAuto    Format = "auto"    // FormatJournal where standard error is the journal's stream, else FormatText
	FormatText    Format = "text"    // key=value lines, local time
	FormatJSON    Format = "json"    // one object per line, times in UTC, durations in nanoseconds
	FormatJournal Format = "journal" // systemd's native protocol, whatever Writer is
)

// Options are the choices of New.
type Options struct {
	Level  slog.Level // the least severity that is written
	Format Format     // FormatAuto when empty or unknown
	Writer io.Writer  // where text and JSON go, and what the journal refuses; usually standard error, never nil
}

// New returns a logger and the level it obeys, which may be changed while the logger is in use. It starts nothing and
// cannot fail: a logger is what tells of failures.
func New(o Options) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(o.Level)
	switch o.Format {
	case FormatText:
		return slog.New(newText(o.Writer, level)), level
	case FormatJSON:
		return slog.New(newJSON(o.Writer, level)), level
	case FormatJournal:
		return slog.New(newJournal(journal.Send, newText(o.Writer, level), level)), level
	default:
		o.Format = FormatText
		if toJournal(o.Writer) {
			o.Format = FormatJournal
		}
		return New(o)
	}
}

// toJournal reports whether w is standard error and systemd connected it to the journal. A malformed $JOURNAL_STREAM
// connects nothing.
func toJournal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || f.Fd() != 2 {
		return false
	}
	is, err := journal.StderrIsJournalStream()
	return err == nil && is
}

// newText relies on slog.TextHandler, which quotes (strconv.Quote) what is not printable or holds a blank, in messages,
// keys and values alike. It lets the one control character DEL pass, hence escape.
func newText(w io.Writer, level slog.Leveler) slog.Handler {
	escape := strings.NewReplacer("\x7f", `\x7f`).Replace
	return slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == KeyMessageID {
				return slog.Attr{} // means something to the journal only
			}
			builtin := len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey)
			switch k := a.Value.Kind(); {
			case k == slog.KindString:
				a.Value = slog.StringValue(escape(cut(a.Value.String())))
			case k == slog.KindAny && !builtin:
				a.Value = slog.StringValue(escape(anyText(a.Value.Any())))
			}
			a.Key = escape(a.Key)
			return a
		},
	})
}

func newJSON(w io.Writer, level slog.Leveler) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindTime {
				return slog.Time(a.Key, a.Value.Time().UTC())
			}
			if a.Value.Kind() == slog.KindString {
				return slog.String(a.Key, cut(a.Value.String()))
			}
			if err, ok := a.Value.Any().(error); ok {
				return slog.String(a.Key, anyText(err))
			}
			return a
		},
	})
}

// maxValue bounds one string or error, in bytes; a server's answer or a stack may come along as an error.
const maxValue = 16 << 10

// cut shortens what is longer than maxValue and marks the cut.
func cut(s string) string {
	if len(s) <= maxValue {
		return s
	}
	return s[:maxValue] + "…(cut)"
}

// anyText renders a value by its own methods. It survives a method that panics, such as Error of a nil pointer in an
// interface: logging an error must not be the crash.
func anyText(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T whose text cannot be read", v)
		}
	}()
	switch x := v.(type) {
	case nil:
		return ""
	case error:
		return cut(x.Error())
	case encoding.TextMarshaler:
		if b, err := x.MarshalText(); err == nil {
			return cut(string(b))
		}
	case []byte:
		return cut(string(x))
	}
	return cut(fmt.Sprintf("%+v", v))
}
