package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

// blockSize is that of the file systems here, in bytes.
const blockSize = 4 * kib

// refusals makes o.eio runs on ext4 over a FUSE disk that loses one block of one captured file: the first write of it is
// answered with EIO. The kernel tells that to one fsync and then takes the page for clean, so a second fsync succeeds and
// reading gives the right bytes, until the power is gone. The link is down until then. Whatever was logged as adopted
// must be whole afterwards, and the rest must be delivered once its owner has captured it again.
func refusals(ctx context.Context, o options, dir, pristine string, out io.Writer) (kept bool, err error) {
	bad := 0
	for i := range o.eio {
		p := newPlan(ext4, roleDevice, o.seed+uint64(i))
		p.careless = true // it is the daemon's own fsync that meets the error
		e := &explorer{cut: cut{plan: p, dir: filepath.Join(dir, fmt.Sprintf("eio-%d", p.seed))}, pristine: pristine, out: out}
		res, err := e.refused(ctx, o.bin)
		if err != nil {
			return bad > 0, fmt.Errorf("eio, seed %d: %w", p.seed, err)
		}
		if len(res.broken) > 0 {
			bad++
			fmt.Fprintf(out, "eio seed %d BROKEN (%d adopted)\n    %s\n  kept: %s\n  again: go run ./test/powercut -eio 1 -seed %d\n", p.seed,
				len(res.counts), texts(res.broken), e.dir, p.seed)
			continue
		}
		fmt.Fprintf(out, "eio seed %d ok\n", p.seed)
		if err := os.RemoveAll(e.dir); err != nil {
			return bad > 0, err
		}
	}
	fmt.Fprintf(out, "%d runs with a lost block: %d broken\n", o.eio, bad)
	if bad > 0 {
		err = fmt.Errorf("%w in %d of %d runs with a lost block", errViolated, bad, o.eio)
	}
	return bad > 0, err
}

// refused is one run.
func (e *explorer) refused(ctx context.Context, bin string) (res result, err error) {
	if err := os.Mkdir(e.dir, 0o755); err != nil {
		return res, err
	}
	e.prepare()
	defer e.ctl.Close()
	defer func() { err = errors.Join(err, e.end()) }()
	f, err := e.untilPower(ctx, bin)
	if err != nil {
		return res, err
	}
	res.counts = f.count()
	e.volume = &volume{fs: ext4, image: e.asCut, at: e.place()}
	if err := e.volume.mount(); err != nil {
		res.add(kindStart, "the kernel does not mount the disk: %v", err)
		return res, nil
	}
	if err := errors.Join(e.secured(f, &res), e.untaken(&res)); err != nil || len(res.broken) > 0 {
		return res, err
	}
	e.rig.Link.Restore()
	if err := e.recover(ctx, f, &res); err != nil || len(res.broken) > 0 {
		return res, err
	}
	if _, err := e.delivered(ctx); err != nil {
		res.add(kindStuck, "%v", err)
		return res, ctx.Err()
	}
	if err := e.rig.Verify(ctx, record, e.want()); err != nil {
		res.add(kindLoss, "%v", err)
	}
	return res, nil
}

// untilPower runs the device on the failing disk until all files are adopted, or until it has had time to try the one that
// failed once more, and takes the disk away.
func (e *explorer) untilPower(ctx context.Context, bin string) (f *facts, err error) {
	if err := copySparse(e.pristine, e.asCut); err != nil {
		return nil, err
	}
	disk, err := serveDisk(e.asCut, filepath.Join(e.dir, "fuse"))
	if err != nil {
		return nil, err
	}
	defer func() {
		// The volume is taken away before the kernel can write anything more to it.
		disk.stop()
		err = errors.Join(err, e.volume.abandon(), e.release(ctx, disk))
	}()
	rnd := rand.New(rand.NewPCG(e.seed, 3))
	content := e.files[rnd.IntN(len(e.files))].content
	at := rnd.IntN(len(content)/blockSize) * blockSize
	var refused atomic.Bool
	disk.mu.Lock()
	disk.refuse = func(data []byte) bool {
		return bytes.Contains(data, content[at:at+blockSize]) && refused.CompareAndSwap(false, true)
	}
	disk.mu.Unlock()
	e.volume.image = filepath.Join(e.dir, "fuse", diskFile)
	if err := e.begin(ctx, bin); err != nil {
		return nil, err
	}
	e.rig.Link.Cut()
	if err := e.write(ctx, make(chan struct{})); err != nil {
		return nil, err
	}
	if err := e.settled(ctx); err != nil {
		return nil, err
	}
	if !refused.Load() {
		return nil, errors.New("the block that was to be lost was never written")
	}
	if err := e.rig.KillDaemon(); err != nil {
		return nil, err
	}
	return e.promised()
}

// settled waits until all files are adopted, at most for the time that a second try takes.
func (e *explorer) settled(ctx context.Context) error {
	const secondTry = 8 * time.Second
	limit := time.After(secondTry)
	tick := time.NewTicker(5 * look)
	defer tick.Stop()
	for {
		page, err := e.ctl.List(ctx, control.ListQuery{Limit: control.MaxPage})
		n := 0
		for _, i := range page.Items {
			if i.State != attachment.Captured {
				n++
			}
		}
		if err == nil && n == len(e.files) {
			return nil
		}
		select {
		case <-tick.C:
		case <-limit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
