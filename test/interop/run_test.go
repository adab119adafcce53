package interop

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/test/linkproxy"
	"github.com/fieldgw/fieldgw/test/plantroom"
	"github.com/fieldgw/fieldgw/test/rig"
)

const (
	record = "inspection-7"
	// rate of the link in bytes per second: slow enough for something to be under way when it is cut.
	slowRate, fastRate = 8 << 20, 40 << 20
	patience           = 10 * time.Minute
)

// campaign is one peer's run.
type campaign struct {
	t    *testing.T
	peer peer
	rnd  *rand.Rand
	r    *rig.Rig

	payload       int64
	befell        map[string]int
	equal, anew   int
	shown, grades map[string]int
	up, down      int64
	began         time.Time
	took          time.Duration
	result        string
}

// makeFilm writes a large file that no compression makes smaller.
func makeFilm(path string, n int64) (plantroom.File, error) {
	f := plantroom.File{Name: filepath.Base(path), Path: path, Length: n, MediaType: "video/mp4"}
	out, err := os.Create(path)
	if err != nil {
		return f, err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), io.LimitReader(rand.NewChaCha8([32]byte{7}), n))
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return f, errors.Join(err, out.Close())
}

func (c *campaign) must(what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}

// start makes the rig and starts the server.
func (c *campaign) start() {
	dir, err := os.MkdirTemp("", "fgw")
	c.must("make directory", err)
	c.t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			c.t.Error(err)
		}
	})
	lines, err := c.peer.config(dir)
	c.must("configure", err)
	c.r, err = rig.New(c.t.Context(), rig.Options{Dir: dir, Bin: bin, Uplink: lines, Foreign: c.peer.foreign, EndpointPath: c.peer.path, Front: c.peer.front, Retry: "200ms-400ms"})
	if c.r != nil {
		c.t.Cleanup(c.close)
	}
	c.must("make rig", err)
}

func (c *campaign) run() {
	c.start()
	c.r.Link.SetRate(slowRate)
	if *size > 100<<20 {
		c.r.Link.SetRate(fastRate)
	}
	c.must("start", c.r.StartDaemon(c.t.Context()))
	c.began, c.befell = time.Now(), map[string]int{}
	c.capture()
	for i := range *faults {
		c.befall(i)
	}
	c.finish()
}

// close ends the programs and shows their logs when something went wrong.
func (c *campaign) close() {
	err := c.r.Close()
	if c.t.Failed() {
		logs, globErr := filepath.Glob(c.r.Path("log", "*.log"))
		err = errors.Join(err, globErr)
		for _, path := range logs {
			text, readErr := os.ReadFile(path)
			err = errors.Join(err, readErr)
			lines := strings.Split(string(text), "\n")
			c.t.Logf("%s:\n%s", filepath.Base(path), strings.Join(lines[max(0, len(lines)-200):], "\n"))
		}
	}
	if err != nil {
		c.t.Error(err)
	}
}

func (c *campaign) capture() {
	dir := filepath.Join(c.r.Capture(), record)
	c.must("make capture directory", os.MkdirAll(dir, 0o755))
	for _, f := range files {
		c.payload += f.Length
		in, err := os.Open(f.Path)
		c.must("open", err)
		out, err := os.Create(filepath.Join(dir, f.Name))
		c.must("create", err)
		_, err = io.Copy(out, in)
		c.must("copy", errors.Join(err, in.Close(), out.Close()))
	}
}

// befall waits for a random moment of the i-th part of what is to cross the link, and lets one thing go wrong.
func (c *campaign) befall(i int) {
	total := c.payload
	if c.peer.downloads {
		total *= 2
	}
	at := int64((float64(i) + c.rnd.Float64()) / float64(*faults) * float64(total))
	outage := time.Duration(100+c.rnd.Int64N(900)) * time.Millisecond
	kind := []string{"daemon", "server", "cut after", "cut"}[i%4]
	ended := false
	err := rig.Until(c.t.Context(), patience, "progress", func() (bool, error) {
		s := c.r.Link.Stats()
		if ended = s.BytesUp+s.BytesDown < at && c.settled(); ended {
			return true, nil
		}
		return s.BytesUp+s.BytesDown >= at, nil
	})
	c.must("wait for a moment", err)
	if ended {
		return
	}
	ctx := c.t.Context()
	switch kind {
	case "daemon":
		c.must("kill the daemon", c.r.KillDaemon())
		<-time.After(outage)
		c.must("start the daemon", c.r.StartDaemon(ctx))
	case "server":
		c.must("kill the server", c.r.KillServer())
		<-time.After(outage)
		c.must("start the server", c.r.StartServer(ctx))
	case "cut":
		c.r.Link.Cut()
		<-time.After(outage)
		c.r.Link.Restore()
	case "cut after":
		c.r.Link.CutAfter(1 + c.rnd.Int64N(1<<20))
		err := rig.Until(ctx, patience, "the cut", func() (bool, error) {
			return c.r.Link.Stats().Mode == linkproxy.ModeCut || c.settled(), nil
		})
		c.must("cut", err)
		<-time.After(outage)
		c.r.Link.Restore()
	}
	c.befell[kind]++
}

// settled reports whether nothing is left to be done for any file.
func (c *campaign) settled() bool {
	items, err := c.r.Items(c.t.Context())
	if err != nil || len(items) < len(files) {
		return false // the daemon is on its way
	}
	return !slices.ContainsFunc(items, func(i control.Item) bool {
		switch i.Condition {
		case attachment.ShownDelivered, attachment.ShownSent, attachment.ShownAttention:
			return false
		}
		return true
	})
}

// finish waits for the end and holds what the server has against what was captured.
func (c *campaign) finish() {
	ctx := c.t.Context()
	c.must("finish", rig.Until(ctx, patience, "everything sent", func() (bool, error) { return c.settled(), nil }))
	c.took = time.Since(c.began)
	s := c.r.Link.Stats()
	c.up, c.down = s.BytesUp, s.BytesDown
	items, err := c.r.Items(ctx)
	c.must("list", err)
	want := map[string]string{}
	for _, f := range files {
		want[f.Name] = f.SHA256
	}
	c.shown, c.grades = map[string]int{}, map[string]int{}
	for _, i := range items {
		c.compare(string(i.ID), want)
	}
	if len(want) > 0 || c.equal != len(files) {
		c.t.Errorf("%d of %d digests are those of the sources; not found: %v", c.equal, len(files), slices.Sorted(maps.Keys(want)))
	}
	c.must("stop", c.r.StopDaemon())
	c.must("check", c.r.CheckStopped(ctx))
	c.result = "as promised"
}

func (c *campaign) compare(id string, want map[string]string) {
	var item control.ItemDetail
	c.must("show", c.r.CtlJSON(c.t.Context(), &item, "show", id))
	name := item.Filename.Exact()
	c.shown[string(item.Condition)]++
	c.grades[string(item.Grade)]++
	for _, row := range item.Journal {
		if row.Event == attachment.EventLost {
			c.anew++
			c.t.Logf("%s was begun anew: %s", name, row.Detail)
		}
	}
	shown := attachment.ShownDelivered
	if c.peer.grade == receipt.LengthOnly {
		shown = attachment.ShownSent // nothing lets that count as delivery
	}
	if item.Grade != c.peer.grade || item.Condition != shown {
		c.t.Errorf("%s is %s with grade %q, want %s with %q: %+v", name, item.Condition, item.Grade, shown, c.peer.grade, item.Problem)
	}
	stored, err := c.peer.readBack(c.t.Context(), c.r, &item)
	if err != nil || stored != want[name] {
		c.t.Errorf("%s: the server's store has %q, %v; the source was %q", name, stored, err, want[name])
		return
	}
	c.equal++
	delete(want, name)
}

// head is that of the table, with one row for each peer.
func head() []string {
	return []string{
		"| peer | files | shown | grade | digests read back | kills of daemon | of server | cuts | MB of payload | MB sent beyond it | MB received | begun anew | seconds | |",
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
	}
}

func (c *campaign) row() string {
	mb := func(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }
	return fmt.Sprintf("| %s | %d | %s | %s | %d of %d equal | %d | %d | %d | %s | %s | %s | %d | %.0f | %s |",
		c.peer.name, len(files), tally(c.shown), tally(c.grades), c.equal, len(files), c.befell["daemon"], c.befell["server"],
		c.befell["cut"]+c.befell["cut after"], mb(c.payload), mb(c.up-c.payload), mb(c.down), c.anew, c.took.Seconds(),
		cmp.Or(c.result, "broke off"))
}

func tally(counts map[string]int) string {
	var parts []string
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[word], cmp.Or(word, "none")))
	}
	return strings.Join(parts, ", ")
}
