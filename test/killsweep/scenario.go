package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/test/rig"
)

const (
	record     = "inspection-7"
	submission = "0190c1f0-0000-7000-8000-000000000001"
	// patience bounds each wait of a run.
	patience = 30 * time.Second
	config   = "[log]\nlevel = \"debug\""
	uplink   = "chunk_size = \"128KiB\""
)

// The files of the scenario. The first is moved; the second has another hard link, so that it is copied and then
// released; the other two are submitted.
var plan = []struct {
	name   string
	length int
}{{"moved.jpg", 600_000}, {"linked.jpg", 200_000}, {"third.jpg", 200_000}, {"report.pdf", 180_000}}

// trace is what the killed program wrote about itself.
type trace struct {
	operations int
	points     map[string]int
	// deaths counts the kills, killed is the operation of the last one.
	deaths int
	killed string
}

// scene is one run of the scenario.
type scene struct {
	*rig.Rig
	kill    kill
	client  *client.Client
	want    map[string]string
	content [][]byte
	// strict has the link cut while a killed program starts again, so that what is shown then cannot be made true in
	// between. The other runs let the restarted program meet its peer at once.
	strict bool
	// deaths counts the kills that were noticed, down holds the programs whose end is accounted for.
	deaths int
	down   map[string]bool
	shown  int
}

// scenario makes one run in a directory of its own and checks everything. Without a place in k nobody is killed.
func scenario(ctx context.Context, s *sweep, k kill) (t trace, err error) {
	dir, err := os.MkdirTemp("", "fgk")
	if err != nil {
		return t, err
	}
	defer func() {
		if err != nil && s.keep != "" {
			to := filepath.Join(s.keep, k.program+"-"+strings.ReplaceAll(k.place, ":", "-"))
			err = errors.Join(err, os.MkdirAll(s.keep, 0o755), os.RemoveAll(to), os.Rename(dir, to))
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	sc := &scene{kill: k, want: map[string]string{}, down: map[string]bool{}, strict: len(k.place)%2 == 0}
	if err := sc.files(dir, s.seed); err != nil {
		return t, err
	}
	sc.Rig, err = rig.New(ctx, rig.Options{
		Dir: dir, Bin: s.bin, Settle: "50ms", Retry: "50ms-100ms", Uplink: uplink, Config: config,
		Env: map[string][]string{k.program: k.env(dir, 0)},
	})
	if sc.Rig == nil {
		return t, err
	}
	sc.client = client.New(sc.Socket())
	if err != nil {
		// The device's configuration names what the server's first start makes.
		if err = sc.survive(err); err == nil {
			err = sc.start(ctx, sc.StartServer)
		}
	}
	if err == nil {
		err = sc.play(ctx)
	}
	sc.client.Close()
	err = errors.Join(err, sc.Close())
	if err == nil {
		err = sc.leftovers(ctx)
	}
	t, terr := readTrace(dir)
	return t, errors.Join(err, terr)
}

// files makes the sources, a directory to drop from, and the other name of the linked one.
func (sc *scene) files(dir string, seed uint64) error {
	for _, d := range []string{"source", "album", filepath.Join("device", "capture", record)} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for i, f := range plan {
		content := make([]byte, f.length)
		if _, err := rand.NewChaCha8([32]byte{byte(i), byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(content); err != nil {
			return err
		}
		copy(content, "\xff\xd8\xff\xe0\x00\x10JFIF\x00")
		if err := os.WriteFile(filepath.Join(dir, "source", f.name), content, 0o644); err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		sc.want[f.name] = hex.EncodeToString(sum[:])
		sc.content = append(sc.content, content)
	}
	return os.Link(filepath.Join(dir, "source", plan[1].name), filepath.Join(dir, "album", plan[1].name))
}

// play is the scenario from the first start of the daemon to the orderly stop of both programs.
func (sc *scene) play(ctx context.Context) error {
	if err := sc.start(ctx, sc.StartDaemon); err != nil {
		return err
	}
	for _, f := range plan[:2] {
		if err := os.Rename(sc.Path("source", f.name), filepath.Join(sc.Capture(), record, f.name)); err != nil {
			return err
		}
	}
	if err := sc.submit(ctx); err != nil {
		return err
	}
	// A kill in the orderly stop begins the end again.
	for {
		err := sc.finish(ctx)
		if err == nil {
			err = sc.StopDaemon()
		}
		if err == nil {
			sc.down[device] = true
			err = sc.StopServer()
		}
		if err == nil {
			return nil
		}
		if err := sc.survive(err); err != nil {
			return err
		}
	}
}

// start starts a program, again when it dies of an order.
func (sc *scene) start(ctx context.Context, start func(context.Context) error) error {
	for {
		err := start(ctx)
		if err == nil {
			return nil
		}
		if err := sc.survive(err); err != nil {
			return err
		}
	}
}

// survive decides what an error means: nil when it comes of a kill that was ordered, otherwise the error. The next start
// is given the next order.
func (sc *scene) survive(cause error) error {
	if errors.Is(cause, rig.ErrUntrue) {
		return cause
	}
	t, err := readTrace(sc.Dir)
	if err != nil || t.deaths == sc.deaths {
		return errors.Join(cause, err)
	}
	sc.deaths = t.deaths
	sc.down[sc.kill.program] = true
	sc.Env[sc.kill.program] = sc.kill.env(sc.Dir, sc.deaths)
	dying := sc.Daemon()
	if sc.kill.program == server {
		dying = sc.Server()
	}
	if dying == nil {
		return nil
	}
	return dying.Kill() // waits for its end
}

// mend starts what was killed. What is shown at that moment must be true already.
func (sc *scene) mend(ctx context.Context) error {
	for _, p := range []struct {
		name  string
		is    *rig.Process
		start func(context.Context) error
	}{{server, sc.Server(), sc.StartServer}, {device, sc.Daemon(), sc.StartDaemon}} {
		if p.is != nil && p.is.Running() {
			continue
		}
		if !sc.down[p.name] {
			cause := fmt.Errorf("%s ended by itself", p.name)
			if p.name != sc.kill.program {
				return cause
			}
			if err := sc.survive(cause); err != nil {
				return err
			}
		}
		if err := sc.restart(ctx, p.name, p.start); err != nil {
			return fmt.Errorf("restart %s: %w", p.name, err)
		}
	}
	return nil
}

func (sc *scene) restart(ctx context.Context, program string, start func(context.Context) error) error {
	var items []control.Item
	var err error
	if sc.strict {
		sc.Link.Cut()
		defer sc.Link.Restore()
		if program == server && sc.Daemon() != nil && sc.Daemon().Running() {
			if items, err = sc.list(ctx); err != nil {
				return err
			}
		}
	}
	if err := sc.start(ctx, start); err != nil {
		return err
	}
	delete(sc.down, program)
	if !sc.strict {
		return nil
	}
	if program == device {
		items, err = sc.list(ctx)
	}
	if err == nil {
		err = sc.Compare(ctx, items)
	}
	if err != nil {
		return sc.survive(err) // it may die of its next order already
	}
	return nil
}

func (sc *scene) list(ctx context.Context) ([]control.Item, error) {
	page, err := sc.client.List(ctx, control.ListQuery{})
	return page.Items, err
}

// submit hands over the last two files. When the daemon dies under it, the caller repeats it under its ID.
func (sc *scene) submit(ctx context.Context) error {
	sub := control.Submission{SubmissionID: submission, Record: attachment.NameOf(record)}
	for _, f := range plan[2:] {
		info, err := os.Stat(sc.Path("source", f.name))
		if err != nil {
			return err
		}
		sub.Files = append(sub.Files, control.SubmissionFile{
			Name: attachment.NameOf(f.name), Length: info.Size(), ModifiedAt: info.ModTime(),
			SourcePath: attachment.NameOf(sc.Path("source", f.name)),
		})
	}
	open := func(i int) (io.ReadCloser, error) { return os.Open(sc.Path("source", plan[2+i].name)) }
	return rig.Until(ctx, patience, "submission", func() (bool, error) {
		if err := sc.mend(ctx); err != nil {
			return false, err
		}
		result, err := sc.client.Submit(ctx, sub, open)
		var refused *control.Error
		switch {
		case err == nil && len(result.Items) != len(sub.Files):
			return false, fmt.Errorf("%d of %d files were taken", len(result.Items), len(sub.Files))
		case errors.As(err, &refused):
			return false, err
		}
		return err == nil, nil
	})
}

// readTrace reads what the program under test wrote about its operations.
func readTrace(dir string) (trace, error) {
	t := trace{points: map[string]int{}}
	f, err := os.Open(filepath.Join(dir, "trace"))
	if os.IsNotExist(err) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		first, rest, _ := strings.Cut(lines.Text(), " ")
		switch first {
		case "point":
			name, _, _ := strings.Cut(rest, " ")
			t.points[name]++
		case "kill":
			t.deaths++
			t.killed = strings.ReplaceAll(rest, dir, "")
		default:
			t.operations++
		}
	}
	return t, errors.Join(lines.Err(), f.Close())
}
