package interop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/tus"
	"github.com/fieldgw/fieldgw/test/rig"
)

// fieldgwTus is our own server, as one of tus alone. It tells its digest, so that nothing is read back.
var fieldgwTus = peer{
	name: "fieldgw-server by tus",
	path: "/v1/uploads",
	config: func(dir string) (string, error) {
		lines, err := tusConfig(dir)
		return lines + "\naccount = \"default\"", err
	},
	readBack: fieldgwServer.readBack,
	grade:    receipt.VerifiedDigest,
	driver:   tusDriver(false), protocol: tus.Protocol,
}

// The servers of tus 1.0.0. The last part of an upload's address is the name of its file in the server's store.
var (
	tusd = peer{
		name:     "tusd by tus",
		config:   tusConfig,
		missing:  func(context.Context) string { return missingProgram("tusd") },
		foreign:  &rig.Foreign{Command: startTusd, Endpoint: underFiles},
		readBack: storedAs(func(dir, id string) string { return filepath.Join(dir, id) }),
		grade:    receipt.VerifiedDigest, downloads: true,
		driver: tusDriver(false), protocol: tus.Protocol,
	}
	// The same without reading back.
	tusdLength = peer{
		name:     "tusd by tus, length only",
		config:   func(string) (string, error) { return "driver = \"tus\"\nverify = \"length\"", nil },
		missing:  tusd.missing,
		foreign:  tusd.foreign,
		readBack: tusd.readBack,
		grade:    receipt.LengthOnly,
	}
	tusNode = peer{
		name:     "@tus/server by tus",
		config:   tusConfig,
		missing:  func(ctx context.Context) string { return missingModule(ctx, "@tus/server", "@tus/file-store") },
		foreign:  &rig.Foreign{Command: script("tus-server.mjs"), Endpoint: underFiles},
		readBack: storedAs(func(dir, id string) string { return filepath.Join(dir, id) }),
		grade:    receipt.VerifiedDigest, downloads: true,
		driver: tusDriver(false), protocol: tus.Protocol,
	}
	// uploadx checks each append's digest and gives nothing back, so that only the length is known in the end.
	uploadx = peer{
		name:     "@uploadx/core by tus",
		config:   tusConfig,
		missing:  func(ctx context.Context) string { return missingModule(ctx, "@uploadx/core") },
		foreign:  &rig.Foreign{Command: script("uploadx.mjs"), Endpoint: underFiles},
		readBack: storedAs(func(dir, id string) string { return filepath.Join(dir, id) }),
		grade:    receipt.LengthOnly,
		driver:   tusDriver(true), protocol: tus.Protocol,
	}
)

func tusDriver(lengthOnly bool) func(*remote.Client) uplink.Driver {
	return func(c *remote.Client) uplink.Driver {
		return tus.New(tus.Options{Client: c, LengthOnly: lengthOnly, Anonymous: true})
	}
}

func tusConfig(string) (string, error) {
	return "driver = \"tus\"\naccept_grade = \"verified-digest\"", nil
}

func underFiles(addr string) string { return "http://" + addr + "/files/" }

func missingProgram(name string) string {
	if _, err := os.Stat(filepath.Join(programs, name)); err != nil {
		return name + " is not installed"
	}
	return ""
}

// missingModule looks for modules of Node, and for a Node that runs them.
func missingModule(ctx context.Context, modules ...string) string {
	version, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return "node is not installed"
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(version), "v%d.%d.", &major, &minor); err != nil || major < 20 || major == 20 && minor < 19 {
		return "node is older than 20.19: " + strings.TrimSpace(string(version))
	}
	for _, m := range modules {
		if _, err := os.Stat(filepath.Join(programs, "node_modules", filepath.FromSlash(m))); err != nil {
			return m + " is not installed"
		}
	}
	return ""
}

func startTusd(ctx context.Context, dir, addr string) (*exec.Cmd, error) {
	host, port, err := net.SplitHostPort(addr)
	return exec.CommandContext(ctx, filepath.Join(programs, "tusd"), "-host", host, "-port", port, "-upload-dir", dir, "-base-path", "/files/"), err
}

// script runs a server of testdata beside the modules that it imports: Node looks for them where the script lies.
func script(name string) func(ctx context.Context, dir, addr string) (*exec.Cmd, error) {
	return func(ctx context.Context, dir, addr string) (*exec.Cmd, error) {
		source, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			return nil, err
		}
		beside := filepath.Dir(dir)
		if err := os.WriteFile(filepath.Join(beside, name), source, 0o600); err != nil {
			return nil, err
		}
		err = os.Symlink(filepath.Join(programs, "node_modules"), filepath.Join(beside, "node_modules"))
		if err != nil && !os.IsExist(err) {
			return nil, err
		}
		host, port, err := net.SplitHostPort(addr)
		return exec.CommandContext(ctx, "node", filepath.Join(beside, name), dir, host, port), err
	}
}

// storedAs reads the file that a server keeps for what its receipt names.
func storedAs(path func(dir, mediaID string) string) func(context.Context, *rig.Rig, *control.ItemDetail) (string, error) {
	return func(_ context.Context, r *rig.Rig, item *control.ItemDetail) (string, error) {
		f, err := os.Open(path(r.Store(), item.MediaID))
		if err != nil {
			return "", err
		}
		defer f.Close()
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		return hex.EncodeToString(sum.Sum(nil)), err
	}
}
