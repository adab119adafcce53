package logging

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lines returns what was logged since the last call, without times.
func lines(out *bytes.Buffer) string {
	var b strings.Builder
	for line := range strings.Lines(out.String()) {
		_, rest, _ := strings.Cut(line, " ")
		b.WriteString(rest)
	}
	out.Reset()
	return b.String()
}

func textLogger() (*slog.Logger, *bytes.Buffer) {
	out := new(bytes.Buffer)
	log, _ := New(Options{Format: FormatText, Writer: out})
	return log, out
}

// The first failure is written, then each tenth or one after five minutes, then once that it is over; another key has
// its own count.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := textLogger()
		var r Repeat
		ctx := t.Context()
		fail := func(n int) string {
			for range n {
				r.Fail(ctx, log, "a", "cannot read", slog.String(KeyPath, "/a"))
			}
			return lines(out)
		}
		if got := fail(1); got != "level=WARN msg=\"cannot read\" path=/a\n" {
			t.Errorf("first: %q", got)
		}
		if got := fail(9); got != "" {
			t.Errorf("second to tenth: %q", got)
		}
		if got := fail(1); got != "level=WARN msg=\"cannot read\" path=/a count=11\n" {
			t.Errorf("eleventh: %q", got)
		}
		<-time.After(repeatInterval - time.Nanosecond)
		if got := fail(1); got != "" {
			t.Errorf("before five minutes: %q", got)
		}
		<-time.After(time.Nanosecond)
		if got := fail(1); got != "level=WARN msg=\"cannot read\" path=/a count=13\n" {
			t.Errorf("after five minutes: %q", got)
		}
		if got := fail(9); got != "" {
			t.Errorf("the count did not begin anew: %q", got)
		}
		r.Fail(ctx, log, "b", "cannot write")
		if got := lines(out); got != "level=WARN msg=\"cannot write\"\n" {
			t.Errorf("another key: %q", got)
		}
		r.Recovered(ctx, log, "a", slog.String(KeyWatch, "w"))
		if got := lines(out); got != "level=INFO msg=recovered watch=w failure=\"cannot read\" count=22 duration=5m0s\n" {
			t.Errorf("recovered: %q", got)
		}
		r.Recovered(ctx, log, "a")
		r.Recovered(ctx, log, "never")
		if got := lines(out); got != "" {
			t.Errorf("recovered without a failure: %q", got)
		}
		if got := fail(1); got != "level=WARN msg=\"cannot read\" path=/a\n" {
			t.Errorf("a new failure: %q", got)
		}
	})
}

// However many things fail, memory and log stay bounded; when old ones are forgotten there is room again.
func TestRepeatIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := textLogger()
		var r Repeat
		failAll := func(from, to int) int {
			for i := from; i < to; i++ {
				r.Fail(t.Context(), log, fmt.Sprint(i), "broken")
			}
			return strings.Count(lines(out), "\n")
		}
		if got := failAll(0, maxRepeatKeys); got != maxRepeatKeys {
			t.Errorf("%d records for %d failures", got, maxRepeatKeys)
		}
		if got := failAll(maxRepeatKeys, maxRepeatKeys+1001); got != 101 {
			t.Errorf("%d records for 1001 more, want 1 + 100", got)
		}
		r.Recovered(t.Context(), log, fmt.Sprint(maxRepeatKeys+5))
		if got := lines(out); got != "" {
			t.Errorf("one of many recovered: %q", got)
		}
		<-time.After(repeatForget)
		if got := failAll(5000, 5000+maxRepeatKeys+1); got != maxRepeatKeys+1 || len(r.known) != maxRepeatKeys {
			t.Errorf("after an hour: %d records, %d keys", got, len(r.known))
		}
	})
}

// The caller's attributes are not written over, and goroutines may fail at the same time.
func TestRepeatConcurrently(t *testing.T) {
	log, _ := New(Options{Format: FormatText, Writer: &bytes.Buffer{}})
	var r Repeat
	attrs := make([]slog.Attr, 1, 4)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range 100 {
				r.Fail(t.Context(), log, fmt.Sprint(i%2), "m", attrs...)
				r.Recovered(t.Context(), log, fmt.Sprint(i%2), attrs...)
			}
		})
	}
	group.Wait()
	if len(attrs[:4]) != 4 || !attrs[:4][1].Equal(slog.Attr{}) {
		t.Errorf("the caller's slice holds %v", attrs[:4])
	}
}
