package foreignclients

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/test/linkproxy"
	"github.com/fieldgw/fieldgw/test/rig"
)

const (
	// size is that of the uploaded file, in bytes; interrupt is how far it gets before the interruption.
	size      = 20 << 20
	interrupt = 10 << 20
	// patience bounds each wait of a test; a link or a client that takes this long is broken.
	patience = 3 * time.Minute
	// jsModules names a directory in which tus-js-client is installed already.
	jsModules = "FIELDGW_TUS_JS_CLIENT"
	// jsClient is what is installed elsewhere.
	jsClient = "tus-js-client@4.3.1"
	// python is Debian's, which has Debian's packages.
	python = "/usr/bin/python3"
)

// bin is where TestMain built the programs.
var bin string

// buildContext is for what is built once for all tests.
var buildContext = context.Background()

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fgw-foreign-")
	if err == nil {
		bin = filepath.Join(dir, "bin")
		err = rig.Build(buildContext, bin)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// scene is a server behind a link, and a file to upload to it.
type scene struct {
	*testing.T
	rig    *rig.Rig
	dir    string
	file   string
	sha256 string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dir, err := os.MkdirTemp("", "fgw") // short enough for a unix socket
	must(t, err)
	s := &scene{T: t, dir: dir, file: filepath.Join(dir, "file")}
	s.rig, err = rig.New(t.Context(), rig.Options{Dir: filepath.Join(dir, "rig"), Bin: bin})
	t.Cleanup(func() {
		if s.rig != nil {
			err = errors.Join(err, s.rig.Close())
		}
		if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	must(t, err)
	data := make([]byte, size)
	if _, err := rand.NewChaCha8([32]byte{5}).Read(data); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	s.sha256 = hex.EncodeToString(sum[:])
	must(t, os.WriteFile(s.file, data, 0o600))
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *scene) endpoint() string { return "https://" + s.rig.Link.Addr() + "/v1/uploads" }

// client is a foreign program that runs.
type client struct {
	cmd *exec.Cmd
	out bytes.Buffer // to be read after the end
}

// start starts a client, which trusts the server's certificate and has its token.
func (s *scene) start(program string, args ...string) *client {
	s.Helper()
	token, err := os.ReadFile(s.rig.Path("server", "device.token"))
	must(s.T, err)
	ca := s.rig.Path("server", "tls", "cert.pem")
	c := &client{cmd: exec.CommandContext(s.Context(), program, args...)}
	c.cmd.Env = append(os.Environ(), "TOKEN="+strings.TrimSpace(string(token)), "NODE_EXTRA_CA_CERTS="+ca, "REQUESTS_CA_BUNDLE="+ca)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	must(s.T, c.cmd.Start())
	return c
}

// ends waits for a client that succeeds, and returns what it said.
func (s *scene) ends(c *client) string {
	s.Helper()
	timer := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() }) // which fails when it has ended by itself
	defer timer.Stop()
	err := c.cmd.Wait()
	s.Logf("the client said:\n%s", c.out.String())
	must(s.T, err)
	return c.out.String()
}

// received fails the test unless the server lists exactly the file, bound to the parent, and gives back its bytes; and
// unless the link saw them about once.
func (s *scene) received(parent string) {
	s.Helper()
	list, err := s.rig.Registered(s.Context())
	must(s.T, err)
	if len(list) != 1 {
		s.Fatalf("listed are %v", list)
	}
	for id, a := range list {
		want := receipt.Facts{AttachmentID: id, Length: size, SHA256: s.sha256, Parent: receipt.Parent{LocalID: parent}}
		must(s.T, receipt.Check(*a.Receipt, want))
		got, err := s.rig.ContentDigest(s.Context(), id)
		must(s.T, err)
		if got != s.sha256 {
			s.Errorf("the content has digest %s, the file %s", got, s.sha256)
		}
		s.Logf("listed: %s, %d bytes, grade %s, parent %q; sha256 of the content as of the file: %s",
			id, a.Receipt.Length, a.Receipt.Grade, a.Receipt.Parent.LocalID, got)
	}
	up := s.rig.Link.BytesUp()
	s.Logf("%d bytes went up for a file of %d", up, size)
	if up > size+size/4 {
		s.Errorf("the upload began anew: %d bytes went up", up)
	}
}

// modules is a directory with tus-js-client in it.
func modules(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skipf("not run: tus-js-client needs Node: %v", err)
	}
	if dir := os.Getenv(jsModules); dir != "" {
		return dir
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--prefix", dir, jsClient)
	if out, err := npm.CombinedOutput(); err != nil {
		t.Logf("npm said:\n%s", out)
		t.Skipf("not run: npm cannot install %s, and %s names no directory that has it", jsClient, jsModules)
	}
	return dir
}

// tus-js-client sends the file in a single append, the link is cut in the middle of it, and the client goes on behind what
// the server confirmed.
func TestTusJSClient(t *testing.T) {
	dir := modules(t)
	s := newScene(t)
	s.rig.Link.CutAfter(interrupt)
	script, err := filepath.Abs("testdata/tus-js-client.mjs")
	must(t, err)
	c := s.start("node", script, dir, s.endpoint(), s.file, "insp-7")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, s.rig.Link.Wait(ctx, linkproxy.ModeCut))
	s.rig.Link.Restore()
	if said := s.ends(c); !strings.Contains(said, "interrupted: ") || !strings.Contains(said, "\ndone\n") {
		t.Error("the client was not interrupted, or did not finish")
	}
	s.received("insp-7")
}

// tuspy is killed in the middle; another run goes on with the stored URL.
func TestTuspy(t *testing.T) {
	if err := exec.CommandContext(t.Context(), python, "-c", "import tusclient").Run(); err != nil {
		t.Skip("not run: Debian's package python3-tuspy is not installed")
	}
	s := newScene(t)
	args := []string{"testdata/tuspy.py", s.endpoint(), s.file, filepath.Join(s.dir, "urls.json"), s.sha256}
	s.rig.Link.SetRate(4 << 20) // so that there is a middle to kill it in
	c := s.start(python, args...)
	must(t, rig.Until(t.Context(), patience, "half of the file is on its way", func() (bool, error) {
		return s.rig.Link.BytesUp() > interrupt, nil
	}))
	must(t, c.cmd.Process.Kill())
	if err := c.cmd.Wait(); err == nil || strings.Contains(c.out.String(), "ends at") {
		t.Fatalf("it was not killed in the middle: %v\n%s", err, c.out.String())
	}
	s.Logf("the client said, before it was killed:\n%s", c.out.String())
	s.rig.Link.SetRate(0)
	said := s.ends(s.start(python, args...))
	var at int64
	if _, err := fmt.Sscanf(said, "begins at %d", &at); err != nil || at < interrupt/2 {
		t.Errorf("the second run begins at %d: %v", at, err)
	}
	s.received("")
}
