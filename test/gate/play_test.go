package gate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/test/plantroom"
	"github.com/fieldgw/fieldgw/test/rig"
)

const (
	// patience bounds each wait of a cell; the machine may be busy with several.
	patience = 2 * time.Minute
	// chunk is the size of an append: nothing is acknowledged before so many bytes went up.
	chunk = 128 << 10
	// slow is a link on which a chunk takes a moment, in bytes per second, fast one that is not in the way.
	slow, fast = 192 << 10, 32 << 20

	// The submission of the fixture, and one that finds no room.
	submissionID, refusedID = "0190c1f0-0000-7000-8000-000000000001", "0190c1f0-0000-7000-8000-000000000002"
)

// play is one cell of the matrix, from the first start to the last check.
type play struct {
	*rig.Rig
	t      *testing.T
	cell   cell
	rnd    *rand.Rand
	client *client.Client
	clock  wallClock
	volume volume
	office *office
	want   map[string]string
	// graceful: the shutdown is SIGTERM, otherwise SIGKILL.
	graceful bool
	// clockIsWrong, parentKnown: so far in the cell.
	clockIsWrong, parentKnown bool
	// renewed: the token has expired in mid-transfer and was replaced.
	renewed bool

	story                     string
	secured, early, delivered int
}

func (p *play) is(value string) bool { return p.cell.is(value) }

func (p *play) must(what string, err error) {
	p.t.Helper()
	must(p.t, what, err)
}

func (p *play) until(what string, ok func() (bool, error)) {
	p.t.Helper()
	p.must(what, rig.Until(p.t.Context(), patience, what, ok))
}

func (p *play) run(programs string) {
	p.setUp(programs)
	ctx, stop := context.WithCancel(p.t.Context())
	lies := make(chan error, 1)
	go func() { lies <- p.watch(ctx) }()

	secured := p.captureUntilShutdown()
	p.restart()
	p.discover(secured)
	if p.is(storageStop) {
		p.refuseCapture()
		p.send(p.secured)
		p.Link.Cut()
		p.must("free space", p.volume.empty())
	}
	p.takeRest()
	p.send(len(files))
	if p.is(parentAfter) {
		p.must("server ID of the parent", p.office.complete(p.t.Context(), p.lastSecured()))
	}
	stop()
	p.must("delivered shown early", <-lies)
	p.checkEnd()
}

// setUp makes the device as the cell has it and starts its daemon for the first time.
func (p *play) setUp(programs string) {
	p.graceful = p.rnd.IntN(2) == 0
	p.want = map[string]string{}
	for _, f := range files {
		p.want[f.Name] = f.SHA256
	}
	dir := shortDir(p.t)
	if !p.is(storageNormal) {
		p.volume = newVolume(p.t, filepath.Join(dir, "device"))
	}
	if p.is(storageWarn) {
		p.must("fill", p.volume.fill(belowWarn))
	}
	var err error
	p.clock, err = newWallClock(filepath.Join(dir, "clock"))
	p.must("make clock", err)
	o := rig.Options{
		Dir: dir, Bin: programs, Retry: "200ms-400ms", Uplink: fmt.Sprintf("chunk_size = \"%dKiB\"", chunk>>10),
		Credential: filepath.Join(dir, "tablet.token"), Env: map[string][]string{"fieldgwd": {clockVariable + "=" + string(p.clock)}},
	}
	if p.volume != "" {
		o.Config = fmt.Sprintf("[storage]\nwarn_free = \"%dMiB\"\nreserve = \"%dMiB\"", warnFree>>20, reserve>>20)
	}
	p.Rig = newRig(p.t, o)
	p.must("make token", p.NewToken(p.t.Context(), "tablet", p.Credential, time.Time{}))
	p.office, err = newOffice(p.Rig)
	p.must("office", err)
	p.client = client.New(p.Socket())
	p.t.Cleanup(p.client.Close)
	p.Link.Cut()
	p.must("start", p.StartDaemon(p.t.Context()))
	if p.is(storageWarn) {
		p.storageIs(control.StorageWarn)
	}
}

// watch holds what is shown against the server again and again, whatever else happens, until ctx ends.
func (p *play) watch(ctx context.Context) error {
	shown := 0
	for ctx.Err() == nil {
		items, err := p.list(ctx)
		if n := rig.Delivered(items); err == nil && n > shown {
			switch err := p.Compare(ctx, items); {
			case errors.Is(err, rig.ErrUntrue):
				return err
			case err == nil:
				shown = n
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (p *play) list(ctx context.Context) ([]control.Item, error) {
	page, err := p.client.List(ctx, control.ListQuery{})
	return page.Items, err
}

// items lists what is in custody; it holds each look against the server.
func (p *play) items() []control.Item {
	p.t.Helper()
	items, err := p.list(p.t.Context())
	p.must("list", err)
	p.must("truth", p.Compare(p.t.Context(), items))
	return items
}

// details are the facts of every attachment.
func (p *play) details() (all []control.ItemDetail) {
	p.t.Helper()
	for _, i := range p.items() {
		d, err := p.client.Get(p.t.Context(), string(i.ID))
		p.must("show", err)
		all = append(all, d)
	}
	return all
}

func (p *play) lastSecured() control.ItemDetail {
	p.t.Helper()
	all := p.details()
	if len(all) == 0 {
		p.t.Fatal("nothing is in custody")
	}
	return all[len(all)-1]
}

func (p *play) storageIs(state string) {
	p.t.Helper()
	p.until("storage "+state, func() (bool, error) {
		s, err := p.client.Status(p.t.Context())
		return s.Storage.State == state, err
	})
}

// submit hands files over, under one ID however often.
func (p *play) submit(ctx context.Context, id string, files []plantroom.File) error {
	sub := control.Submission{SubmissionID: id, Record: attachment.NameOf(record)}
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if err != nil {
			return err
		}
		sub.Files = append(sub.Files, control.SubmissionFile{
			Name: attachment.NameOf(f.Name), Length: info.Size(), ModifiedAt: info.ModTime(), SourcePath: attachment.NameOf(f.Path),
		})
	}
	_, err := p.client.Submit(ctx, sub, func(i int) (io.ReadCloser, error) { return os.Open(files[i].Path) })
	return err
}

// tracePoint is the named point of internal/durable between the close of a manifest's temporary file and its rename.
const tracePoint = "after-temp-close"

// armManifest starts the daemon again so that it dies, or is told to stop, when the n-th manifest from now is written and
// not yet in its place.
func (p *play) armManifest(n int) {
	p.must("stop", p.StopDaemon())
	env := []string{"FIELDGW_COUNT_FILE=" + p.Path("trace")}
	if !p.graceful {
		env = append(env, fmt.Sprintf("FIELDGW_KILL_POINT=%s:%d", tracePoint, n))
	}
	p.Env["fieldgwd"] = append(p.Env["fieldgwd"], env...)
	p.must("start", p.StartDaemon(p.t.Context()))
}

// traceHas reports whether a line of the trace begins so and contains that.
func (p *play) traceHas(prefix, part string) (bool, error) {
	f, err := os.Open(p.Path("trace"))
	if err != nil {
		return false, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), prefix) && strings.Contains(lines.Text(), part) {
			return true, nil
		}
	}
	return false, nil
}
