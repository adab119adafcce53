package clock

import (
	"math"
	"time"
)

// stepThreshold is what a wall clock may gain or lose between two observations without having been set. Time services
// slew by less, and observations are not simultaneous.
const stepThreshold = 5 * time.Second

// StepDetector finds out that somebody or something set the wall clock, by comparing how far it went with how long the
// machine ran. The zero value is ready. It is not safe for use by several goroutines.
type StepDetector struct {
	seen    bool
	wall    time.Time
	running time.Duration
}

// Observe takes the wall clock and the running time of the same moment and returns by how much the wall clock was set
// since the last observation (negative: back), when that is more than 5 s. The first observation, and one whose
// running time lies before the last (another boot), only begin.
func (d *StepDetector) Observe(wall time.Time, running time.Duration) (step time.Duration, stepped bool) {
	wall = wall.Round(0) // without the monotonic reading, which no step moves
	before := *d
	*d = StepDetector{seen: true, wall: wall, running: running}
	if !before.seen || running < before.running {
		return 0, false
	}
	step = subtract(wall.Sub(before.wall), subtract(running, before.running))
	if step >= -stepThreshold && step <= stepThreshold {
		return 0, false
	}
	return step, true
}

// subtract is a-b, held at the ends of the range instead of wrapping around.
func subtract(a, b time.Duration) time.Duration {
	d := a - b
	switch {
	case b > 0 && d > a:
		return math.MinInt64
	case b < 0 && d < a:
		return math.MaxInt64
	}
	return d
}

// SleepThreshold is how much longer than the processes a machine must have run to count as suspended meanwhile.
const SleepThreshold = 5 * time.Second

// SleepDetector finds out that the machine was suspended, by comparing how long it ran with how long its processes did:
// the monotonic clock of Go stands still meanwhile (CLOCK_MONOTONIC, clock_gettime(2)). The zero value is ready. It is not
// safe for use by several goroutines.
type SleepDetector struct {
	seen    bool
	awake   time.Time
	running time.Duration
}

// Observe takes a time with its monotonic reading and the running time of the same moment, and returns for how long the
// machine was suspended since the last observation; 0 for less than SleepThreshold.
func (d *SleepDetector) Observe(awake time.Time, running time.Duration) time.Duration {
	before := *d
	*d = SleepDetector{seen: true, awake: awake, running: running}
	slept := (running - before.running) - awake.Sub(before.awake)
	if !before.seen || running < before.running || slept < SleepThreshold {
		return 0
	}
	return slept
}
