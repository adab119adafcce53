package interop

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/test/plantroom"
	"github.com/fieldgw/fieldgw/test/rig"
)

var (
	size   = flag.Int64("interop.size", 12<<20, "bytes of the large file")
	faults = flag.Int("interop.faults", 3, "kills and cuts for each peer")
	seed   = flag.Uint64("interop.seed", 0, "seed of their moments; 0 takes one from the clock and prints it")
	only   = flag.String("interop.peer", "", "run only the peers whose name contains this")
	where  = flag.String("interop.peers", "", "directory with the foreign programs; without it build/interop of the module")
)

// peer is a server, and how a device speaks to it.
type peer struct {
	name string
	// config are the lines of [uplink] that choose the driver; dir is the rig's directory, for a credential.
	config func(dir string) (string, error)
	// missing says what of it is not installed here; nil or empty for nothing.
	missing func(ctx context.Context) string
	// foreign is its process; nil for fieldgw-server, with the path of the endpoint there.
	foreign *rig.Foreign
	path    string
	// front is a proxy in front of fieldgw-server; nil for none.
	front func(ctx context.Context, r *rig.Rig, addr string) (*exec.Cmd, error)
	// driver speaks to it, for the conformance suite; nil where that is run elsewhere.
	driver func(c *remote.Client) uplink.Driver
	// protocol is the driver's.
	protocol func() *remote.Protocol
	// readBack is the SHA-256, in hex, of what the server's own store holds for a finished item. The server still runs.
	readBack func(ctx context.Context, r *rig.Rig, item *control.ItemDetail) (string, error)
	// grade is what its receipts are worth.
	grade receipt.Grade
	// downloads: the driver reads the stored bytes back over the link.
	downloads bool
}

// bin is where TestMain built the programs, files what is sent, programs where the foreign ones are.
var (
	bin      string
	files    []plantroom.File
	programs string
)

// buildContext is for what is built once for all tests.
var buildContext = context.Background()

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runMain(m))
}

func runMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fgw-interop-")
	if err == nil {
		err = prepare(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// prepare builds the programs and makes the files.
func prepare(dir string) (err error) {
	root, err := rig.Root(buildContext)
	if err != nil {
		return err
	}
	programs = cmp.Or(*where, filepath.Join(root, "build", "interop"))
	bin = filepath.Join(dir, "bin")
	if err := rig.Build(buildContext, bin); err != nil {
		return err
	}
	source := filepath.Join(dir, "source")
	if files, err = plantroom.Generate(source, 7); err != nil {
		return err
	}
	film, err := makeFilm(filepath.Join(source, "walk-through.mp4"), *size)
	files = append(files, film)
	return err
}

// skipMissing skips the test of a peer that is not installed, and says what is missing.
func (p peer) skipMissing(t *testing.T) {
	t.Helper()
	if p.missing == nil {
		return
	}
	if what := p.missing(t.Context()); what != "" {
		t.Skipf("not run: %s; make interop installs it", what)
	}
}

// A driver keeps at a real server every promise that it declares.
func TestConformance(t *testing.T) {
	for _, p := range peers {
		if p.driver == nil || !strings.Contains(p.name, *only) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			p.skipMissing(t)
			c := &campaign{t: t, peer: p}
			c.start()
			o := remote.Options{Endpoint: c.r.ServerURL() + p.path, Protocol: p.protocol(), Logger: slog.New(slog.DiscardHandler)}
			if p.foreign == nil {
				o.CAFile, o.Credential = c.r.Path("server", "tls", "cert.pem"), remote.CredentialFile(c.r.Credential)
			} else {
				o.Endpoint = p.foreign.Endpoint(c.r.ServerAddr())
			}
			connect := func() uplink.Driver {
				client, err := remote.New(o)
				c.must("make a client", err)
				t.Cleanup(client.CloseIdle)
				return p.driver(client)
			}
			uplinktest.Run(t, func(*testing.T) (uplink.Driver, uplink.Driver) { return connect(), connect() })
		})
	}
}

// Every server gets every file whole, whatever is killed or cut meanwhile, and the receipts claim no more than it promises.
func TestInterop(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -interop.seed=%d", *seed)
	var rows []string
	for i, p := range peers {
		if !strings.Contains(p.name, *only) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			row := fmt.Sprintf("| %s | not installed |", p.name)
			defer func() { rows = append(rows, row) }()
			p.skipMissing(t)
			c := &campaign{t: t, peer: p, rnd: rand.New(rand.NewPCG(*seed, uint64(i)))}
			c.run()
			if t.Failed() {
				c.result = "failed"
			}
			row = c.row()
		})
	}
	for _, line := range append(head(), rows...) {
		t.Log(line)
	}
}
