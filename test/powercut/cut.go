package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/test/rig"
)

const (
	record = "inspection-7"
	// triggerLimit bounds the wait for the event of a plan; what has not happened by then is cut nevertheless.
	triggerLimit = 10 * time.Second
	// finishLimit bounds everything that is left to do after a cut.
	finishLimit = 60 * time.Second
	portLimit   = 30 * time.Second
	look        = 2 * time.Millisecond
)

// cut is one power cut with everything before and after it.
type cut struct {
	plan
	dir    string
	rig    *rig.Rig
	volume *volume
	ctl    *client.Client
	asCut  string // the image as the cut left it, never mounted

	drop    sync.Mutex // held by the writer while it drops, and by whoever cuts the power
	dropped int

	mu    sync.Mutex
	shown map[string]shown
}

// result is what one cut gave.
type result struct {
	plan
	phase    phase
	counts   map[phase]int
	recovery time.Duration // from mounting the copy until the program is ready
	resent   int64
	weak     bool
	broken   []violation
	took     time.Duration
}

// add records a broken promise.
func (r *result) add(kind, format string, args ...any) {
	r.broken = append(r.broken, violation{kind, fmt.Sprintf(format, args...)})
}

// run makes the cut. An error means that it could not be made or judged, which is no result.
func (c *cut) run(ctx context.Context, bin, pristine string) (res result, err error) {
	began := time.Now()
	defer func() { res.took = time.Since(began) }()
	res = result{plan: c.plan}
	c.prepare()
	defer c.ctl.Close()
	defer func() { err = errors.Join(err, c.end()) }()
	if err := copySparse(pristine, c.volume.image); err != nil {
		return res, err
	}
	if err := c.begin(ctx, bin); err != nil {
		return res, fmt.Errorf("begin: %w", err)
	}
	life, stop := context.WithCancel(ctx)
	var writer, watcher sync.WaitGroup
	defer func() { stop(); writer.Wait(); watcher.Wait() }()
	var writeErr error
	first := make(chan struct{})
	writer.Go(func() { writeErr = c.write(life, first) })
	watching, stopWatching := context.WithCancel(life)
	defer stopWatching()
	watcher.Go(func() { c.watch(watching) })
	select {
	case <-first:
	case <-ctx.Done():
		return res, ctx.Err()
	}
	if err := c.moment(ctx); err != nil {
		return res, err
	}
	stopWatching()
	f, err := c.power(&watcher, &res)
	if err != nil {
		return res, fmt.Errorf("cut: %w", err)
	}
	if len(res.broken) > 0 {
		return res, nil
	}
	if err := c.recover(ctx, f, &res); err != nil || len(res.broken) > 0 {
		return res, err
	}
	return res, c.finish(ctx, f, &res, func() error { writer.Wait(); return writeErr })
}

// prepare fills in what follows from plan and directory.
func (c *cut) prepare() {
	c.volume = &volume{fs: c.fs, image: filepath.Join(c.dir, "volume.img"), at: c.place()}
	c.asCut = filepath.Join(c.dir, "as-cut.img")
	c.shown = map[string]shown{}
	c.ctl = client.New(filepath.Join(c.dir, "device", "run", "control.sock"))
}

// place is where the volume under test is mounted.
func (c *cut) place() string {
	switch c.role {
	case roleDevice:
		return filepath.Join(c.dir, "device")
	case roleCapture:
		return filepath.Join(c.dir, "device", "capture")
	}
	return filepath.Join(c.dir, "server")
}

// canary is a file on the volume that nobody syncs.
func (c *cut) canary() string { return filepath.Join(c.volume.at, "canary.unsynced") }

// begin mounts a new volume and starts the programs on it.
func (c *cut) begin(ctx context.Context, bin string) error {
	device := filepath.Join(c.dir, "device")
	token, cert := filepath.Join(device, "credentials", "token"), filepath.Join(device, "credentials", "ca.pem")
	// The device has its credentials from elsewhere: the server's volume is away for a while.
	extra := fmt.Sprintf(`[watch.camera]
settle = %q
exclude = ["*.unsynced"]
[uplink]
chunk_size = "%dB"
credential = %q
ca_file = %q
`, settle, chunk, token, cert)
	return inOrder(
		c.volume.mount,
		func() (err error) {
			c.rig, err = rig.New(ctx, rig.Options{Dir: c.dir, Bin: bin, Retry: "100ms-200ms"})
			return err
		},
		func() error { return os.MkdirAll(filepath.Join(device, "conf.d"), 0o755) },
		func() error {
			return os.WriteFile(filepath.Join(device, "conf.d", "powercut.toml"), []byte(extra), 0o600)
		},
		func() error { return os.Mkdir(filepath.Join(device, "credentials"), 0o700) },
		func() error { return copySparse(filepath.Join(c.dir, "server", "device.token"), token) },
		func() error { return copySparse(filepath.Join(c.dir, "server", "tls", "cert.pem"), cert) },
		func() error { return os.MkdirAll(filepath.Join(c.rig.Capture(), record), 0o755) },
		func() error {
			if c.role == roleServer { // its first start is part of what is cut
				return nil
			}
			return c.volume.flush()
		},
		func() error { return c.rig.StartDaemon(ctx) },
		func() error { return os.WriteFile(c.canary(), make64(), 0o600) },
		func() error { c.rig.Link.SetRate(rate); return nil },
	)
}

// make64 is a canary's content.
func make64() []byte {
	b := make([]byte, 64*kib)
	for i := range b {
		b[i] = 'c'
	}
	return b
}

// end stops what still runs and unmounts. The programs are killed: an orderly stop is not the matter here.
func (c *cut) end() error {
	var errs []error
	if c.rig != nil {
		if d := c.rig.Daemon(); d != nil && d.Running() {
			errs = append(errs, c.rig.KillDaemon())
		}
		errs = append(errs, c.rig.Close())
	}
	if err := c.volume.unmount(); err != nil {
		errs = append(errs, err, c.volume.abandon())
	}
	return errors.Join(errs...)
}

// write drops the files one after the other. It goes on after the cut with what is left, as the person with the camera
// does.
func (c *cut) write(ctx context.Context, began chan<- struct{}) error {
	for i, f := range c.files {
		if i > 0 {
			select {
			case <-time.After(f.gap):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c.drop.Lock()
		err := c.capture(f)
		if err == nil {
			c.dropped++
		}
		c.drop.Unlock()
		if i == 0 {
			close(began)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cut) capture(f captured) error {
	if c.careless {
		return os.WriteFile(c.source(f), f.content, 0o644)
	}
	return writeSynced(c.source(f), f.content)
}

func (c *cut) source(f captured) string { return filepath.Join(c.rig.Capture(), record, f.name) }

// watch notes what the control socket shows, again and again.
func (c *cut) watch(ctx context.Context) {
	tick := time.NewTicker(2 * look)
	defer tick.Stop()
	for ctx.Err() == nil {
		if page, err := c.ctl.List(ctx, control.ListQuery{Limit: control.MaxPage}); err == nil {
			c.note(page.Items)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (c *cut) note(items []control.Item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range items {
		s := shown{name: i.Filename.Exact(), sha256: i.SHA256.String(), delivered: i.Condition == attachment.ShownDelivered}
		if i.ConfirmedBytes != nil {
			s.confirmed = *i.ConfirmedBytes
		}
		c.shown[string(i.ID)] = s
	}
}

// moment waits for the plan's moment.
func (c *cut) moment(ctx context.Context) error {
	limit := time.After(triggerLimit)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for c.event != "" {
		n, err := c.happened()
		if err != nil {
			return err
		}
		if n >= c.nth {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-limit:
		case <-ctx.Done():
			return ctx.Err()
		}
		break
	}
	select {
	case <-time.After(c.delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// happened counts the attachments that have met the plan's event.
func (c *cut) happened() (int, error) {
	all, err := readLog(c.rig.Log("fieldgwd"))
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for _, t := range all {
		if t.event == c.event || c.event == staging && t.event == attachment.EventAdopted {
			seen[t.id] = true
		}
	}
	if c.event == staging {
		return len(seen) + c.staged(), nil
	}
	return len(seen), nil
}

// staged counts the payloads in staging.
func (c *cut) staged() (n int) {
	parts, err := filepath.Glob(filepath.Join(c.rig.Spool(), "spool", "staging", "*.part"))
	if err != nil {
		return 0
	}
	return len(parts)
}

// promised collects what the device has promised by now.
func (c *cut) promised() (*facts, error) {
	f := &facts{state: map[string]attachment.State{}, sending: map[string]bool{}, dropped: c.dropped, staged: c.staged()}
	all, err := readLog(c.rig.Log("fieldgwd"))
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		f.state[t.id] = t.state
		switch t.event {
		case attachment.EventSessionOpened:
			f.sending[t.id] = true
		case attachment.EventVerified:
			delete(f.sending, t.id)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f.shown = maps.Clone(c.shown)
	return f, nil
}

// power cuts it: the processes die, the image is copied at once, what it was copied from is discarded, and the kernel
// mounts the copy. The writer waits meanwhile: a file is captured before the cut, or after it.
func (c *cut) power(watcher *sync.WaitGroup, res *result) (*facts, error) {
	c.drop.Lock()
	defer c.drop.Unlock()
	kill := c.rig.KillDaemon
	if c.role == roleServer {
		kill = c.rig.KillServer
	}
	before, err := c.promised()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(kill(), copySparse(c.volume.image, c.asCut)); err != nil {
		return nil, err
	}
	watcher.Wait()
	f, err := c.promised()
	if err != nil {
		return nil, err
	}
	if c.role == roleServer { // the daemon has noticed already
		res.phase, res.counts = before.phase(), before.count()
	} else {
		res.phase, res.counts = f.phase(), f.count()
	}
	stopOther := func() error { return nil }
	if c.restartOther {
		stopOther = c.rig.StopDaemon
	}
	err = inOrder(stopOther, c.volume.unmount, func() error { return os.Remove(c.volume.image) },
		func() error { return copySparse(c.asCut, c.volume.image) })
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := c.volume.mount(); err != nil {
		res.add(kindStart, "the kernel does not mount the copy: %v", err)
		return f, nil
	}
	res.recovery = time.Since(began)
	if res.weak, err = survives(c.canary()); err == nil {
		err = errors.Join(c.secured(f, res), c.untaken(res))
	}
	return f, err
}
