package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// The volumes that are cut.
const (
	roleDevice  = "device"
	roleCapture = "capture"
	roleServer  = "server"
)

var allRoles = []string{roleDevice, roleCapture, roleServer}

const (
	kib = 1 << 10
	// chunk is the daemon's chunk size, the smallest that it takes: many confirmed offsets in little time.
	chunk = 128 * kib
	// rate is the link's speed in bytes per second.
	rate = 2 << 20
	// lifetime is how long an undisturbed run takes from the first drop to the last receipt, roughly.
	lifetime = 1500 * time.Millisecond
	settle   = 100 * time.Millisecond
)

// sizes are those of the captured files: the plant room's four in small.
var sizes = []int{300 * kib, 300 * kib, 300 * kib, 60 * kib}

// captured is a file that the writer drops.
type captured struct {
	name    string
	content []byte
	sha256  string
	gap     time.Duration // before it is dropped
}

// plan is everything that the seed decides.
type plan struct {
	fs, role string
	seed     uint64
	files    []captured
	// The power is cut delay after the nth attachment was seen with event. An empty event is the first drop; staging
	// means that a file of its adoption has appeared.
	event attachment.Event
	nth   int
	delay time.Duration
	// careless: the capturing program syncs nothing, as most do. What was not adopted may be lost then, and is captured
	// again after the cut; what was adopted may not.
	careless bool
	// restartOther stops and starts the daemon in order while the server is without power.
	restartOther bool
}

// staging is the trigger for cuts in the middle of an adoption, which is not logged.
const staging attachment.Event = "staging"

// triggers are drawn from evenly: about a third of the cuts at any time, the others close to a step.
var triggers = []attachment.Event{
	"", "", "", staging, staging, attachment.EventAdopted, attachment.EventSessionOpened, attachment.EventVerified,
	attachment.EventRegistered,
}

func newPlan(fs, role string, seed uint64) plan {
	rnd := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	p := plan{fs: fs, role: role, seed: seed}
	staggered := rnd.IntN(2) == 0
	bytes := rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "%d", seed)))
	for i, size := range sizes {
		f := captured{name: fmt.Sprintf("recording-%d.bin", i+1), content: make([]byte, size)}
		_, _ = bytes.Read(f.content) // never fails, see ChaCha8.Read
		sum := sha256.Sum256(f.content)
		f.sha256 = hex.EncodeToString(sum[:])
		if staggered {
			f.gap = time.Duration(rnd.Int64N(int64(200 * time.Millisecond)))
		}
		p.files = append(p.files, f)
	}
	p.event = triggers[rnd.IntN(len(triggers))]
	p.nth = 1 + rnd.IntN(len(p.files))
	span := 8 * time.Millisecond
	if p.event == "" {
		span = lifetime
	}
	p.delay = time.Duration(rnd.Int64N(int64(span)))
	p.careless = rnd.IntN(2) == 0
	p.restartOther = role == roleServer && rnd.IntN(4) == 0
	return p
}

// want is what must be on the server in the end: names and digests.
func (p *plan) want() map[string]string {
	m := map[string]string{}
	for _, f := range p.files {
		m[f.name] = f.sha256
	}
	return m
}

// replay is the command that makes this cut again.
func (p *plan) replay() string {
	return fmt.Sprintf("go run ./test/powercut -cuts 1 -seed %d -fs %s -roles %s", p.seed, p.fs, p.role)
}
