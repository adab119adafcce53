// Package rig runs the real programs for tests and for the demonstration: fieldgw-server, fieldgwd behind a link that can
// be cut, and fieldgwctl. It starts them as processes of their own, kills them, and asks the server itself, past the link,
// what it really holds.
//
// It owns one directory and the processes in it. Read Rig first, then server.go (the server's own word) and truth.go
// (what must hold whenever somebody looks).
package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/test/linkproxy"
)

// Options describe a Rig. The zero value gives the defaults.
type Options struct {
	// Dir holds everything; it must be short enough for a unix socket's path.
	Dir string
	// Bin holds the built programs.
	Bin string
	// Config is added to the daemon's configuration.
	Config string
	// Retry is the schedule's four ranges; empty means 1s-2s for all of them.
	Retry string
	// Adopt is "move" or "copy"; empty means move.
	Adopt string
	// Settle is the settle time; empty means 300ms.
	Settle string
	// Uplink is added to the daemon's [uplink] table.
	Uplink string
	// Credential is the file of the daemon's token; empty means the one that the server's first start makes, which the rig
	// itself asks the server with.
	Credential string
	// ServerArgs are further arguments of the server, from its next start on.
	ServerArgs []string
	// Env is added to the environment of a program by its name, from its next start on.
	Env map[string][]string
	// Under is a command with its arguments that starts a program, by the program's name, from its next start on. It must
	// become the program (execve(2)), so that the rig kills and stops the program itself.
	Under map[string][]string
	// EndpointPath is that of the daemon's endpoint at fieldgw-server, with its slash; empty for the root.
	EndpointPath string
	// Foreign is a server in the place of fieldgw-server; nil for none. The rig cannot ask it anything.
	Foreign *Foreign
	// Front makes the process of a proxy between link and server, which listens on addr; nil for none. It is started once.
	Front func(ctx context.Context, r *Rig, addr string) (*exec.Cmd, error)
}

// Rig is a server, a link and a device.
type Rig struct {
	Options
	Link *linkproxy.Proxy

	server, daemon *Process
	front          *Process
	serverAddr     string
	stopLink       context.CancelFunc
	linkDone       chan error
}

// New makes the directories, the link and the daemon's configuration, and starts the server once, so that certificate
// and token exist. When only that start failed, the rig is returned with the error, and StartServer may be tried again.
func New(ctx context.Context, o Options) (*Rig, error) {
	if o.Retry == "" {
		o.Retry = "1s-2s"
	}
	if o.Adopt == "" {
		o.Adopt = "move"
	}
	if o.Settle == "" {
		o.Settle = "300ms"
	}
	if o.Credential == "" {
		o.Credential = filepath.Join(o.Dir, "server", "device.token")
	}
	r := &Rig{Options: o}
	for _, d := range []string{r.Capture(), r.Path("log")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r.serverAddr = fmt.Sprintf("127.0.0.1:%d", port)
	target := r.serverAddr
	if r.Front != nil {
		if port, err = freePort(); err != nil {
			return nil, err
		}
		target = fmt.Sprintf("127.0.0.1:%d", port)
	}
	if r.Link, err = linkproxy.New(linkproxy.Options{Target: target}); err != nil {
		return nil, err
	}
	linkCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stopLink, r.linkDone = stop, make(chan error, 1)
	go func() { r.linkDone <- r.Link.Run(linkCtx) }()
	if err := r.WriteConfig(""); err != nil {
		return nil, err
	}
	if err := r.StartServer(ctx); err != nil || r.Front == nil {
		return r, err
	}
	cmd, err := r.Front(ctx, r, target)
	if err == nil {
		r.front, err = r.launch(ctx, "front", cmd, func() (bool, error) { return listening(target) })
	}
	return r, err
}

// Twin is a second device with a copy of this one's state directory, on the same link to the same server. Its daemon is a
// process of its own; Close ends that one alone. The daemon of r must not run.
func (r *Rig) Twin(ctx context.Context, dir string) (*Rig, error) {
	t := &Rig{Options: r.Options, Link: r.Link, serverAddr: r.serverAddr}
	t.Dir = dir
	for _, d := range []string{t.Capture(), t.Path("log")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Symlink(r.Path("server"), t.Path("server")); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", r.Path("device", "state"), t.Path("device")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy state directory: %w: %s", err, out)
	}
	return t, t.WriteConfig("")
}

// freePort finds a port that nobody listens on, below those that the kernel hands out by itself (ip_local_port_range,
// ip(7)): a server that is stopped for a while finds its port free again.
func freePort() (int, error) {
	var failed error
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
		failed = err
	}
	return 0, fmt.Errorf("find a free port: %w", failed)
}

// Path joins a path to the rig's directory.
func (r *Rig) Path(elem ...string) string { return filepath.Join(append([]string{r.Dir}, elem...)...) }

// Capture is the watched directory.
func (r *Rig) Capture() string { return r.Path("device", "capture") }

// Spool is the account's directory on the device.
func (r *Rig) Spool() string { return r.Path("device", "state", "accounts", "default") }

// Socket is the daemon's control socket.
func (r *Rig) Socket() string { return r.Path("device", "run", "control.sock") }

// DaemonConfig is the daemon's configuration file.
func (r *Rig) DaemonConfig() string { return r.Path("device", "fieldgw.toml") }

// Queue is the account's queue file.
func (r *Rig) Queue() string { return filepath.Join(r.Spool(), "queue.db") }

// WriteConfig writes the daemon's configuration; extra is added to that of the options.
func (r *Rig) WriteConfig(extra string) error {
	text := fmt.Sprintf(`version = 1
state_dir = %[1]q
[watch.camera]
path = %[2]q
settle = %[10]q
adopt = %[3]q
[uplink]
%[4]s
%[5]s
[uplink.retry]
first = %[6]q
second = %[6]q
third = %[6]q
cap = %[6]q
[control]
socket = %[7]q
group = ""
%[8]s
%[9]s
`, r.Path("device", "state"), r.Capture(), r.Adopt, r.endpoint(), r.Uplink, r.Retry, r.Socket(), r.Config, extra, r.Settle)
	return os.WriteFile(r.DaemonConfig(), []byte(text), 0o600)
}

// endpoint is what the daemon's configuration says about the server's address and how to be known there.
func (r *Rig) endpoint() string {
	if r.Foreign != nil {
		return fmt.Sprintf("endpoint = %q\naccount = \"default\"", r.Foreign.Endpoint(r.Link.Addr()))
	}
	return fmt.Sprintf("endpoint = %q\ncredential = %q\nca_file = %q", "https://"+r.Link.Addr()+r.EndpointPath, r.Credential, r.Path("server", "tls", "cert.pem"))
}

// StartServer starts the server and waits until it is ready.
func (r *Rig) StartServer(ctx context.Context) (err error) {
	if r.Foreign != nil {
		r.server, err = r.startForeign(ctx)
		return err
	}
	args := []string{"--data", r.Path("server"), "--listen", r.serverAddr, "--log-format", "text"}
	r.server, err = r.start(ctx, "fieldgw-server", append(args, r.ServerArgs...)...)
	return err
}

// StartDaemon starts fieldgwd and waits until it has recovered.
func (r *Rig) StartDaemon(ctx context.Context) (err error) {
	r.daemon, err = r.start(ctx, "fieldgwd", "run", "--config", r.DaemonConfig())
	return err
}

// KillDaemon ends fieldgwd without warning (SIGKILL).
func (r *Rig) KillDaemon() error { return r.daemon.Kill() }

// KillServer ends the server without warning (SIGKILL).
func (r *Rig) KillServer() error { return r.server.Kill() }

// StopDaemon ends fieldgwd in order (SIGTERM).
func (r *Rig) StopDaemon() error { return r.daemon.Stop() }

// StopServer ends the server in order (SIGTERM).
func (r *Rig) StopServer() error { return r.server.Stop() }

// Daemon is the fieldgwd that was started last; nil when it did not start.
func (r *Rig) Daemon() *Process { return r.daemon }

// Server is the server that was started last; nil when it did not start.
func (r *Rig) Server() *Process { return r.server }

// CheckStopped has fieldgwd check queue and files, every byte of them, while no daemon runs.
func (r *Rig) CheckStopped(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(r.Bin, "fieldgwd"), "check", "--deep", "--config", r.Path("device", "fieldgw.toml"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fieldgwd check: %w\n%s", err, out)
	}
	return nil
}

// Close ends everything. The directory stays.
func (r *Rig) Close() error {
	var errs []error
	if p := r.daemon; p != nil && p.Running() {
		errs = append(errs, p.Stop())
	}
	if p := r.server; p != nil && p.Running() {
		if r.Foreign == nil {
			errs = append(errs, p.Stop())
		} else {
			errs = append(errs, p.Kill()) // how it ends is its own matter
		}
	}
	if p := r.front; p != nil && p.Running() {
		errs = append(errs, p.Kill())
	}
	if r.stopLink != nil { // a twin's link is not its own
		r.stopLink()
		errs = append(errs, <-r.linkDone)
	}
	return errors.Join(errs...)
}

// Ctl runs fieldgwctl and returns what it printed and its exit code. An error means that it could not be run.
func (r *Rig) Ctl(ctx context.Context, args ...string) (stdout, stderr string, code int, err error) {
	return r.run(ctx, "fieldgwctl", args...)
}

// Offline runs a command of fieldgwd that is for a stopped daemon, such as check or rebuild. It returns what Ctl does.
func (r *Rig) Offline(ctx context.Context, verb string, args ...string) (stdout, stderr string, code int, err error) {
	return r.run(ctx, "fieldgwd", append([]string{verb, "--config", r.DaemonConfig()}, args...)...)
}

func (r *Rig) run(ctx context.Context, program string, args ...string) (stdout, stderr string, code int, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(r.Bin, program), args...)
	cmd.Env = append(os.Environ(), "FIELDGW_SOCKET="+r.Socket(), "NO_COLOR=1", "TZ=UTC")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode(), err
}

// CtlJSON runs fieldgwctl -o json and decodes its answer into v.
func (r *Rig) CtlJSON(ctx context.Context, v any, args ...string) error {
	stdout, stderr, code, err := r.Ctl(ctx, append([]string{"-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("fieldgwctl %s: exit %d: %s", strings.Join(args, " "), code, stderr)
	}
	return json.Unmarshal([]byte(stdout), v)
}

// Items returns what fieldgwctl list shows.
func (r *Rig) Items(ctx context.Context) ([]control.Item, error) {
	var page control.Page[control.Item]
	err := r.CtlJSON(ctx, &page, "list")
	return page.Items, err
}

// Until asks again and again, at most for the given time, until ok answers true or fails.
func Until(ctx context.Context, limit time.Duration, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(pause*5/4, 500*time.Millisecond) {
		done, err := ok()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s", what, limit)
		case <-time.After(pause):
		}
	}
}
