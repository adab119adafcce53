package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

// ack is what the device had promised when the log of its disk had a length.
type ack struct {
	index int
	facts *facts
}

// explorer rebuilds what a disk that reorders its cache may leave, from one recorded run of the device.
type explorer struct {
	cut
	pristine string
	log      []op
	acks     []ack
	out      io.Writer
}

// explore records a run on ext4 over a FUSE disk and checks o.explore crash states of it.
func explore(ctx context.Context, o options, dir, pristine string, out io.Writer) (kept bool, err error) {
	e := &explorer{cut: cut{plan: newPlan(ext4, roleDevice, o.seed), dir: filepath.Join(dir, "explore")}, pristine: pristine, out: out}
	if err := os.Mkdir(e.dir, 0o755); err != nil {
		return false, err
	}
	e.prepare()
	defer e.ctl.Close()
	defer func() { err = errors.Join(err, e.end()) }()
	if err := e.record(ctx, o.bin); err != nil {
		return false, fmt.Errorf("record: %w", err)
	}
	flushes := 0
	for _, w := range e.log {
		if w.flush {
			flushes++
		}
	}
	fmt.Fprintf(out, "recorded %d writes and %d flushes on ext4, %d promises; seed %d\n", len(e.log)-flushes, flushes, len(e.acks), o.seed)
	rnd := rand.New(rand.NewPCG(o.seed, 1))
	bad, sums := 0, map[string]int{}
	for i := range o.explore {
		first := e.acks[0].index // the daemon was ready: what it stands on is durable
		n, how := first+rnd.IntN(len(e.log)-first+1), []string{"none", "all", "half"}[rnd.IntN(3)]
		found, err := e.check(ctx, n, how, rand.New(rand.NewPCG(o.seed, uint64(i)+2)))
		if err != nil {
			return bad > 0, fmt.Errorf("state %d: %w", i, err)
		}
		sums[how]++
		if len(found) > 0 {
			bad++
			fmt.Fprintf(out, "state %d BROKEN: %d of %d operations, %s of what followed the last flush\n    %s\n  again: go run ./test/powercut -explore %d -seed %d\n",
				i, n, len(e.log), how, texts(found), o.explore, o.seed)
			kept := filepath.Join(e.dir, fmt.Sprintf("state-%d.img", i))
			if err := os.Rename(e.asCut, kept); err != nil {
				return true, err
			}
			fmt.Fprintf(out, "  kept: %s\n", kept)
		}
	}
	fmt.Fprintf(out, "%d crash states (%d with none, %d with all, %d with a random half of the unflushed writes): %d broken\n",
		o.explore, sums["none"], sums["all"], sums["half"], bad)
	if bad > 0 {
		err = fmt.Errorf("%w in %d of %d crash states", errViolated, bad, o.explore)
	}
	return bad > 0, err
}

// record runs the device from the first drop to the last receipt and notes each promise with the length of the log at the
// time. A promise is noted a little late, never early.
func (e *explorer) record(ctx context.Context, bin string) (err error) {
	backing := filepath.Join(e.dir, "backing.img")
	if err := copySparse(e.pristine, backing); err != nil {
		return err
	}
	disk, err := serveDisk(backing, filepath.Join(e.dir, "fuse"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.volume.unmount(), e.release(ctx, disk)) }()
	e.volume.image = filepath.Join(e.dir, "fuse", diskFile)
	if err := e.begin(ctx, bin); err != nil {
		return err
	}
	life, stop := context.WithCancel(ctx)
	written := make(chan error, 1)
	go func() { written <- e.write(life, make(chan struct{})) }()
	err = e.follow(ctx, disk)
	stop()
	err = errors.Join(err, <-written, e.rig.KillDaemon())
	e.log = disk.recorded()
	return err
}

// follow notes promises until everything is delivered.
func (e *explorer) follow(ctx context.Context, d *disk) error {
	limit := time.After(finishLimit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		page, err := e.ctl.List(ctx, control.ListQuery{Limit: control.MaxPage})
		if err == nil {
			e.note(page.Items)
		}
		e.drop.Lock()
		f, err := e.promised()
		e.drop.Unlock()
		if err != nil {
			return err
		}
		e.acks = append(e.acks, ack{d.index(), f})
		if f.count()[delivered] == len(e.files) {
			return nil
		}
		select {
		case <-tick.C:
		case <-limit:
			return fmt.Errorf("not finished within %s: %v", finishLimit, f.count())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release ends a FUSE disk, which is busy until the kernel has let go of the loop device.
func (e *explorer) release(ctx context.Context, d *disk) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var err error
	for range 500 {
		if err = d.close(); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
	return fmt.Errorf("end the FUSE disk: %w", err)
}

// check builds one crash state, lets the kernel mount it, starts the daemon on it without a link, and holds what it shows
// against the last promises before that state.
func (e *explorer) check(ctx context.Context, n int, how string, rnd *rand.Rand) (found []violation, err error) {
	keep := func() bool { return how == "all" || how == "half" && rnd.IntN(2) == 0 }
	e.volume = &volume{fs: ext4, image: filepath.Join(e.dir, "state.img"), at: e.place()}
	err = inOrder(
		func() error { return copySparse(e.pristine, e.asCut) },
		func() error { return state(e.asCut, e.log, n, keep) },
		func() error { return copySparse(e.asCut, e.volume.image) },
	)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e.rig.Daemon().Running() {
			err = errors.Join(err, e.rig.KillDaemon())
		}
		err = errors.Join(err, e.volume.unmount(), os.Remove(e.volume.image))
		if len(found) == 0 {
			err = errors.Join(err, os.Remove(e.asCut))
		}
	}()
	f := &facts{state: map[string]attachment.State{}}
	for _, a := range e.acks {
		if a.index <= n {
			f = a.facts
		}
	}
	var res result
	if err := e.volume.mount(); err != nil {
		res.add(kindStart, "the kernel does not mount the state: %v", err)
		return res.broken, nil
	}
	if err := e.secured(f, &res); err != nil {
		return nil, err
	}
	if e.dropped = f.dropped; !e.careless {
		if err := e.untaken(&res); err != nil {
			return nil, err
		}
	}
	e.rig.Link.Cut()
	if err := e.rig.StartDaemon(ctx); err != nil {
		res.add(kindStart, "%v", err)
		return res.broken, ctx.Err()
	}
	items, err := e.rig.Items(ctx)
	if err != nil {
		return nil, err
	}
	registered, err := e.rig.Registered(ctx)
	if err != nil {
		return nil, err
	}
	kept(f, items, &res)
	e.honest(ctx, items, registered, &res)
	return res.broken, nil
}
