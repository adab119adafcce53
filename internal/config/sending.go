package config

import (
	"errors"
	"strings"

	"github.com/fieldgw/fieldgw/internal/policy"
)

// Rate is a number of bytes per second; 0 is no limit.
type Rate Size

// perSecond ends a rate.
const perSecond = "/s"

// BytesPerSecond returns the rate as a plain number.
func (r Rate) BytesPerSecond() int64 { return int64(r) }

// String renders the rate in a form that UnmarshalText reads back.
func (r Rate) String() string {
	if r == 0 {
		return ""
	}
	return Size(r).String() + perSecond
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a size per second, "500kB/s"; the empty text is no limit.
func (r *Rate) UnmarshalText(text []byte) error {
	str := string(text)
	if str == "" {
		*r = 0
		return nil
	}
	size, found := strings.CutSuffix(str, perSecond)
	var s Size
	if err := s.UnmarshalText([]byte(size)); err != nil || !found || s == 0 {
		bad := &valueError{msg: "want a rate such as \"500kB/s\", got " + quote(str)}
		if err == nil && !found {
			bad.hint = "end it with " + perSecond
		} else if found && s == 0 && err == nil {
			bad.hint = "the empty string is no limit"
		}
		return bad
	}
	*r = Rate(s)
	return nil
}

// Window is a time of the week in which files may be sent.
type Window struct{ policy.Window }

// MarshalText implements encoding.TextMarshaler.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads days and times, "mon-fri 18:00-06:00".
func (w *Window) UnmarshalText(text []byte) error {
	parsed, err := policy.ParseWindow(string(text))
	if refused, ok := errors.AsType[*policy.WindowError](err); ok {
		return &valueError{msg: refused.Error() + " of " + quote(string(text)), hint: refused.Hint}
	}
	w.Window = parsed
	return err
}

// Schedule returns the windows in the words of the policy.
func (u Uplink) Schedule() policy.Windows {
	var out policy.Windows
	for _, w := range u.Windows {
		out = append(out, w.Window)
	}
	return out
}
