package daemon

import (
	"context"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/store"
)

// watchdog tells the service manager that the loops turn: three times in each interval, until one is silent for longer than
// the interval. Waiting is no silence, for a slow server, an outage, a window or a file; whether anything succeeds is
// nothing that a restart would mend.
type watchdog struct {
	interval time.Duration // 0: nobody waits for it
	notify   func(state string)
	log      *slog.Logger

	mu sync.Mutex
	// loops are stuck when all of their pulses are: where one of several adopters, or the loop of one of several roots,
	// hangs on a medium that does not answer, the others go on.
	loops map[string][]*clock.Pulse
	told  bool
}

func newWatchdog(opts Options) *watchdog {
	return &watchdog{interval: opts.Watchdog, notify: opts.Notify, log: opts.Logger, loops: map[string][]*clock.Pulse{}}
}

// add has the watchdog look after a loop until removeAll.
func (w *watchdog) add(loop string, pulses ...*clock.Pulse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loops[loop] = pulses
}

// removeAll is for the end of all loops.
func (w *watchdog) removeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.loops)
}

// period is how often something is said, and how often the loop that has no work of its own is asked for a sign.
func (w *watchdog) period() time.Duration { return max(w.interval/3, time.Millisecond) }

// run feeds until ctx ends.
func (w *watchdog) run(ctx context.Context) {
	if w.interval <= 0 {
		return
	}
	tick := time.NewTicker(w.period())
	defer tick.Stop()
	for {
		if stuck := w.stuck(); len(stuck) > 0 {
			w.tell(stuck)
		} else {
			w.notify("WATCHDOG=1")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// stuck names the loops that do not turn.
func (w *watchdog) stuck() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	turns := func(p *clock.Pulse) bool { return p.Silence() <= w.interval }
	for _, name := range slices.Sorted(maps.Keys(w.loops)) {
		if pulses := w.loops[name]; len(pulses) > 0 && !slices.ContainsFunc(pulses, turns) {
			names = append(names, name)
		}
	}
	return names
}

// maxStacks bounds what is logged of the goroutines, in bytes.
const maxStacks = 256 << 10

// tell logs once what everybody does: the process will be ended.
func (w *watchdog) tell(stuck []string) {
	if w.told {
		return
	}
	w.told = true
	stacks := make([]byte, maxStacks)
	stacks = stacks[:runtime.Stack(stacks, true)]
	w.log.Error("a loop is stuck; the service manager is told nothing until it turns again", slog.String("loops", strings.Join(stuck, ", ")),
		slog.Duration("interval", w.interval), slog.String("stacks", string(stacks)))
}

// proveWriter asks the queue's writer for a sign now and then: for a transaction that changes nothing.
func (s *session) proveWriter(ctx context.Context, p *clock.Pulse) error {
	if s.dog.interval <= 0 {
		return nil
	}
	tick := time.NewTicker(s.dog.period())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		p.Beat()
		// What it answers is for others to judge; that it answers is all that counts here.
		if err := s.store.Update(ctx, func(*store.Tx) error { return nil }); err != nil {
			s.log.Debug("the queue's writer refuses", slog.Any(logging.KeyErr, err))
		}
		p.Rest()
	}
}
