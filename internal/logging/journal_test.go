package logging

import (
	"bytes"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
)

// fakeJournal keeps what it is sent, until it is broken.
type fakeJournal struct {
	message  string
	priority journal.Priority
	fields   map[string]string
	sent     int
	broken   error
}

func (f *fakeJournal) send(message string, p journal.Priority, fields map[string]string) error {
	if f.broken != nil {
		return f.broken
	}
	f.message, f.priority, f.fields = message, p, fields
	f.sent++
	return nil
}

// open returns a logger into the journal and the text that it falls back to.
func (f *fakeJournal) open() (*slog.Logger, *slog.LevelVar, *bytes.Buffer) {
	level, text := new(slog.LevelVar), new(bytes.Buffer)
	return slog.New(newJournal(f.send, newText(text, level), level)), level, text
}

// textID has its text from MarshalText, as attachment IDs may.
type textID [2]byte

func (id textID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// Attributes become fields with their exact values, groups and With become prefixes, and MESSAGE reads like text output.
func TestJournalFields(t *testing.T) {
	var j fakeJournal
	log, _, text := j.open()
	name := "a\nb\x1b[31m.jpg"
	log = log.With(KeyAttachment, "0198", slog.Group("net", "host", "h")).WithGroup("up").WithGroup("")
	log.Warn("upload interrupted", KeyPath, name, slog.Group("", "in", 1), slog.Group("g", slog.Group("h", "x-y", true)),
		KeyNotBefore, time.Date(2026, 11, 30, 12, 0, 0, 0, time.FixedZone("x", 3600)), KeyDuration, 90*time.Second,
		KeyErr, errors.New("e e"), "id", textID{0xab, 1}, "nil", nil, slog.Attr{}, "raw", []byte("b"), "v", struct{ A int }{2})
	delete(j.fields, "SYSLOG_IDENTIFIER")
	want := map[string]string{
		"FIELDGW_ATTACHMENT": "0198", "FIELDGW_NET_HOST": "h", "FIELDGW_UP_PATH": name, "FIELDGW_UP_IN": "1", "FIELDGW_UP_G_H_X_Y": "true",
		"FIELDGW_UP_NOT_BEFORE": "2026-11-30T11:00:00Z", "FIELDGW_UP_DURATION": "1m30s", "FIELDGW_UP_ERR": "e e", "FIELDGW_UP_ID": "ab01",
		"FIELDGW_UP_NIL": "", "FIELDGW_UP_RAW": "b", "FIELDGW_UP_V": "{A:2}",
	}
	if !maps.Equal(j.fields, want) {
		t.Errorf("fields\n got %q\nwant %q", j.fields, want)
	}
	message := `upload interrupted attachment=0198 net_host=h up_path="a\nb\x1b[31m.jpg" up_in=1 up_g_h_x-y=true ` +
		`up_not_before=2026-11-30T11:00:00Z up_duration=1m30s up_err="e e" up_id=ab01 up_nil="" up_raw=b up_v={A:2}`
	if j.message != message || j.priority != journal.PriWarning {
		t.Errorf("priority %d, message\n got %s\nwant %s", j.priority, j.message, message)
	}
	if text.Len() > 0 {
		t.Errorf("written as text as well: %s", text)
	}
}

// A message ID becomes MESSAGE_ID when it is one, and only outside groups.
func TestJournalMessageID(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	var j fakeJournal
	log, _, _ := j.open()
	for _, c := range []struct{ in, want string }{
		{id, id}, {strings.ToUpper(id), id}, {"01234567-89ab-cdef-0123-456789abcdef", id}, {"0123", ""}, {strings.Repeat("g", 32), ""}, {"", ""},
	} {
		log.Info("m", KeyMessageID, c.in)
		if got := j.fields["MESSAGE_ID"]; got != c.want || strings.Contains(j.message, KeyMessageID) != (c.want == "") {
			t.Errorf("%q: MESSAGE_ID=%q, message %q", c.in, got, j.message)
		}
	}
	log.WithGroup("g").Info("m", KeyMessageID, id)
	if _, set := j.fields["MESSAGE_ID"]; set {
		t.Error("an attribute inside a group sets MESSAGE_ID")
	}
	if j.fields["SYSLOG_IDENTIFIER"] == "" {
		t.Error("no SYSLOG_IDENTIFIER")
	}
}

// Levels map to priorities, and the level in force decides.
func TestJournalLevels(t *testing.T) {
	var j fakeJournal
	log, level, _ := j.open()
	level.Set(slog.LevelDebug - 1)
	for l, want := range map[slog.Level]journal.Priority{
		slog.LevelDebug: journal.PriDebug, slog.LevelDebug - 1: journal.PriDebug, slog.LevelInfo: journal.PriInfo, slog.LevelInfo + 1: journal.PriInfo,
		slog.LevelWarn: journal.PriWarning, slog.LevelError: journal.PriErr, slog.LevelError + 4: journal.PriErr,
	} {
		log.Log(t.Context(), l, "m")
		if j.priority != want {
			t.Errorf("level %v has priority %d, want %d", l, j.priority, want)
		}
	}
	level.Set(slog.LevelError)
	before := j.sent
	log.Warn("m")
	if j.sent != before {
		t.Error("a record below the level was sent")
	}
}

// What the journal refuses is written as text, with the attributes and groups of the logger.
func TestJournalFallback(t *testing.T) {
	j := fakeJournal{broken: errors.New("no journal")}
	log, _, text := j.open()
	log.With(KeyWatch, "cam").WithGroup("g").Info("m", KeySeq, 1)
	if !strings.HasSuffix(text.String(), "level=INFO msg=m watch=cam g.seq=1\n") {
		t.Errorf("got %q", text)
	}
}

// Two loggers made from one do not write over each other's attributes.
func TestJournalWithIsACopy(t *testing.T) {
	var j fakeJournal
	log, _, _ := j.open()
	base := log.With("a", 1, "b", 2, "c", 3)
	one, two := base.With("d", "one"), base.With("d", "two")
	one.Info("m", "e", "one")
	if j.fields["FIELDGW_D"] != "one" {
		t.Errorf("got %v", j.fields)
	}
	two.Info("m")
	if _, leaked := j.fields["FIELDGW_E"]; leaked || j.fields["FIELDGW_D"] != "two" {
		t.Errorf("got %v", j.fields)
	}
}

// Whatever keys, values and messages are, journald accepts every field name, MESSAGE stays one safe line, and so does
// the text format.
func FuzzHandlers(f *testing.F) {
	for _, s := range foreign {
		f.Add(s, s, s)
	}
	f.Add("m", strings.Repeat("k", 100), "")
	valid := regexp.MustCompile(`^(FIELDGW_[A-Z0-9_]{0,56}|MESSAGE_ID|SYSLOG_IDENTIFIER)$`)
	f.Fuzz(func(t *testing.T, msg, key, value string) {
		var j fakeJournal
		log, _, _ := j.open()
		log.WithGroup(key).Info(msg, key, value)
		for name := range j.fields {
			if !valid.MatchString(name) {
				t.Errorf("field %q", name)
			}
		}
		if j.sent != 1 || !isOneSafeLine(j.message+"\n") && !strings.Contains(msg+key+value, "\uFFFD") {
			t.Errorf("%d records, message %q", j.sent, j.message)
		}
		var out bytes.Buffer
		log, _ = New(Options{Format: FormatText, Writer: &out})
		log.WithGroup("g").Info(msg, key, value)
		if !isOneSafeLine(out.String()) && !strings.Contains(msg+key+value, "\uFFFD") {
			t.Errorf("text %q", out.String())
		}
	})
}
