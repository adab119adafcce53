package daemon

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/intake"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/test/seeds"
)

// deviceScenario is something that a device does, which a sweep breaks at every file operation. A new one is an entry of
// deviceScenarios.
type deviceScenario struct {
	name string
	// before brings the world to where the scenario begins.
	before func(s *sim)
	// run does the thing and returns when nobody moves any more. A fault may be in its way.
	run func(s *sim) error
	// offline: the device is stopped while it runs.
	offline bool
	// mend is what a person does before the device starts again; nil for nothing.
	mend func(s *sim)
	// end holds what became of it against what only this scenario promises; nil for nothing.
	end func(s *sim)
	// atLeast is how many operations there must be, so that the sweep is known to reach what it is about.
	atLeast int
}

func deviceScenarios() []deviceScenario {
	return []deviceScenario{
		{name: "transfer and registration", before: twoWaiting, run: resumeSending, end: sentOnce, atLeast: 40},
		{name: "start after an end in transfer", before: (*sim).endInTransfer, run: startAgain, end: sentOnce, atLeast: 25},
		{name: "start after an end in registration", before: (*sim).endInRegistration, run: startAgain, end: sentOnce, atLeast: 15},
		{name: "receipts of lower grade", before: lowerGrade, run: resumeSending, mend: accepting, end: acceptedOnce, atLeast: 20},
		{name: "start that accepts a lower grade", before: (*sim).sentUnaccepted, run: startAgain, end: acceptedOnce, atLeast: 20},
		{name: "rebuild of what was sent", before: (*sim).sentAndDamaged, run: (*sim).rebuild, offline: true, mend: (*sim).acceptAndRebuildAgain,
			end: acceptedOnce, atLeast: 40},
		{name: "rebuild", before: (*sim).everyState, run: (*sim).rebuild, offline: true, mend: (*sim).rebuildAgain, end: rebuiltOnce, atLeast: 80},
	}
}

// deviceFault is what befalls one file operation.
type deviceFault struct {
	name string
	// err is what the operation returns; nil ends the process there.
	err error
	// at are the operations that can fail so; nil for all.
	at []durable.Op
}

var (
	spaceTaking  = []durable.Op{durable.OpCreate, durable.OpMkdir, durable.OpWrite, durable.OpTruncate, durable.OpSync, durable.OpRename}
	deviceFaults = []deviceFault{
		{"EIO", syscall.EIO, nil}, {"ENOSPC", syscall.ENOSPC, spaceTaking}, {"EDQUOT", syscall.EDQUOT, spaceTaking},
		{"short write", &durable.ShortWrite{N: 3, Err: syscall.ENOSPC}, []durable.Op{durable.OpWrite}},
		{"EXDEV", syscall.EXDEV, []durable.Op{durable.OpRename}},
		{"death", nil, nil},
	}
)

// Whatever fails at whichever file operation of the device, and wherever its process ends: nothing is shown as delivered that
// is not, no start leaves a broken invariant behind, and once the fault is over everything is delivered once, with its copy
// and its receipt kept, and with no more than one chunk sent twice.
func TestDeviceFaultSweep(t *testing.T) {
	for _, sc := range deviceScenarios() {
		for _, ft := range deviceFaults {
			t.Run(sc.name+"/"+ft.name, func(t *testing.T) {
				t.Parallel()
				n := 0
				for more := true; more; n++ {
					dir := seeds.Dir(t)
					synctest.Test(t, func(t *testing.T) { more = sc.once(t, dir, ft, n) })
					if t.Failed() {
						t.Fatalf("at operation %d", n)
					}
				}
				t.Logf("%d operations", n-1)
				if ft.at == nil && n < sc.atLeast {
					t.Errorf("only %d operations: the sweep does not reach what it is about", n)
				}
			})
		}
	}
}

// once runs the scenario in a new world with a fault at operation n of those that it can befall. It reports whether the
// fault was reached.
func (sc deviceScenario) once(t *testing.T, dir string, ft deviceFault, n int) (reached bool) {
	s := newSim(t, dir, 1)
	defer func() {
		if t.Failed() {
			t.Log(s.story())
		}
	}()
	s.openServer()
	s.device.cfg.Uplink.Workers, s.device.cfg.Uplink.Windows = 1, nil // a window that opens late leaves nothing to break
	s.device.start(0)
	defer func() {
		s.device.stop(false)
		s.server.stop(false)
	}()
	sc.before(s)
	var mu sync.Mutex
	count := 0
	s.device.disk.setFault(func(c durable.Call) error {
		mu.Lock()
		hit := !reached && (ft.at == nil || slices.Contains(ft.at, c.Op))
		if hit {
			hit = count == n
			count++
		}
		reached = reached || hit
		mu.Unlock()
		if !hit {
			return nil
		}
		s.note("%s at operation %d: %s %s", ft.name, n, c.Op, c.Path)
		if ft.err != nil {
			return ft.err
		}
		s.device.disk.end()
		return errSimCrash
	})
	err := sc.run(s)
	s.device.disk.setFault(nil)
	s.note("the scenario ended with %v", err)
	dead := s.device.disk.dead.Load()
	s.broken(dead || sc.offline)
	s.device.disk.revive()
	if sc.mend != nil {
		sc.mend(s)
	}
	s.device.restart(dead, 0)
	synctest.Wait()
	s.sound()
	s.heal()
	s.finish()
	s.sound()
	if sc.end != nil {
		sc.end(s)
	}
	return reached
}

// broken complains about what no fault excuses, before any recovery has looked: a state that promises more than what is on
// the disk.
func (s *sim) broken(offline bool) {
	s.t.Helper()
	var found []intake.Finding
	var err error
	if offline {
		found, err = Check(s.ctx, s.offline(), true, false)
	} else {
		found, err = s.device.session.intake.Check(s.ctx, intake.CheckOptions{Deep: true})
	}
	if errors.Is(err, ErrQueueMissing) || errors.Is(err, store.ErrDamaged) {
		return // a rebuild has not come to its end
	}
	must(s.t, err)
	for _, f := range found {
		switch f.Kind {
		case intake.BrokenUnrecorded, intake.BrokenAbandoned, intake.BrokenManifest:
			continue // custody is not promised yet, or a move is half done
		case intake.BrokenPlace:
			if strings.HasPrefix(f.Detail, "lies in "+string(spool.Payloads)) {
				continue // delivered, and its copy was not moved yet
			}
		}
		s.t.Errorf("before any recovery: %s %s %s", f.Kind, f.ID, f.Detail)
	}
}

// sound expects that nothing is broken, every payload read.
func (s *sim) sound() {
	s.t.Helper()
	s.look(true)
	found, err := s.device.session.intake.Check(s.ctx, intake.CheckOptions{Deep: true})
	must(s.t, err)
	for _, f := range found {
		s.t.Errorf("check: %s %s %s", f.Kind, f.ID, f.Detail)
	}
}

// offline are the options of the commands that work while no daemon runs, without faults.
func (s *sim) offline() Options {
	return Options{Config: s.device.cfg, FS: durable.OS(), Logger: s.log("offline")}
}

// rest lets time pass and leaves what has died dead.
func (s *sim) rest(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// captured drops a file and waits until it is in custody.
func (s *sim) captured(name string, size int) attachment.ID {
	s.t.Helper()
	content := uplinktest.Content(uint64(size), size)
	s.files = append(s.files, simFile{name: name, digest: digestOf(content)})
	s.device.drop(s.rnd, name, content)
	synctest.Wait()
	page, _, err := s.device.session.queue.List(queue.Query{Limit: queue.MaxPage})
	must(s.t, err)
	i := slices.IndexFunc(page, func(e queue.Entry) bool { return e.Manifest.Filename.Text == name })
	if i < 0 {
		s.t.Fatalf("%s is not in custody", name)
	}
	return page[i].ID
}

func twoWaiting(s *sim) {
	pauseSending(s)
	s.captured("large.jpg", 2*simChunk+700)
	s.captured("small.jpg", 900)
}

func pauseSending(s *sim) {
	_, err := s.device.session.PauseChannel(s.ctx, simPerson, control.ChannelAction{Reason: "simulated"})
	must(s.t, err)
}

func resumeSending(s *sim) error {
	_, err := s.device.session.ResumeChannel(s.ctx, simPerson, control.ChannelAction{})
	s.rest(5 * time.Minute)
	return err
}

func startAgain(s *sim) error {
	s.net.set(0, false)
	s.device.start(0)
	s.rest(5 * time.Minute)
	return nil
}

// endAt waits until the device has come to an operation and ends it there, with the link down.
func (s *sim) endAt(what string, match func(durable.Call) bool) {
	s.t.Helper()
	s.device.disk.setFault(func(c durable.Call) error {
		if !match(c) {
			return nil
		}
		s.note("the device ends before %s %s", c.Op, c.Path)
		s.ends++
		s.net.set(0, true)
		s.device.disk.end()
		return errSimCrash
	})
	s.rest(5 * time.Minute)
	if !s.device.disk.dead.Load() {
		s.t.Fatalf("the device never came to %s", what)
	}
	s.device.disk.setFault(nil)
	s.device.stop(true)
}

// endInTransfer ends the device when one chunk is confirmed and the next is about to be read.
func (s *sim) endInTransfer() {
	pauseSending(s)
	id := s.captured("uploading.jpg", 3*simChunk)
	_, err := s.device.session.ResumeChannel(s.ctx, simPerson, control.ChannelAction{})
	must(s.t, err)
	s.endAt("the second chunk", func(c durable.Call) bool {
		if c.Op != durable.OpRead || filepath.Base(c.Path) != string(id) {
			return false
		}
		e, err := s.device.session.queue.Get(id)
		return err == nil && e.Confirmed > 0
	})
}

// endInRegistration ends the device when the delivery is recorded and its payload not moved.
func (s *sim) endInRegistration() {
	pauseSending(s)
	id := s.captured("registered.jpg", simChunk)
	_, err := s.device.session.ResumeChannel(s.ctx, simPerson, control.ChannelAction{})
	must(s.t, err)
	s.endAt("the move to the delivered copies", func(c durable.Call) bool {
		return c.Op == durable.OpRename && c.Path == s.device.session.spool.Path(spool.Delivered, id)
	})
}

// sentOnce expects that each byte was sent once, apart from one chunk for the fault and one for the end before it.
func sentOnce(s *sim) {
	for id, e := range s.records() {
		if again := s.sent[id] - e.Manifest.Length; again > simChunk*(1+s.ends) {
			s.t.Errorf("%s: %d bytes were sent twice", e.Manifest.Filename.Text, again)
		}
	}
}

func (s *sim) records() map[attachment.ID]queue.Entry {
	s.t.Helper()
	page, _, err := s.device.session.queue.List(queue.Query{Limit: queue.MaxPage})
	must(s.t, err)
	records := map[attachment.ID]queue.Entry{}
	for _, e := range page {
		records[e.ID] = e
	}
	return records
}
