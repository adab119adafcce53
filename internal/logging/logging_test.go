package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
)

// foreign is text as an attacker would name a file.
var foreign = []string{
	"a\nlevel=ERROR msg=forged",
	"a\r\ntime=2026 level=INFO",
	"\x1b[2J\x1b[1;1H",
	"photo\u202egpj.exe",
	"\u009b31m",
	"\x9b31m",
	"\u2028next",
	"plain x=y \"quoted\"",
	"\x00",
	"\x7f",
}

// isOneSafeLine reports whether text is a single line that a terminal shows as it is.
func isOneSafeLine(text string) bool {
	line, rest, ended := strings.Cut(text, "\n")
	return ended && rest == "" && !strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}

// No name, error or group can begin a line of text output or reach the terminal as a control sequence.
func TestTextCannotBeForged(t *testing.T) {
	for _, name := range foreign {
		var out bytes.Buffer
		log, _ := New(Options{Format: FormatText, Writer: &out})
		log.WithGroup("g").With(name, name).Info(name, KeyPath, name, KeyErr, errors.New(name), "any", struct{ X string }{name}, "bytes", []byte(name))
		if !isOneSafeLine(out.String()) {
			t.Errorf("%q makes %q", name, out.String())
		}
	}
}

// The level decides what is written, also after it was changed.
func TestLevel(t *testing.T) {
	for _, format := range []Format{FormatText, FormatJSON} {
		var out bytes.Buffer
		log, level := New(Options{Level: slog.LevelWarn, Format: format, Writer: &out})
		log.Info("no")
		log.Warn("one")
		level.Set(slog.LevelDebug)
		log.Debug("two")
		level.Set(slog.LevelError)
		log.Warn("no")
		if got := strings.Count(out.String(), "\n"); got != 2 || strings.Contains(out.String(), "no") {
			t.Errorf("%s: %q", format, out.String())
		}
	}
}

// JSON has UTC times and errors as text; text leaves the journal's message ID out.
func TestFormats(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 5e6, time.FixedZone("x", 3600))
	var out bytes.Buffer
	log, _ := New(Options{Format: FormatJSON, Writer: &out})
	log.Info("m", KeyNotBefore, at, KeyErr, fmt.Errorf("a: %w", os.ErrNotExist), KeyBytes, 7)
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	stamp, ok := got["time"].(string)
	if !ok || !strings.HasSuffix(stamp, "Z") || got["not_before"] != "2026-11-30T11:00:00.005Z" || got["err"] != "a: file does not exist" || got["bytes"] != 7.0 {
		t.Errorf("got %v", got)
	}
	out.Reset()
	log, _ = New(Options{Format: FormatText, Writer: &out})
	log.Info("m", KeyMessageID, "0123456789abcdef0123456789abcdef", KeySeq, 1)
	if !strings.HasSuffix(out.String(), "level=INFO msg=m seq=1\n") {
		t.Errorf("got %q", out.String())
	}
}

// nilError is an error whose method cannot stand a nil receiver.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// A value that is very long is cut, and one whose method panics does not end the program.
func TestOddValues(t *testing.T) {
	long := strings.Repeat("x", maxValue+1)
	var missing *nilError
	for _, format := range []Format{FormatText, FormatJSON} {
		var out bytes.Buffer
		log, _ := New(Options{Format: format, Writer: &out})
		log.Info("m", "s", long, KeyErr, errors.New(long), "nil", missing)
		text := out.String()
		if strings.Contains(text, long) || strings.Count(text, "…(cut)") != 2 || !strings.Contains(text, "whose text cannot be read") {
			t.Errorf("%s: %d bytes, %d cuts", format, len(text), strings.Count(text, "…(cut)"))
		}
	}
}

// standardError is file descriptor 2 itself: under go test -json os.Stderr is another one. It is never collected, so that
// nothing closes the descriptor.
var standardError = os.NewFile(uintptr(syscall.Stderr), "/dev/stderr")

// Automatic choice takes the journal only when the writer is standard error and that is the journal's stream.
func TestAutoFormat(t *testing.T) {
	isJournal := func(o Options) bool {
		log, _ := New(o)
		_, is := log.Handler().(*journalHandler)
		return is
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(2, &stat); err != nil {
		t.Fatal(err)
	}
	t.Setenv("JOURNAL_STREAM", fmt.Sprintf("%d:%d", stat.Dev, stat.Ino))
	stderr := standardError
	if !isJournal(Options{Writer: stderr}) || !isJournal(Options{Writer: stderr, Format: "unknown"}) ||
		!isJournal(Options{Writer: &bytes.Buffer{}, Format: FormatJournal}) {
		t.Error("the journal is not used on its own stream")
	}
	if isJournal(Options{Writer: &bytes.Buffer{}}) || isJournal(Options{Writer: os.Stdin}) ||
		isJournal(Options{Writer: stderr, Format: FormatText}) || isJournal(Options{Writer: stderr, Format: FormatJSON}) {
		t.Error("the journal is used against the caller's choice")
	}
	for _, other := range []string{"", "1:1", "nonsense"} {
		t.Setenv("JOURNAL_STREAM", other)
		if isJournal(Options{Writer: stderr}) {
			t.Errorf("the journal is used with JOURNAL_STREAM=%q", other)
		}
	}
}
