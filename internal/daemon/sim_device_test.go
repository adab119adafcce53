package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/server"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/intake"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/fieldgw"
	"github.com/fieldgw/fieldgw/internal/watch"
)

// Sizes of a chunk, in bytes.
const (
	simChunk = 16 << 10
	simFloor = 2 << 10
)

// simDevice is the daemon's session without what stops fake time: watcher, control socket and disk sensor.
type simDevice struct {
	s       *sim
	dir     string // of the account
	capture string
	cfg     *config.Config
	disk    simDisk
	reserve int64 // of the queue file, as in store.Options
	// grade is what the server's receipts are made to be worth; empty: as they are.
	grade receipt.Grade

	session *session
	client  *remote.Client
	cancel  context.CancelFunc
	loops   sync.WaitGroup
	stays   map[string]bool // sources that were taken and stay in place, in this process
	dropped chan struct{}   // tells the watch of a new file

	mu       sync.Mutex
	notTaken map[string]attachment.Code // why a candidate was not taken when it was offered last
}

func newSimDevice(s *sim, dir string) *simDevice {
	cfg := config.Default(nil)
	cfg.StateDir = dir
	cfg.Uplink.Endpoint, cfg.Uplink.Credential = "http://127.0.0.1/", filepath.Join(dir, "token")
	cfg.Uplink.Workers = 1 + s.rnd.IntN(4)
	cfg.Uplink.Small = 4 << 10
	if s.rnd.IntN(2) == 0 {
		cfg.Uplink.Windows = simWindows(s)
	}
	w := &config.Watch{Name: "camera", Path: filepath.Join(dir, "capture"), Parent: config.ParentDirectory, Adopt: config.AdoptMove}
	if s.rnd.IntN(3) == 0 {
		w.Adopt = config.AdoptCopy
	}
	cfg.Watch["camera"] = w
	d := &simDevice{s: s, cfg: cfg, capture: w.Path, dropped: make(chan struct{}, 1), notTaken: map[string]attachment.Code{}, dir: filepath.Join(dir, "accounts", simAccount)}
	for _, made := range []string{d.capture, d.dir} {
		must(s.t, os.MkdirAll(made, 0o700))
	}
	return d
}

func (d *simDevice) setToken(text string) {
	must(d.s.t, os.WriteFile(d.cfg.Uplink.Credential, []byte(text), 0o600))
}

// start starts the device until it stays up: a crash may be in store for its recovery too.
func (d *simDevice) start(crashAt int64) {
	for {
		d.disk.revive()
		if crashAt > 0 {
			d.disk.arm(crashAt)
		}
		err := d.tryStart()
		if err == nil {
			return
		}
		if errno := syscall.Errno(0); !d.disk.dead.Load() && !errors.As(err, &errno) {
			d.s.t.Fatalf("the device does not start: %v", err)
		}
		d.s.note("the device ended in its recovery: %v", err)
		d.disk.setFails(0)
		crashAt = 0
	}
}

func (d *simDevice) tryStart() error {
	fsys, log := durable.Hooked(d.disk.before), d.s.log("device")
	st, err := store.Open(filepath.Join(d.dir, "queue.db"), queueSchema(), store.Options{Reserve: d.reserve, Logger: log})
	if err != nil {
		return err
	}
	d.disk.onCrash = func() {
		d.s.net.cut()
		if err := st.Close(); err != nil {
			d.s.t.Errorf("close the queue: %v", err)
		}
	}
	n, err := d.assemble(fsys, st, log)
	if err == nil {
		err = n.recover(d.s.ctx)
	}
	if err != nil {
		return errors.Join(err, st.Close())
	}
	n.queue.Subscribe(d.s.transition)
	d.session, d.stays = n, map[string]bool{}
	ctx, cancel := context.WithCancel(d.s.ctx)
	d.cancel = cancel
	d.loops.Go(func() {
		if err := n.dispatcher.run(ctx); err != nil {
			d.s.t.Errorf("dispatcher: %v", err)
		}
	})
	d.loops.Go(func() { d.watchLoop(ctx) })
	d.loops.Go(func() { d.slowLoop(ctx) })
	return nil
}

// assemble is what assemble and connect do, with the network of the simulation.
func (d *simDevice) assemble(fsys *durable.FS, st *store.Store, log *slog.Logger) (*session, error) {
	n := &session{
		waits: newWaits(),
		opts:  Options{Config: d.cfg, FS: fsys, Logger: log, Notify: func(string) {}}, cfg: d.cfg, log: log,
		acc: account{name: simAccount, device: "tablet", dir: d.dir}, started: time.Now(), store: st,
		queue: queue.New(st, queue.Options{Logger: log}), storage: &storage{}, rebind: make(chan struct{}),
	}
	var err error
	if n.spool, err = spool.Open(fsys, d.dir); err != nil {
		return nil, err
	}
	n.intake = intake.New(intake.Options{FS: fsys, Spool: n.spool, Queue: n.queue, Logger: log})
	n.dispatcher = newDispatcher(n)
	n.dispatcher.rnd = d.s.float
	n.dispatcher.trusted = func(time.Time) (bool, string) { return true, "" }
	d.client, err = remote.New(remote.Options{
		Endpoint: d.cfg.Uplink.Endpoint, Dial: d.s.net.Dial, Logger: log,
		Credential: accountCredential{remote.CredentialFile(d.cfg.Uplink.Credential), simAccount, n.askRebind},
	})
	if err != nil {
		return nil, err
	}
	n.dispatcher.client = d.client
	n.dispatcher.uplink, err = uplink.New(uplink.Options{
		Driver: &grading{fieldgw.New(d.client), d}, ChunkMax: simChunk, ChunkFloor: simFloor, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	return n, n.dispatcher.loadChannel()
}

// stop ends the process, in order or by a crash, which lets it write nothing more.
func (d *simDevice) stop(crash bool) {
	if crash {
		d.disk.end()
	}
	d.cancel()
	d.loops.Wait()
	d.client.CloseIdle()
	if err := d.session.store.Close(); err != nil {
		d.s.t.Errorf("close the queue: %v", err)
	}
}

func (d *simDevice) restart(crash bool, crashAt int64) {
	d.stop(crash)
	d.start(crashAt)
}

// watchLoop offers what lies in the capture directory, as the watch would: when something is dropped there, when a file
// that was not taken is due again, and now and then.
func (d *simDevice) watchLoop(ctx context.Context) {
	again := map[string]time.Time{}
	for {
		next := time.Now().Add(10 * time.Minute)
		for _, c := range d.candidates() {
			if !d.stays[c.RelPath] && !time.Now().Before(again[c.RelPath]) {
				result := d.session.take(ctx, c)
				d.mu.Lock()
				d.notTaken[c.RelPath] = result.Code
				d.mu.Unlock()
				switch result.Kind {
				case watch.Again:
					again[c.RelPath] = time.Now().Add(max(result.Retry, 100*time.Millisecond))
				case watch.Stays:
					d.stays[c.RelPath] = true
				}
			}
			if at := again[c.RelPath]; at.After(time.Now()) && at.Before(next) {
				next = at
			}
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.dropped:
		}
		if timer.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// candidates are the files that a person sees in the capture directory.
func (d *simDevice) candidates() (found []watch.Candidate) {
	err := filepath.WalkDir(d.capture, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			return nil // it may be gone by now
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		id, _, _ := durable.IdentityOf(info)
		rel, err := filepath.Rel(d.capture, path)
		c := watch.Candidate{
			Watch: "camera", Root: d.capture, Path: path, RelPath: rel, Identity: attachment.SourceIdentity(id),
			Evidence: attachment.EvidenceLease,
		}
		if dir := filepath.Dir(rel); dir != "." {
			c.ParentDir = dir
		}
		found = append(found, c)
		return err
	})
	must(d.s.t, err)
	return found
}

// slowLoop is the part of housekeeping that does not measure the machine.
func (d *simDevice) slowLoop(ctx context.Context) {
	credential, release := time.NewTicker(3*sensorPeriod), time.NewTicker(3*releasePeriod)
	defer credential.Stop()
	defer release.Stop()
	d.session.releaseSources(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-credential.C:
			d.session.observeCredential()
		case <-release.C:
			d.session.releaseSources(ctx)
		}
	}
}

// drop puts a finished file into the capture directory.
func (d *simDevice) drop(rnd *rand.Rand, name string, content []byte) {
	path := filepath.Join(d.capture, name)
	if rnd.IntN(2) == 0 {
		path = filepath.Join(d.capture, fmt.Sprintf("insp-%d", rnd.IntN(3)), name)
		must(d.s.t, os.MkdirAll(filepath.Dir(path), 0o700))
	}
	hidden := filepath.Join(d.capture, ".writing")
	must(d.s.t, os.WriteFile(hidden, content, 0o600))
	must(d.s.t, os.Rename(hidden, path))
	select {
	case d.dropped <- struct{}{}:
	default:
	}
}

var simPerson = server.Caller{UID: 1000, User: "anna"}

// submit hands a file over as a program would. It reports whether the device said that it has it.
func (d *simDevice) submit(name string, content []byte) bool {
	sub := control.Submission{
		SubmissionID: uuid.NewString(), Record: attachment.NameOf("insp-9"),
		Files: []control.SubmissionFile{{Name: attachment.NameOf(name), Length: int64(len(content))}},
	}
	_, err := d.session.Submit(d.s.ctx, simPerson, sub, func() (io.Reader, error) { return bytes.NewReader(content), nil })
	return err == nil
}

// owner is the attachment that a session was recorded for; empty when the device knows none.
func (d *simDevice) owner(session string) attachment.ID {
	page, _, err := d.session.queue.List(queue.Query{Limit: queue.MaxPage})
	if err != nil {
		return "" // it just died
	}
	for _, e := range page {
		if e.Manifest != nil && e.Manifest.Delivery.Session.ID == session {
			return e.ID
		}
	}
	return ""
}
