package clock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A pulse is silent only while its loop is at work.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pulse
		pass := func(want time.Duration, what string) {
			t.Helper()
			<-time.After(time.Minute)
			if got := p.Silence(); got != want {
				t.Errorf("%s: silent for %s, want %s", what, got, want)
			}
		}
		pass(0, "new")
		p.Beat()
		pass(time.Minute, "at work")
		pass(2*time.Minute, "still at work")
		Beat(WithPulse(t.Context(), &p))
		pass(time.Minute, "beaten from within")
		p.Rest()
		pass(0, "at rest")
		var none *Pulse
		none.Beat()
		none.Rest()
		Beat(context.Background())
		if none.Silence() != 0 {
			t.Error("no pulse is silent")
		}
	})
}
