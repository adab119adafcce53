package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fieldgw/fieldgw/test/linkproxy"
	"github.com/fieldgw/fieldgw/test/rig"
)

// patience is how many times longer than the bare link a transfer may take before it counts as not arriving.
const patience = 12

// bench is a device with its server, and a sink for curl, each behind a link of its own.
type bench struct {
	rig      *rig.Rig
	sink     *http.Server
	link     *linkproxy.Proxy
	stopLink context.CancelFunc
	linkDone chan error
	sinkDone chan error
}

func newBench(ctx context.Context, base, uplink string) (*bench, error) {
	bin := filepath.Join(base, "bin")
	if err := rig.Build(ctx, bin); err != nil {
		return nil, err
	}
	r, err := rig.New(ctx, rig.Options{Dir: filepath.Join(base, "rig"), Bin: bin, Uplink: uplink})
	if err != nil {
		return nil, err
	}
	b := &bench{rig: r, linkDone: make(chan error, 1), sinkDone: make(chan error, 1)}
	if err := r.StartDaemon(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	b.sink = &http.Server{Handler: http.HandlerFunc(swallow), ReadHeaderTimeout: time.Minute}
	go func() {
		b.sinkDone <- b.sink.ServeTLS(listener, r.Path("server", "tls", "cert.pem"), r.Path("server", "tls", "key.pem"))
	}()
	if b.link, err = linkproxy.New(linkproxy.Options{Target: listener.Addr().String()}); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	linkCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stopLink = stop
	go func() { b.linkDone <- b.link.Run(linkCtx) }()
	return b, nil
}

// swallow takes an upload whole, or not at all.
func swallow(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusCreated)
}

func (b *bench) close() error {
	b.stopLink()
	err := errors.Join(<-b.linkDone, b.sink.Close(), b.rig.Close())
	if ended := <-b.sinkDone; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

func (c conditions) impose(p *linkproxy.Proxy) {
	p.Restore()
	p.SetRate(c.rate)
	p.SetDelay(c.rtt / 2)
	p.SetResets(c.reset)
}

// measure prints one row.
func (b *bench) measure(ctx context.Context, path string, c conditions, size int64) error {
	if err := fill(path, size); err != nil {
		return err
	}
	limit := patience*time.Duration(float64(size)/float64(c.rate)*float64(time.Second)) + c.hole + time.Minute
	device, sent, err := b.device(ctx, path, c, size, limit)
	if err != nil {
		return err
	}
	curl, tries := b.curl(ctx, path, c, size, limit)
	fmt.Printf("| %s | %.1f MB | %s | %.2f | %s | %d |\n", c, float64(size)/1e6, c.share(size, device), sent, c.share(size, curl), tries)
	return os.Remove(path)
}

// share is how much of the link a transfer used; 0 stands for one that did not arrive.
func (c conditions) share(size int64, took time.Duration) string {
	if took == 0 {
		return "did not arrive"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(size)/float64(c.rate)/took.Seconds())
}

func fill(path string, size int64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.CopyN(f, rand.Reader, size)
	return err
}

// device has the daemon deliver the file, from the moment that it may send until it shows as delivered. sent is what went up
// the link, in sizes of the file.
func (b *bench) device(ctx context.Context, path string, c conditions, size int64, limit time.Duration) (time.Duration, float64, error) {
	if _, _, _, err := b.rig.Ctl(ctx, "pause"); err != nil {
		return 0, 0, err
	}
	name := filepath.Base(path)
	if out, err := exec.CommandContext(ctx, "cp", path, filepath.Join(b.rig.Capture(), name)).CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("copy: %w: %s", err, out)
	}
	if err := b.until(ctx, time.Minute, name, "waiting", "paused"); err != nil {
		return 0, 0, err
	}
	b.rig.Link.Cut() // the last connections knew another link
	c.impose(b.rig.Link)
	before, began := b.rig.Link.BytesUp(), time.Now()
	if _, _, _, err := b.rig.Ctl(ctx, "resume"); err != nil {
		return 0, 0, err
	}
	go c.dig(ctx, b.rig.Link, before+size/2)
	if err := b.until(ctx, limit, name, "delivered"); err != nil {
		return 0, 0, err
	}
	took := time.Since(began)
	b.rig.Link.SetResets(0)
	return took, float64(b.rig.Link.BytesUp()-before) / float64(size), nil
}

// until waits for a condition of the file.
func (b *bench) until(ctx context.Context, limit time.Duration, name string, conditions ...string) error {
	return rig.Until(ctx, limit, name+" to be "+conditions[0], func() (bool, error) {
		items, err := b.rig.Items(ctx)
		if err != nil {
			return false, err
		}
		for _, i := range items {
			for _, c := range conditions {
				if i.Filename.Text == name && string(i.Condition) == c {
					return true, nil
				}
			}
		}
		return false, nil
	})
}

// dig makes a blackhole of the link, once so many bytes have gone up.
func (c conditions) dig(ctx context.Context, p *linkproxy.Proxy, at int64) {
	if c.hole == 0 {
		return
	}
	for p.BytesUp() < at {
		if ctx.Err() != nil {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
	p.Stall()
	pause(ctx, c.hole)
	p.Restore()
}

// curl uploads the file whole, again and again until it arrives.
func (b *bench) curl(ctx context.Context, path string, c conditions, size int64, limit time.Duration) (took time.Duration, tries int) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b.link.Cut()
	c.impose(b.link)
	began := time.Now()
	go c.dig(ctx, b.link, b.link.BytesUp()+size/2)
	for ctx.Err() == nil {
		tries++
		err := exec.CommandContext(ctx, "curl", "-sfk", "-o", os.DevNull, "-T", path, "https://"+b.link.Addr()+"/").Run()
		if err == nil {
			return time.Since(began), tries
		}
	}
	return 0, tries
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
