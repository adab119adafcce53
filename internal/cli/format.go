package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

// none stands where there is nothing to say.
const none = "-"

// siBytes is a size for reading: powers of 1000, as data plans and file managers count.
func siBytes(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	v, i := float64(n), 0
	// 999.5 would be rounded up to "1000 kB".
	for i+1 < len(units) && (i == 0 && v >= 1000 || v >= 999.5) {
		v /= 1000
		i++
	}
	if i > 0 && v < 9.95 {
		return fmt.Sprintf("%.1f %s", v, units[i])
	}
	return fmt.Sprintf("%.0f %s", v, units[i])
}

// exactBytes is a size to the byte, with the short form where that says more.
func exactBytes(n int64) string {
	text := grouped(n) + " bytes"
	if n == 1 {
		text = "1 byte"
	}
	if n >= 1000 {
		text += " (" + siBytes(n) + ")"
	}
	return text
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// span is a duration in its two largest units: 45s, 12m, 2h03m, 3d4h.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	days := int(d.Hours()) / 24
	if hours := int(d.Hours()) % 24; hours > 0 && days < 10 {
		return fmt.Sprintf("%dd%dh", days, hours)
	}
	return fmt.Sprintf("%dd", days)
}

// clock is a time as short as it is still clear, in the local zone: today's without a date.
func (a *app) clock(t time.Time) string {
	t, now := t.In(a.env.Local), a.env.Now().In(a.env.Local)
	switch {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format("15:04")
	case t.Year() == now.Year():
		return t.Format("Jan 2 15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// exactTime is a time with its zone.
func (a *app) exactTime(t time.Time) string {
	if t.IsZero() {
		return none
	}
	return t.In(a.env.Local).Format("2006-01-02 15:04:05 -0700")
}

func (a *app) age(t time.Time) string { return span(a.env.Now().Sub(t)) }

// since is "since 09:14 (2h03m)", or nothing for no time.
func (a *app) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf(" since %s (%s)", a.clock(t), a.age(t))
}

// next says what ends a wait: a time, or what is waited for.
func (a *app) next(w *control.Waiting) string {
	switch {
	case w == nil:
		return none
	case w.NextAttempt != nil && w.NextAttempt.After(a.env.Now()):
		return "in " + span(w.NextAttempt.Sub(a.env.Now()))
	case w.NextAttempt != nil:
		return "now"
	case w.NextTrigger == "":
		return none
	}
	return attachment.Printable(w.NextTrigger)
}

// files counts in words: "1 file", "2,000 files".
func files(n int64) string { return plural(n, "file", "files") }

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// text is a foreign or optional text for a table.
func text(s string) string {
	if s == "" {
		return none
	}
	return attachment.Printable(s)
}

// sentence removes the end of a sentence that is put into another.
func sentence(s string) string { return strings.TrimSuffix(attachment.Printable(s), ".") }

// confirmed is how much the server confirmed, and its share rounded down: 100 % only when it is all.
func confirmed(bytes *int64, length int64) string {
	if bytes == nil {
		return none
	}
	if length <= 0 || *bytes > length {
		return siBytes(*bytes)
	}
	return fmt.Sprintf("%s (%d%%)", siBytes(*bytes), int64(float64(*bytes)/float64(length)*100))
}

// confirmedBytes is how much the server confirmed of a file: all of it once it has verified or registered it.
func confirmedBytes(i *control.Item) *int64 {
	if i.Condition == attachment.ShownDelivered || i.State == attachment.Uploaded {
		return &i.Length
	}
	return i.ConfirmedBytes
}

// duration is a flag such as 90s, 15m, 2h or 3d.
type duration time.Duration

// String implements pflag.Value; 0 is the flag's absence.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	text := time.Duration(*d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Set implements pflag.Value.
func (d *duration) Set(s string) error {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			*d = duration(time.Duration(n) * 24 * time.Hour)
			return nil
		}
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return errors.New("want a duration such as 90s, 15m, 2h or 3d")
	}
	*d = duration(v)
	return nil
}

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }
