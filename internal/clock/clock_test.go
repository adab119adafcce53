package clock

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Running time comes from the kernel, goes on, and is longer than this process lives.
func TestRunning(t *testing.T) {
	a := Running()
	b := Running()
	if a <= 0 || b < a || b < time.Since(started) {
		t.Errorf("Running() = %s, then %s, in a process of %s", a, b, time.Since(started))
	}
}

// The boot has one name, and it is a UUID.
func TestBootID(t *testing.T) {
	a, err := BootID()
	b, again := BootID()
	if err != nil || again != nil || a != b {
		t.Errorf("BootID() = %q, %v, then %q, %v", a, err, b, again)
	}
}

// Only a UUID in the kernel's form is a boot ID.
func TestParseBootID(t *testing.T) {
	const id = "0b0a9b5e-6f0c-4c1d-9a5e-0123456789ab"
	for in, want := range map[string]string{
		id + "\n": id, id: id, "": "", "\n": "", id + "\n\n": "", id + "a": "", strings.ToUpper(id): "",
		strings.ReplaceAll(id, "-", "0"): "", strings.Replace(id, "0", "-", 1): "", strings.Replace(id, "0", "g", 1): "",
	} {
		if got, ok := parseBootID([]byte(in)); got != want || ok != (want != "") {
			t.Errorf("parseBootID(%q) = %q, %v; want %q", in, got, ok, want)
		}
	}
}

// Whatever the file holds, an accepted boot ID is 36 characters that need no escaping anywhere.
func FuzzParseBootID(f *testing.F) {
	f.Add([]byte("0b0a9b5e-6f0c-4c1d-9a5e-0123456789ab\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, ok := parseBootID(data)
		if ok != (len(id) == 36) || strings.Trim(id, "0123456789abcdef-") != "" {
			t.Errorf("%q is accepted as %q, %v", data, id, ok)
		}
	})
}

// A clock before the build is refused with both dates, one after it is believed; a date that is none is passed over.
func TestTrusted(t *testing.T) {
	defer func(old string) { BuildDate = old }(BuildDate)
	BuildDate = "2027-03-01T12:00:00+02:00"
	built := time.Date(2027, 3, 1, 10, 0, 0, 0, time.UTC)
	if ok, reason := Trusted(built); !ok || reason != "" {
		t.Errorf("at the build: %v, %q", ok, reason)
	}
	ok, reason := Trusted(built.Add(-time.Second))
	if want := "the clock shows 2027-03-01T09:59:59Z, but this program was built on 2027-03-01"; ok || reason != want {
		t.Errorf("before it: %v, %q", ok, reason)
	}
	if ok, _ := Trusted(time.Unix(0, 0)); ok {
		t.Error("1970 is trusted")
	}
	for _, odd := range []string{"", "yesterday", "2027-03-01"} {
		BuildDate = odd
		if got := Built(); got.Before(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("BuildDate %q: built on %s", odd, got)
		}
	}
	if got := firstDate("", "x", "2026-12-24T00:00:00Z", oldest); !got.Equal(time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("firstDate = %s", got)
	}
	if got := firstDate("x"); !got.IsZero() {
		t.Errorf("firstDate without any = %s", got)
	}
}

// Steps in both directions are reported once with their size; slewing, sleep, a reboot and the first look are not steps.
func TestStepDetector(t *testing.T) {
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	var d StepDetector
	for i, c := range []struct {
		wall, running, step time.Duration // since start
	}{
		{0, 100 * time.Second, 0},
		{time.Hour, time.Hour + 100*time.Second, 0},                                      // sleep counts in both
		{time.Hour + 15*time.Second, time.Hour + 110*time.Second, 0},                     // 5 s ahead
		{time.Hour + 15*time.Second, time.Hour + 115*time.Second, 0},                     // 5 s behind
		{2 * time.Hour, time.Hour + 115*time.Second, time.Hour - 15*time.Second},         // set forward
		{2*time.Hour + time.Second, time.Hour + 116*time.Second, 0},                      // and it goes on from there
		{-30 * time.Minute, time.Hour + 116*time.Second, -150*time.Minute - 1e9},         // set back
		{-30*time.Minute + 5*time.Second + 1, time.Hour + 116*time.Second, 5e9 + 1},      // just beyond
		{-30*time.Minute + 5*time.Second + 1, time.Hour + 121*time.Second + 1, -5e9 - 1}, // the other way
		{24 * time.Hour, time.Second, 0},                                                 // another boot
		{24*time.Hour + time.Minute, time.Minute + time.Second, 0},
	} {
		step, stepped := d.Observe(start.Add(c.wall), c.running)
		if step != c.step || stepped != (c.step != 0) {
			t.Errorf("observation %d: step %s, %v; want %s", i, step, stepped, c.step)
		}
	}
}

// A monotonic reading inside the wall time does not hide a step, and the ends of the range do not wrap around.
func TestStepExtremes(t *testing.T) {
	var d StepDetector
	now := time.Now() // with a monotonic reading, which time.Time.Sub prefers
	d.Observe(now, 0)
	if step, stepped := d.Observe(now.Add(time.Hour).Round(0), 0); !stepped || step != time.Hour {
		t.Errorf("step %s, %v; want 1h", step, stepped)
	}
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	if step, stepped := d.Observe(far, 0); !stepped || step != math.MaxInt64 {
		t.Errorf("step %s, %v; want the largest", step, stepped)
	}
	if step, stepped := d.Observe(time.Unix(0, 0), math.MaxInt64); !stepped || step != math.MinInt64 {
		t.Errorf("step %s, %v; want the smallest", step, stepped)
	}
	for _, c := range []struct{ a, b, want time.Duration }{
		{5, 3, 2}, {math.MinInt64, 1, math.MinInt64}, {math.MaxInt64, -1, math.MaxInt64}, {0, math.MinInt64, math.MaxInt64}, {-1, math.MinInt64, math.MaxInt64},
	} {
		if got := subtract(c.a, c.b); got != c.want {
			t.Errorf("%d - %d = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// Over random histories of sleeps and steps each step beyond the threshold is found with its size, and nothing else is.
func TestStepHistories(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var d StepDetector
		wall, running := time.Unix(r.Int64N(4e9), 0), time.Duration(r.Int64N(1e15))
		d.Observe(wall, running)
		for range 50 {
			ran := time.Duration(r.Int64N(int64(48 * time.Hour)))
			set := time.Duration(r.Int64N(int64(20*time.Second))) - 10*time.Second
			wall, running = wall.Add(ran+set), running+ran
			want := set < -stepThreshold || set > stepThreshold
			if step, stepped := d.Observe(wall, running); stepped != want || stepped && step != set {
				t.Fatalf("seed %d: set by %s, found %s, %v", seed, set, step, stepped)
			}
		}
	}
}

// A suspension is the time that only the boot clock counts; steps of the wall clock, slow processes and a reboot are none.
func TestSleepDetector(t *testing.T) {
	start := time.Now()
	var d SleepDetector
	for i, c := range []struct {
		awake, running, slept time.Duration // since start
	}{
		{0, 100 * time.Second, 0},
		{time.Hour, time.Hour + 100*time.Second, 0},
		{time.Hour + time.Second, 3*time.Hour + 101*time.Second, 2 * time.Hour},
		{time.Hour + 2*time.Second, 3*time.Hour + 106*time.Second, 0}, // four seconds: nothing dies of it
		{time.Hour + 3*time.Second, time.Second, 0},                   // another boot
		{time.Hour + 4*time.Second, 8 * time.Second, 6 * time.Second},
	} {
		if got := d.Observe(start.Add(c.awake), c.running); got != c.slept {
			t.Errorf("observation %d: slept %s, want %s", i, got, c.slept)
		}
	}
}
