package config

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, never negative.
type Size int64

// sizeUnits are tried in this order when a size is rendered: the largest unit that divides it exactly wins, and of two
// the binary one, since that is what the defaults are written in.
var sizeUnits = []struct {
	name string
	n    int64
}{
	{"TiB", 1 << 40},
	{"TB", 1e12},
	{"GiB", 1 << 30},
	{"GB", 1e9},
	{"MiB", 1 << 20},
	{"MB", 1e6},
	{"KiB", 1 << 10},
	{"kB", 1e3},
	{"B", 1}, // divides everything
}

// Bytes returns the size as a plain number.
func (s Size) Bytes() int64 { return int64(s) }

// String renders the size exactly, in a form that UnmarshalText reads back.
func (s Size) String() string {
	if s == 0 {
		return "0"
	}
	i := 0
	for int64(s)%sizeUnits[i].n != 0 {
		i++
	}
	return strconv.FormatInt(int64(s)/sizeUnits[i].n, 10) + sizeUnits[i].name
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a whole number with a unit: B, kB or KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers
// of 1024). Only "0" needs no unit.
func (s *Size) UnmarshalText(text []byte) error {
	str := string(text)
	if str == "0" {
		*s = 0
		return nil
	}
	digits := strings.TrimLeft(str, "0123456789")
	num, unit := str[:len(str)-len(digits)], digits
	bad := &valueError{msg: "want a size such as \"64MiB\", got " + quote(str)}
	if num == "" {
		return bad
	}
	if unit == "" {
		bad.hint = "add a unit: B, kB, KiB, MB, MiB, GB, GiB"
		return bad
	}
	mult := int64(0)
	for _, u := range sizeUnits {
		if unit == u.name || unit == "KB" && u.name == "kB" {
			mult = u.n
		}
	}
	if mult == 0 {
		bad.hint = "the units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, for whole numbers"
		return bad
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n > math.MaxInt64/mult {
		return &valueError{msg: "size " + quote(str) + " is too large"}
	}
	*s = Size(n * mult)
	return nil
}

// Duration is a span of time, never negative.
type Duration time.Duration

// Std returns the span as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String renders the span in a form that UnmarshalText reads back, without time.Duration's trailing zero units:
// 1h, not 1h0m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads numbers with units, as time.ParseDuration does (ms, s, m, h), but no negative ones.
func (d *Duration) UnmarshalText(text []byte) error {
	str := string(text)
	v, err := time.ParseDuration(str)
	if err != nil || v < 0 {
		bad := &valueError{msg: "want a duration such as \"30s\" or \"5m\", got " + quote(str)}
		if str != "" && strings.Trim(str, "0123456789") == "" {
			bad.hint = "add a unit: ms, s, m, h"
		}
		return bad
	}
	*d = Duration(v)
	return nil
}

// DurationRange is a span to draw from, with Low at most High.
type DurationRange struct{ Low, High Duration }

// String renders the range in a form that UnmarshalText reads back.
func (r DurationRange) String() string { return r.Low.String() + "-" + r.High.String() }

// MarshalText implements encoding.TextMarshaler.
func (r DurationRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads two durations with a hyphen between, the smaller first: "15s-45s".
func (r *DurationRange) UnmarshalText(text []byte) error {
	str := string(text)
	bad := &valueError{msg: "want a range such as \"15s-45s\", got " + quote(str)}
	low, high, found := strings.Cut(str, "-")
	var v DurationRange
	if !found || v.Low.UnmarshalText([]byte(low)) != nil || v.High.UnmarshalText([]byte(high)) != nil {
		return bad
	}
	if v.Low > v.High {
		bad.msg = "the range " + quote(str) + " begins above its end"
		return bad
	}
	*r = v
	return nil
}

// ChunkSize is the most that may be sent beyond the last confirmed offset: a fixed size, or one that adapts.
type ChunkSize struct {
	Auto bool // the sender adapts the size to the link, up to Max
	Max  Size // bytes
}

// String renders the value in a form that UnmarshalText reads back.
func (c ChunkSize) String() string {
	if c.Auto {
		return "auto"
	}
	return c.Max.String()
}

// MarshalText implements encoding.TextMarshaler.
func (c ChunkSize) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads "auto" or a size.
func (c *ChunkSize) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*c = ChunkSize{Auto: true, Max: chunkAuto}
		return nil
	}
	var s Size
	if err := s.UnmarshalText(text); err != nil {
		return err
	}
	*c = ChunkSize{Max: s}
	return nil
}
