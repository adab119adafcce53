package clock

import (
	"fmt"
	"runtime/debug"
	"time"
)

// BuildDate is the date of this build in RFC 3339, set by the linker (-X); empty in a plain `go build`.
var BuildDate string

// oldest is a date before every build of this source: the last resort of Built.
const oldest = "2026-11-01T00:00:00Z"

// Built returns when this program was built: BuildDate, else the date of the commit that the Go toolchain recorded,
// else a date before the first release. No right clock shows an earlier time.
func Built() time.Time {
	commit := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				commit = s.Value
			}
		}
	}
	return firstDate(BuildDate, commit, oldest)
}

// firstDate returns the first of the dates that is one.
func firstDate(dates ...string) time.Time {
	for _, d := range dates {
		if t, err := time.Parse(time.RFC3339, d); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// Trusted reports whether the wall clock can be right, and if not, why, in a sentence for a person. A clock that
// shows a time before this program was built is wrong: a tablet without a battery-backed clock begins in the past.
// Trust is not proof: only an authenticated server's date can show that a later time is wrong as well.
func Trusted(now time.Time) (bool, string) {
	if built := Built(); now.Before(built) {
		return false, fmt.Sprintf("the clock shows %s, but this program was built on %s",
			now.UTC().Format(time.RFC3339), built.Format(time.DateOnly))
	}
	return true, ""
}
