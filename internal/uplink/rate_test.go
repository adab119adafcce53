package uplink

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// take takes total bytes and returns the longest that one call lasted.
func take(t *testing.T, l *Limiter, total int) (longest time.Duration) {
	t.Helper()
	for total > 0 {
		began := time.Now()
		n, err := l.Take(t.Context(), min(total, 32<<10))
		if err != nil || n < 1 {
			t.Errorf("granted %d: %v", n, err)
			return longest
		}
		longest = max(longest, time.Since(began))
		total -= n
	}
	return longest
}

// The rate holds for all deliveries together, each gets its share, and none waits long for a grant.
func TestLimiterSharesOneRate(t *testing.T) {
	for _, workers := range []int{1, 2, 16} {
		for _, rate := range []int{1000, 64 << 10, 8 << 20} {
			synctest.Test(t, func(t *testing.T) {
				l := NewLimiter(int64(rate))
				began := time.Now()
				var wg sync.WaitGroup
				for range workers {
					wg.Go(func() {
						if longest := take(t, l, 5*rate); longest > time.Second {
							t.Errorf("%d at %d B/s: a grant took %s", workers, rate, longest)
						}
						// All took the same: with fair shares they end together.
						if got, want := time.Since(began), time.Duration(5*workers)*time.Second; got < want-want/50-time.Second {
							t.Errorf("%d at %d B/s: one had its bytes after %s, all together need %s", workers, rate, got, want)
						}
					})
				}
				wg.Wait()
				got, want := time.Since(began), time.Duration(5*workers)*time.Second
				if got < want-2*rateCredit || got > want+want/100 {
					t.Errorf("%d at %d B/s: %s, want %s", workers, rate, got, want)
				}
			})
		}
	}
}

// Time in which nobody asked is not saved up.
func TestLimiterSavesNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1000)
		take(t, l, 1000)
		<-time.After(time.Hour)
		began := time.Now()
		take(t, l, 10_000)
		if got := time.Since(began); got < 10*time.Second-2*rateCredit {
			t.Errorf("10 kB at 1 kB/s after an hour: %s", got)
		}
	})
}

// An ended context ends a wait, whether for the turn or for the grant, and costs the others nothing.
func TestLimiterEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1000)
		gone := errors.New("held")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					n, err := l.Take(ctx, 1)
					if err == nil {
						continue
					}
					if n != 0 || !errors.Is(err, gone) {
						t.Errorf("granted %d: %v", n, err)
					}
					return
				}
			})
		}
		<-time.After(time.Second)
		cancel(gone)
		wg.Wait()
		began := time.Now()
		take(t, l, 1000)
		if got := time.Since(began); got > 1100*time.Millisecond {
			t.Errorf("1 kB at 1 kB/s after others gave up: %s", got)
		}
	})
}

// No limit is no wait.
func TestNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(0)
		began := time.Now()
		if n, err := l.Take(t.Context(), 1<<30); n != 1<<30 || err != nil {
			t.Errorf("granted %d: %v", n, err)
		}
		if n, err := NewLimiter(1).Take(t.Context(), 0); n != 0 || err != nil {
			t.Errorf("nothing wanted, granted %d: %v", n, err)
		}
		if time.Since(began) != 0 {
			t.Error("it waited")
		}
	})
}
