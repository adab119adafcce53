package remote

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The wait after each failure lies in its range, at both ends of the dice, and never exceeds the cap.
func TestDelay(t *testing.T) {
	s := DefaultSchedule()
	low, high := func() float64 { return 0 }, func() float64 { return 0.999999 }
	for failures, want := range map[int]Range{
		-1: s.First, 0: s.First, 1: s.First, 2: s.Second, 3: s.Third,
		4: {10 * time.Minute, 30 * time.Minute}, 5: {20 * time.Minute, time.Hour}, 6: s.Cap, 7: s.Cap, math.MaxInt: s.Cap,
	} {
		if got := s.Delay(failures, 0, low); got != want.Min {
			t.Errorf("%d failures: at least %s, want %s", failures, got, want.Min)
		}
		if got := s.Delay(failures, 0, high); got > want.Max || got < want.Max-time.Second {
			t.Errorf("%d failures: at most %s, want %s", failures, got, want.Max)
		}
	}
}

// What the server asks for is a floor within the cap, and a fleet that was told the same time does not return together.
func TestDelayRetryAfter(t *testing.T) {
	s := DefaultSchedule()
	rnd := rand.New(rand.NewPCG(1, 2)).Float64
	different := map[time.Duration]bool{}
	for range 100 {
		got := s.Delay(1, 10*time.Minute, rnd)
		if got < 10*time.Minute || got > 12*time.Minute+30*time.Second {
			t.Fatalf("waits %s", got)
		}
		different[got] = true
		if short := s.Delay(3, time.Second, rnd); short < s.Third.Min {
			t.Fatalf("a short Retry-After shortens the wait to %s", short)
		}
	}
	if len(different) < 50 {
		t.Errorf("%d different waits in 100", len(different))
	}
	if got := s.Delay(1, 24*time.Hour, rnd); got != s.Cap.Max {
		t.Errorf("a day is honoured: %s", got)
	}
}
