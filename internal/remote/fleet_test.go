package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// fleetSize is the number of devices that are simulated.
const fleetSize = 1000

// outage is one way in which a fleet loses its server and finds it again.
type outage struct {
	name string
	// lasts is how long no request succeeds.
	lasts time.Duration
	// failure is what each device sees; by default it has no connection.
	failure Case
	// retryAfter is what the answer asks for.
	retryAfter time.Duration
	// online resets every device at the end of the outage, all in the same moment, with this spread.
	online time.Duration
	// busiest is how many requests the server may get in its busiest second, from the beginning of the outage on.
	busiest int
}

// A fleet that lost its server in one moment does not come back in one: not during the outage, and not after it.
func TestFleetDoesNotStorm(t *testing.T) {
	data, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	connect := Case{Step: StepAppend, Kind: KindConnect}
	for _, o := range []outage{
		{name: "a server that was away for 20 s", lasts: 20 * time.Second, failure: connect, busiest: 70},
		{name: "an outage of two hours, by the schedule", lasts: 2 * time.Hour, failure: connect, busiest: 70},
		{name: "`Retry-After: 120` told to all in one second", lasts: 2 * time.Minute, retryAfter: 2 * time.Minute,
			failure: Case{Step: StepAppend, Kind: KindProblem, Status: 503, Waits: true}, busiest: 70},
		{name: "coverage that came back for all in one moment", lasts: 2 * time.Hour, failure: connect, online: OnlineSpread, busiest: 110},
	} {
		t.Run(o.name, func(t *testing.T) {
			during, after, back := o.play(1)
			row := fmt.Sprintf("| %s | %d | %d | %s | %s |", o.name, during, after,
				back[fleetSize/2].Round(time.Second), back[fleetSize-1].Round(time.Second))
			t.Log(row)
			if during > o.busiest || after > o.busiest {
				t.Errorf("%d requests in one second during the outage, %d after it; at most %d may be", during, after, o.busiest)
			}
			if !strings.Contains(string(data), row) {
				t.Errorf("docs/errors.md does not have this row")
			}
		})
	}
}

// play returns how many requests came in the busiest second during the outage and after it, and when each device had its
// first success, counted from the outage's end, sorted.
func (o outage) play(seed uint64) (during, after int, back []time.Duration) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	began := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	perSecond := map[bool]map[int]int{true: {}, false: {}}
	for range fleetSize {
		now := began
		c := NewChannel(ChannelState{}, DefaultSchedule(), func() time.Time { return now }, rnd.Float64)
		e := &Error{Step: o.failure.Step, Kind: o.failure.Kind, Status: o.failure.Status, Ruling: Classify(o.failure), RetryAfter: o.retryAfter}
		for now.Sub(began) < o.lasts {
			c.Failure(context.Background(), "", e, nil)
			next := c.State().NotBefore
			if o.online > 0 && next.Sub(began) >= o.lasts {
				now = began.Add(o.lasts)
				c.Reset(o.online)
				next = c.State().NotBefore
			}
			now = next
			perSecond[now.Sub(began) >= o.lasts][int(now.Sub(began)/time.Second)]++
		}
		back = append(back, now.Sub(began)-o.lasts)
	}
	slices.Sort(back)
	busiest := func(m map[int]int) (n int) {
		for _, k := range m {
			n = max(n, k)
		}
		return n
	}
	return busiest(perSecond[false]), busiest(perSecond[true]), back
}
