// Command demo shows fieldgw at work on the real programs: four plant-room files are captured, the link is cut before
// anything is acknowledged, the daemon is killed, and in the end everything is delivered and verified. It ends non-zero
// when anything is not as promised.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fieldgw/fieldgw/test/linkproxy"
	"github.com/fieldgw/fieldgw/test/plantroom"
	"github.com/fieldgw/fieldgw/test/rig"
)

const (
	record = "inspection-2041"
	// cutAfter bytes the link breaks: less than the smallest of the files, so that nothing can be acknowledged yet.
	cutAfter = 600_000
	// Chunks are small, so that what the server confirmed before the cut shows.
	uplink   = `chunk_size = "128KiB"`
	patience = 30 * time.Second
)

func main() {
	bin := flag.String("bin", "", "directory with the built programs; without it they are built")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "fieldgw-demo-")
	if err == nil {
		err = errors.Join(run(ctx, dir, *bin), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo: NOT as promised:", err)
		os.Exit(1)
	}
	fmt.Println("\ndemo: everything delivered and verified.")
}

type demo struct {
	*rig.Rig
	files []plantroom.File
}

func run(ctx context.Context, dir, bin string) (err error) {
	if bin == "" {
		say("Building fieldgwd, fieldgwctl and fieldgw-server")
		bin = filepath.Join(dir, "bin")
		if err := rig.Build(ctx, bin); err != nil {
			return err
		}
	}
	say("Making three photographs and a signed PDF")
	files, err := plantroom.Generate(filepath.Join(dir, "source"), uint64(time.Now().UnixNano()))
	if err != nil {
		return err
	}
	for _, f := range files {
		fmt.Printf("  %s  %9d bytes  %s\n", f.SHA256, f.Length, f.Name)
	}
	say("Starting the server, a link that can be cut, and the daemon behind it")
	r, err := rig.New(ctx, rig.Options{Dir: dir, Bin: bin, Uplink: uplink})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	fmt.Println("  (for this demonstration the retry schedule is 1 to 2 seconds instead of minutes, and chunks are 128 KiB)")
	if err := r.StartDaemon(ctx); err != nil {
		return err
	}
	d := &demo{r, files}
	for _, step := range []func(context.Context) error{d.capture, d.outage, d.kill, d.restart, d.deliver, d.compare} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func say(format string, args ...any) { fmt.Printf("\n== "+format+"\n", args...) }

// show runs fieldgwctl as a technician would and prints what it says.
func (d *demo) show(ctx context.Context, want int, args ...string) error {
	fmt.Printf("$ fieldgwctl %s\n", strings.Join(args, " "))
	stdout, stderr, code, err := d.Ctl(ctx, args...)
	fmt.Print(indent(stdout), indent(stderr))
	if err != nil {
		return err
	}
	if code != want {
		return fmt.Errorf("fieldgwctl %s: exit code %d, want %d", args[0], code, want)
	}
	return nil
}

func indent(s string) string {
	if s == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ") + "\n"
}

// capture drops two photographs into the capture directory and submits the third and the PDF.
func (d *demo) capture(ctx context.Context) error {
	d.Link.CutAfter(cutAfter)
	say("Coverage will go after %d bytes. Two photographs land in the directory of %s", cutAfter, record)
	dir := filepath.Join(d.Capture(), record)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, f := range d.files[:2] {
		if err := copyFile(f.Path, filepath.Join(dir, f.Name)); err != nil {
			return err
		}
	}
	say("The third photograph and the signed PDF are submitted to the same inspection")
	if err := d.show(ctx, 0, "submit", "--record", record, d.files[2].Path, d.files[3].Path); err != nil {
		return err
	}
	return rig.Until(ctx, patience, "custody of four files", func() (bool, error) {
		items, err := d.Items(ctx)
		return len(items) == len(d.files), err
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, in.Close(), out.Close())
}

func (d *demo) outage(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := d.Link.Wait(wait, linkproxy.ModeCut); err != nil {
		return fmt.Errorf("the link was not cut: %w", err)
	}
	say("The link is gone in the middle of the first payload. What the technician sees:")
	err := rig.Until(ctx, patience, "the outage shows", func() (bool, error) {
		out, _, _, err := d.Ctl(ctx, "status")
		return strings.Contains(out, "cannot be reached"), err
	})
	if err != nil {
		return err
	}
	if err := d.show(ctx, 0, "status"); err != nil {
		return err
	}
	if err := d.show(ctx, 0, "list"); err != nil {
		return err
	}
	return d.nothingDelivered(ctx)
}

func (d *demo) nothingDelivered(ctx context.Context) error {
	items, err := d.Truth(ctx)
	if err == nil && rig.Delivered(items) > 0 {
		err = errors.New("something shows as delivered before the server acknowledged anything")
	}
	return err
}

func (d *demo) kill(ctx context.Context) error {
	say("The daemon is killed (SIGKILL)")
	if err := d.KillDaemon(); err != nil {
		return err
	}
	return d.show(ctx, 3, "status")
}

func (d *demo) restart(ctx context.Context) error {
	say("The daemon starts again, still without coverage")
	if err := d.StartDaemon(ctx); err != nil {
		return err
	}
	items, err := d.Items(ctx)
	if err == nil && len(items) != len(d.files) {
		err = fmt.Errorf("%d of %d files are known after the kill", len(items), len(d.files))
	}
	if err != nil {
		return err
	}
	if err := d.show(ctx, 0, "list"); err != nil {
		return err
	}
	return d.nothingDelivered(ctx)
}

func (d *demo) deliver(ctx context.Context) error {
	say("Coverage returns")
	d.Link.Restore()
	if err := d.show(ctx, 0, "wait", "--record", record, "--for", "delivered", "--timeout", patience.String()); err != nil {
		return err
	}
	if err := d.show(ctx, 0, "list"); err != nil {
		return err
	}
	if err := d.show(ctx, 0, "records"); err != nil {
		return err
	}
	return d.show(ctx, 0, "status")
}

// compare holds what the server stored against the sources.
func (d *demo) compare(ctx context.Context) error {
	say("Comparing what the server stored, downloaded again, with the sources")
	want := map[string]string{}
	for _, f := range d.files {
		want[f.Name] = f.SHA256
	}
	if err := d.Verify(ctx, record, want); err != nil {
		return err
	}
	for _, f := range d.files {
		fmt.Printf("  %s  equal  %s\n", f.SHA256, f.Name)
	}
	return nil
}
