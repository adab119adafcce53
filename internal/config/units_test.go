package config

import (
	"encoding"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Every accepted way of writing a unit means what it says, and what is ambiguous is refused.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		text string
		want encoding.TextUnmarshaler // nil: Size must refuse it
	}{
		{"0", ptr(Size(0))},
		{"0B", ptr(Size(0))},
		{"1B", ptr(Size(1))},
		{"256KiB", ptr(Size(262144))},
		{"5MB", ptr(Size(5000000))},
		{"64MiB", ptr(Size(67108864))},
		{"3kB", ptr(Size(3000))},
		{"3KB", ptr(Size(3000))},
		{"2GiB", ptr(Size(2147483648))},
		{"8388607TiB", ptr(Size(8388607 << 40))},
		{"9223372036854775807B", ptr(Size(math.MaxInt64))},
		{"8388608TiB", (*Size)(nil)},
		{"99999999999999999999B", (*Size)(nil)},
		{"", (*Size)(nil)},
		{"64", (*Size)(nil)},
		{"00", (*Size)(nil)},
		{"64 MiB", (*Size)(nil)},
		{"1.5MiB", (*Size)(nil)},
		{"-1B", (*Size)(nil)},
		{"64M", (*Size)(nil)},
		{"64mib", (*Size)(nil)},
		{"MiB", (*Size)(nil)},
		{"30s", ptr(Duration(30 * time.Second))},
		{"0", ptr(Duration(0))},
		{"1h30m", ptr(Duration(90 * time.Minute))},
		{"1.5h", ptr(Duration(90 * time.Minute))},
		{"30", (*Duration)(nil)},
		{"-1s", (*Duration)(nil)},
		{"1d", (*Duration)(nil)},
		{"", (*Duration)(nil)},
		{"9999999h", (*Duration)(nil)},
		{"15s-45s", ptr(DurationRange{Duration(15 * time.Second), Duration(45 * time.Second)})},
		{"1m-1m", ptr(DurationRange{Duration(time.Minute), Duration(time.Minute)})},
		{"1m", (*DurationRange)(nil)},
		{"1m-", (*DurationRange)(nil)},
		{"-1m", (*DurationRange)(nil)},
		{"2m-1m", (*DurationRange)(nil)},
		{"1m-2m-3m", (*DurationRange)(nil)},
		{"auto", ptr(ChunkSize{Auto: true, Max: 8 << 20})},
		{"1MiB", ptr(ChunkSize{Max: 1 << 20})},
		{"Auto", (*ChunkSize)(nil)},
	} {
		got := reflect.New(reflect.TypeOf(c.want).Elem()).Interface().(encoding.TextUnmarshaler)
		err := got.UnmarshalText([]byte(c.text))
		switch refuse := reflect.ValueOf(c.want).IsNil(); {
		case refuse && (err == nil || !reflect.ValueOf(got).Elem().IsZero()):
			t.Errorf("%T %q = %v, %v; want a refusal that stores nothing", got, c.text, got, err)
		case !refuse && (err != nil || !reflect.DeepEqual(got, c.want)):
			t.Errorf("%T %q = %v, %v; want %v", got, c.text, got, err, c.want)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// The rendered forms are the ones a person writes.
func TestUnitStrings(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Size(0).String(), "0"},
		{Size(64 << 20).String(), "64MiB"},
		{Size(5e6).String(), "5MB"},
		{Size(1023).String(), "1023B"},
		{Size(1536).String(), "1536B"},
		{Duration(time.Hour).String(), "1h"},
		{Duration(90 * time.Minute).String(), "1h30m"},
		{Duration(time.Hour + 10*time.Second).String(), "1h0m10s"},
		{Duration(10 * time.Minute).String(), "10m"},
		{Duration(0).String(), "0s"},
		{DurationRange{Duration(time.Second), Duration(time.Minute)}.String(), "1s-1m"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

// What a unit reads it writes back as the same value, and it never accepts a negative one.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"0", "1B", "3KB", "1536KiB", "9223372036854775807B", "1h0m0s", "0.1s", "1us-2µs", "auto", "-1h", "1ns", "500kB/s", "sat,sun 00:00-24:00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var size Size
		if size.UnmarshalText([]byte(text)) == nil {
			roundTrip(t, size, &size)
			if size < 0 {
				t.Errorf("%q is negative", text)
			}
		}
		var d Duration
		if d.UnmarshalText([]byte(text)) == nil {
			roundTrip(t, d, &d)
			if d < 0 {
				t.Errorf("%q is negative", text)
			}
		}
		var r DurationRange
		if r.UnmarshalText([]byte(text)) == nil {
			roundTrip(t, r, &r)
		}
		var c ChunkSize
		if c.UnmarshalText([]byte(text)) == nil {
			roundTrip(t, c, &c)
		}
		var rate Rate
		if rate.UnmarshalText([]byte(text)) == nil {
			roundTrip(t, rate, &rate)
		}
		var w Window
		if w.UnmarshalText([]byte(text)) == nil {
			roundTrip(t, w, &w)
		}
	})
}

// unit is what all units are: a value that is written as text and read through its pointer.
type unit[T any] interface {
	*T
	encoding.TextUnmarshaler
	encoding.TextMarshaler
}

func roundTrip[T comparable, P unit[T]](t *testing.T, v T, again P) {
	t.Helper()
	text, err := again.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.UnmarshalText(text); err != nil || *again != v {
		t.Errorf("%v written as %s is read as %v (%v)", v, text, *again, err)
	}
}

// Every number survives being written and read, also those no person would write.
func FuzzUnitValues(f *testing.F) {
	f.Add(int64(1), int64(2))
	f.Add(int64(math.MaxInt64), int64(3600e9))
	f.Fuzz(func(t *testing.T, a, b int64) {
		if a < 0 || b < 0 {
			a, b = a&math.MaxInt64, b&math.MaxInt64
		}
		size, d := Size(a), Duration(b)
		roundTrip(t, size, &size)
		roundTrip(t, d, &d)
		r := DurationRange{Low: Duration(min(a, b)), High: Duration(max(a, b))}
		roundTrip(t, r, &r)
		if strings.ContainsAny(size.String(), " .") {
			t.Errorf("%s", size)
		}
	})
}
