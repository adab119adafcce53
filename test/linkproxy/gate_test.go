package linkproxy

import (
	"testing"
	"time"
)

// Proves the arithmetic of the rate limit on a clock of its own: over ten seconds a direction passes
// the rate, even when timers are late; idle time is not saved up; a small rate still passes bytes.
func TestTake(t *testing.T) {
	for _, rate := range []int64{1, 19, 1000, 1 << 20, 1 << 33} {
		for _, late := range []time.Duration{0, 3 * time.Millisecond} {
			var d direction
			now := time.Unix(1_000_000, 0)
			end, passed := now.Add(10*time.Second), int64(0)
			for now.Before(end) {
				n, wait := d.take(now, rate, 1<<30)
				passed += int64(n)
				if wait > 0 {
					now = now.Add(wait + late)
				}
			}
			if low, high := rate*10-rate/5-1, rate*10+rate/5+1; passed < low || passed > high {
				t.Errorf("rate %d, timers late by %v: %d bytes in 10 s", rate, late, passed)
			}
		}
	}
	var d direction
	now := time.Unix(1_000_000, 0)
	d.free = now.Add(-time.Hour)
	burst := 0
	for {
		n, wait := d.take(now, 1000, 1<<20)
		if wait > 0 {
			break
		}
		burst += n
	}
	if burst > 2*50 {
		t.Errorf("%d bytes at once after an idle hour at 1000 bytes a second", burst)
	}
	if n, wait := d.take(now, 0, 12345); n != 12345 || wait != 0 {
		t.Errorf("without a limit: %d bytes, wait %v", n, wait)
	}
}
