package daemon

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/test/seeds"
)

var (
	simSeeds = flag.Int("sim.seeds", simDefault, "how many worlds of device, link and server are simulated")
	simSeed  = flag.Uint64("sim.seed", 0, "simulate this world only")
	simSteps = flag.Int("sim.steps", 12, "events in each world before its faults end")
)

// Device, link and server in one process and in fake time, under faults that a seed chooses: cuts, latency and silence of
// the link, wrong answers, full and failing disks, ends of either process at any file operation, refused credentials, and
// people who pause and retry. The promises hold after every step, and once the faults end, everything is delivered.
func TestSim(t *testing.T) {
	seeds.Each(t, *simSeeds, *simSeed, func(t *testing.T, dir string, seed uint64) { newSim(t, dir, seed).run() })
}

// sim is one world. Only the goroutine of run uses it, apart from what mu guards.
type sim struct {
	t      *testing.T
	ctx    context.Context
	seed   uint64
	rnd    *rand.Rand
	net    *simNet
	server *simServer
	device *simDevice
	logs   *simLog
	files  []simFile
	names  int
	ends   int64 // of the device in a sweep, before its fault
	seen   map[attachment.ID]simSeen

	mu       sync.Mutex
	chance   *rand.Rand // of the device
	trace    []string
	lost     map[attachment.ID]bool   // since it was looked at last
	sessions map[string]attachment.ID // by upload session
	requests map[attachment.ID]int    // how many the device made for it
	sent     map[attachment.ID]int64  // bytes of it in these requests
	// held is since when nothing may be sent for an attachment, or, under the empty ID, at all.
	held map[attachment.ID]time.Time
}

// simFile is something that a person captured.
type simFile struct {
	name   string
	digest attachment.Digest
}

func newSim(t *testing.T, dir string, seed uint64) *sim {
	s := &sim{
		t: t, ctx: context.WithoutCancel(t.Context()), seed: seed, rnd: rand.New(rand.NewPCG(seed, 0)), logs: &simLog{},
		net:    &simNet{seed: seed, conns: map[*simConn]bool{}},
		seen:   map[attachment.ID]simSeen{},
		chance: rand.New(rand.NewPCG(seed, 1)), lost: map[attachment.ID]bool{}, sessions: map[string]attachment.ID{},
		held: map[attachment.ID]time.Time{}, requests: map[attachment.ID]int{}, sent: map[attachment.ID]int64{},
	}
	s.server = &simServer{s: s, dir: filepath.Join(dir, "server"), rnd: rand.New(rand.NewPCG(seed, 2))}
	s.server.disk.rnd = rand.New(rand.NewPCG(seed, 3))
	s.server.disk.onCrash = s.net.cut
	s.device = newSimDevice(s, dir)
	s.device.disk.rnd = rand.New(rand.NewPCG(seed, 4))
	return s
}

func (s *sim) run() {
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s\nagain: go test ./internal/daemon -run TestSim -sim.seed=%d -sim.steps=%d", s.story(), s.seed, *simSteps)
		}
	}()
	s.openServer()
	s.net.set(s.rnd.Float64()*0.7, false)
	s.server.wrong = s.rnd.Float64() * s.rnd.Float64() * 0.3
	s.device.start(0)
	defer func() {
		s.device.stop(false)
		s.server.stop(false)
	}()
	for range 1 + s.rnd.IntN(3) {
		s.capture()
	}
	for step := range *simSteps {
		s.advance(s.pause())
		s.event()
		s.look(step%6 == 0)
		if s.t.Failed() {
			return
		}
	}
	s.heal()
	s.finish()
}

// openServer starts the server for the first time and gives the device its credential.
func (s *sim) openServer() {
	s.server.start()
	_, s.server.eyes = s.server.token("eyes")
	s.newCredential()
}

// story is what happened, for a failure.
func (s *sim) story() string {
	return "what happened:\n" + strings.Join(s.trace, "\n") + "\nlog:\n" + s.logs.tail()
}

// pause is how long nothing but the device and the server moves.
func (s *sim) pause() time.Duration {
	longest := []time.Duration{50 * time.Millisecond, 3 * time.Second, 30 * time.Second, 5 * time.Minute, time.Hour}
	return time.Millisecond + time.Duration(s.rnd.Int64N(int64(longest[s.rnd.IntN(len(longest))])))
}

// advance lets time pass, until everybody waits for something.
func (s *sim) advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
	s.revive()
}

// revive starts what has died at a file operation.
func (s *sim) revive() {
	for s.server.disk.dead.Load() || s.device.disk.dead.Load() {
		if s.server.disk.dead.Load() {
			s.note("the server is started again")
			s.server.restart(true)
		}
		if s.device.disk.dead.Load() {
			s.note("the device is started again")
			s.device.restart(true, s.maybe(6))
		}
		synctest.Wait()
	}
}

// maybe is a number of file operations until the next end of a process, or mostly 0 for none.
func (s *sim) maybe(oneIn int) int64 {
	if s.rnd.IntN(oneIn) > 0 {
		return 0
	}
	return 1 + s.rnd.Int64N(60)
}

func (s *sim) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (s *sim) float() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chance.Float64()
}

func (s *sim) log(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug})).With(slog.String("who", who))
}

// event is one thing that happens to this world.
func (s *sim) event() {
	events := []struct {
		weight int
		do     func()
	}{
		{22, s.capture}, {6, s.submit}, {10, s.person}, {6, s.personAll},
		{8, func() { s.note("the device is killed"); s.device.restart(true, s.maybe(3)) }},
		{4, func() { s.note("the device is restarted"); s.device.restart(false, s.maybe(3)) }},
		{10, func() {
			n := 1 + s.rnd.Int64N(80)
			s.note("the device will die at operation %d", n)
			s.device.disk.arm(n)
		}},
		{5, func() { s.note("the server is killed"); s.server.restart(true) }},
		{4, func() { s.note("the server is restarted"); s.server.restart(false) }},
		{8, func() {
			n := 1 + s.rnd.Int64N(40)
			s.note("the server will die at operation %d", n)
			s.server.disk.arm(n)
		}},
		{6, s.weather}, {5, s.credential},
		{3, func() { full := s.rnd.IntN(2) == 0; s.note("the server is full: %v", full); s.server.full.Store(full) }},
		{3, s.badDisks},
	}
	total := 0
	for _, e := range events {
		total += e.weight
	}
	at := s.rnd.IntN(total)
	for _, e := range events {
		if at -= e.weight; at < 0 {
			e.do()
			synctest.Wait()
			s.revive()
			return
		}
	}
}

func (s *sim) content() []byte {
	seed, size := s.rnd.Uint64()%64, s.rnd.IntN([]int{200, 40_000, 120_000}[s.rnd.IntN(3)])+1
	if len(s.files) > 0 && s.rnd.IntN(6) == 0 {
		seed, size = 1, 30_000 // the same picture again
	}
	return uplinktest.Content(seed, size)
}

func digestOf(content []byte) attachment.Digest {
	h := attachment.NewHasher()
	if _, err := h.Write(content); err != nil {
		return attachment.Digest{}
	}
	return h.Sum().SHA256
}

func (s *sim) name(format string) string {
	s.names++
	return fmt.Sprintf(format, s.names)
}

func (s *sim) capture() {
	content, name := s.content(), s.name("p-%d.jpg")
	s.note("captured %s, %d bytes", name, len(content))
	s.files = append(s.files, simFile{name: name, digest: digestOf(content)})
	s.device.drop(s.rnd, name, content)
}

// submit hands over a file; one that the device does not confirm is the caller's to keep.
func (s *sim) submit() {
	content, name := s.content(), s.name("s-%d.pdf")
	taken := s.device.submit(name, content)
	s.note("submitted %s, %d bytes: %v", name, len(content), taken)
	if taken {
		s.files = append(s.files, simFile{name: name, digest: digestOf(content)})
	}
}

// weather changes the link.
func (s *sim) weather() {
	trouble, down := s.rnd.Float64()*0.9, s.rnd.IntN(3) == 0
	s.note("the link: trouble %.2f, down %v", trouble, down)
	s.net.set(trouble, down)
	if s.rnd.IntN(2) == 0 {
		s.net.cut()
	}
}

// badDisks makes file operations fail, or lets them work again.
func (s *sim) badDisks() {
	device, server := s.rnd.Float64()*0.1*float64(s.rnd.IntN(2)), s.rnd.Float64()*0.1*float64(s.rnd.IntN(2))
	s.note("disks fail: device %.3f, server %.3f", device, server)
	s.device.disk.setFails(device)
	s.server.disk.setFails(server)
}

// credential takes the device's token away, or gives it a new one.
func (s *sim) credential() {
	if s.rnd.IntN(2) == 0 {
		s.note("the token is revoked")
		if _, err := s.server.srv.Admin().RevokeToken(s.ctx, s.server.tokenID); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	s.newCredential()
}

func (s *sim) newCredential() {
	s.note("a new token")
	id, text := s.server.token("tablet")
	s.server.tokenID = id
	s.device.setToken(text)
}

// person decides about one attachment.
func (s *sim) person() {
	page, _, err := s.device.session.queue.List(queue.Query{Limit: queue.MaxPage})
	if err != nil || len(page) == 0 {
		return // the device is about to die
	}
	id := page[s.rnd.IntN(len(page))].ID
	a := control.Action{IDs: []attachment.ID{id}, Reason: "simulated"}
	switch s.rnd.IntN(5) {
	case 4:
		s.prioritize(a)
	case 0:
		out, err := s.device.session.Retry(s.ctx, simPerson, a)
		s.note("retry of %s: %d done, %v", id, out.Done, err)
	case 1, 2:
		out, err := s.device.session.Pause(s.ctx, simPerson, a)
		s.note("pause of %s: %d done, %v", id, out.Done, err)
		if err == nil && out.Done == 1 {
			s.hold(id, true)
		}
	default:
		s.hold(id, false)
		out, err := s.device.session.Resume(s.ctx, simPerson, a)
		s.note("resume of %s: %d done, %v", id, out.Done, err)
	}
}

// personAll decides about everything.
func (s *sim) personAll() {
	a, all := control.ChannelAction{Reason: "simulated"}, control.Action{All: true}
	switch s.rnd.IntN(4) {
	case 0:
		out, err := s.device.session.Retry(s.ctx, simPerson, all)
		s.note("retry of all: %d done, %v", out.Done, err)
	case 1:
		_, err := s.device.session.PauseChannel(s.ctx, simPerson, a)
		s.note("all sending is paused: %v", err)
		if err == nil {
			s.hold("", true)
		}
	case 2:
		s.resumeAll()
	default:
		s.hold("", false)
		_, err := s.device.session.ResumeChannel(s.ctx, simPerson, a)
		s.note("sending is resumed: %v", err)
	}
}

func (s *sim) resumeAll() {
	s.mu.Lock()
	for id := range s.held {
		if id != "" {
			delete(s.held, id)
		}
	}
	s.mu.Unlock()
	out, err := s.device.session.Resume(s.ctx, simPerson, control.Action{All: true})
	s.note("resume of all: %d done, %v", out.Done, err)
}

func (s *sim) hold(id attachment.ID, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch _, stands := s.held[id]; {
	case !held:
		delete(s.held, id)
	case !stands:
		s.held[id] = time.Now()
	}
}

// heal ends every fault and every decision.
func (s *sim) heal() {
	s.note("the faults end")
	s.device.disk.setFails(0)
	s.server.disk.setFails(0)
	s.net.set(0, false)
	s.server.full.Store(false)
	s.server.mu.Lock()
	s.server.wrong = 0
	s.server.mu.Unlock()
	s.server.disk.crashAt.Store(0)
	s.device.cfg.Uplink.Windows = nil
	s.device.restart(s.rnd.IntN(2) == 0, 0)
	s.newCredential()
	s.hold("", false)
	if _, err := s.device.session.ResumeChannel(s.ctx, simPerson, control.ChannelAction{}); err != nil {
		s.t.Errorf("resume sending: %v", err)
	}
	s.resumeAll()
	synctest.Wait()
}
