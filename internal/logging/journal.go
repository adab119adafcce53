package logging

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

const (
	fieldPrefix = "FIELDGW_"
	maxField    = 64 // letters of a field name; journald drops longer ones
)

// send has the signature of journal.Send.
type send func(message string, priority journal.Priority, fields map[string]string) error

// journalHandler writes records by the journal's native protocol (systemd.io, Native Journal Protocol):
//
//   - MESSAGE is the message and its attributes as text, since journalctl shows nothing else by default;
//   - each attribute is a field FIELDGW_KEY, with the exact value, so that `journalctl FIELDGW_ATTACHMENT=…` finds it;
//     groups are joined to the key by an underscore;
//   - PRIORITY follows the level, MESSAGE_ID the attribute message_id.
type journalHandler struct {
	send     send
	fallback slog.Handler // takes what the journal refuses
	level    slog.Leveler
	name     string      // SYSLOG_IDENTIFIER
	prefix   string      // open groups, each with an underscore
	fields   []fieldText // from WithAttrs
}

// fieldText is one resolved attribute.
type fieldText struct{ key, value string }

func newJournal(to send, fallback slog.Handler, level slog.Leveler) slog.Handler {
	return &journalHandler{send: to, fallback: fallback, level: level, name: filepath.Base(os.Args[0])}
}

// Enabled implements slog.Handler.
func (h *journalHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle implements slog.Handler. It returns an error only when neither the journal nor the fallback took the record.
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	all := h.fields[:len(h.fields):len(h.fields)]
	r.Attrs(func(a slog.Attr) bool {
		all = appendAttr(all, h.prefix, a)
		return true
	})
	fields := make(map[string]string, len(all)+2)
	fields["SYSLOG_IDENTIFIER"] = h.name
	var text strings.Builder
	text.WriteString(inText(r.Message))
	for _, f := range all {
		if id, ok := messageID(f); ok {
			fields["MESSAGE_ID"] = id
			continue
		}
		fields[fieldName(f.key)] = f.value
		text.WriteString(" " + inText(f.key) + "=" + quoted(f.value))
	}
	if err := h.send(text.String(), priority(r.Level), fields); err != nil {
		return h.fallback.Handle(ctx, r)
	}
	return nil
}

// WithAttrs implements slog.Handler.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.fallback = h.fallback.WithAttrs(attrs)
	next.fields = h.fields[:len(h.fields):len(h.fields)]
	for _, a := range attrs {
		next.fields = appendAttr(next.fields, h.prefix, a)
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.fallback = h.fallback.WithGroup(name)
	next.prefix = h.prefix + name + "_"
	return &next
}

// appendAttr resolves one attribute; a group gives one field for each member (slog.Handler has the rules).
func appendAttr(list []fieldText, prefix string, a slog.Attr) []fieldText {
	v := a.Value.Resolve()
	switch {
	case a.Equal(slog.Attr{}):
		return list
	case v.Kind() != slog.KindGroup:
		return append(list, fieldText{prefix + a.Key, valueText(v)})
	}
	if a.Key != "" {
		prefix += a.Key + "_"
	}
	for _, member := range v.Group() {
		list = appendAttr(list, prefix, member)
	}
	return list
}

// valueText renders a resolved value: times in RFC 3339 UTC, durations with units.
func valueText(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().UTC().Format(time.RFC3339Nano)
	case slog.KindAny:
		return anyText(v.Any())
	default:
		return cut(v.String())
	}
}

// messageID recognises the attribute that names the catalog entry: 128 bits in hex, with or without hyphens.
func messageID(f fieldText) (string, bool) {
	if f.key != KeyMessageID {
		return "", false
	}
	id := strings.ToLower(strings.ReplaceAll(f.value, "-", ""))
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", false
	}
	return id, true
}

// fieldName makes a journal field of a key: upper-case letters, digits and underscores, of bounded length.
func fieldName(key string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		default:
			return '_'
		}
	}, key)
	name = fieldPrefix + name
	return name[:min(len(name), maxField)]
}

// priority maps levels to syslog's (syslog(3)); levels between two named ones count as the lower.
func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	default:
		return journal.PriDebug
	}
}

// inText escapes what could begin a line or move a cursor when MESSAGE is shown; blanks stay.
func inText(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// quoted renders a value as slog's text format does: in quotes when it holds anything but plain letters.
func quoted(s string) string {
	odd := func(r rune) bool {
		return !unicode.IsPrint(r) || r == unicode.ReplacementChar || r == ' ' || r == '"' || r == '='
	}
	if s == "" || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}
