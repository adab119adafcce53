package transport

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/test/rig"
)

// network is a namespace with a veth pair: the device is inside, the server's side outside.
type network struct {
	t            *testing.T
	name         string
	out, in      string
	server       string // the address of the outer end
	first, moved string // addresses of the device
}

// ip runs ip(8).
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// networks counts those that were made.
var networks atomic.Int64

func newNetwork(t *testing.T) *network {
	t.Helper()
	serial := os.Getpid() + int(networks.Add(1)) // a namespace that is removed keeps its names for a while
	id, third := fmt.Sprintf("%x", serial&0xffffff), serial%250
	n := &network{t: t, name: "fgw" + id, out: "fgwo" + id, in: "fgwi" + id,
		server: fmt.Sprintf("10.213.%d.1", third), first: fmt.Sprintf("10.213.%d.2", third), moved: fmt.Sprintf("10.213.%d.3", third)}
	if err := ip("netns", "add", n.name); err != nil {
		t.Skipf("not run: no network namespace can be made here (root, ip): %v", err)
	}
	t.Cleanup(func() { must(t, "remove namespace", ip("netns", "del", n.name)) })
	if err := ip("link", "add", n.out, "type", "veth", "peer", "name", n.in, "netns", n.name); err != nil {
		t.Skipf("not run: no veth pair can be made here: %v", err)
	}
	// A connection that was left behind keeps the namespace for minutes (tcp(7), tcp_orphan_retries).
	t.Cleanup(func() { must(t, "remove veth pair", ip("link", "del", n.out)) })
	for _, args := range [][]string{
		{"addr", "add", n.server + "/24", "dev", n.out}, {"link", "set", n.out, "up"},
		{"-n", n.name, "link", "set", "lo", "up"}, {"-n", n.name, "link", "set", n.in, "up"},
		{"-n", n.name, "addr", "add", n.first + "/24", "dev", n.in}, {"-n", n.name, "route", "add", "default", "via", n.server},
	} {
		must(t, "set up", ip(args...))
	}
	return n
}

// move takes the device's address away and gives it another one, as a new lease or another radio does. Whoever sends from
// the old one hears nothing any more.
func (n *network) move() {
	n.t.Helper()
	must(n.t, "old address away", ip("-n", n.name, "addr", "del", n.first+"/24", "dev", n.in))
	must(n.t, "new address", ip("-n", n.name, "addr", "add", n.moved+"/24", "dev", n.in))
	must(n.t, "new route", ip("-n", n.name, "route", "replace", "default", "via", n.server))
}

// forward takes connections at the outer end and hands their bytes on to a local address, and returns where it listens.
func (n *network) forward(to string) string {
	n.t.Helper()
	l, err := net.Listen("tcp", n.server+":0")
	must(n.t, "listen", err)
	n.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			device, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer device.Close()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer server.Close()
				ended := make(chan error, 2)
				go func() { _, err := io.Copy(server, device); ended <- err }()
				go func() { _, err := io.Copy(device, server); ended <- err }()
				<-ended
			}()
		}
	}()
	return l.Addr().String()
}

// scene is one whose device is in the namespace. Its timeouts are so long that nothing but the change of the link can
// end what hangs.
func (n *network) scene(retry string) *scene {
	t := n.t
	t.Helper()
	dir := shortDir(t)
	_, cert, key := selfSigned(t, "", time.Now().Add(24*time.Hour), net.ParseIP(n.server))
	home := filepath.Join(dir, "server", "tls")
	must(t, "make directory", os.MkdirAll(home, 0o700))
	must(t, "write key", os.WriteFile(filepath.Join(home, "key.pem"), key, 0o600))
	must(t, "write certificate", os.WriteFile(filepath.Join(home, "cert.pem"), cert, 0o644))
	s := newScene(t, rig.Options{
		Dir: dir, Uplink: "chunk_size = \"128KiB\"\nidle_timeout = \"1h\"\nanswer_timeout = \"1h\"", Retry: retry,
		Under: map[string][]string{"fieldgwd": {"ip", "netns", "exec", n.name}},
	})
	must(t, "make conf.d", os.Mkdir(s.Path("device", "conf.d"), 0o755))
	endpoint := fmt.Sprintf("uplink.endpoint = \"https://%s\"\n", n.forward(s.Link.Addr()))
	must(t, "write endpoint", os.WriteFile(s.Path("device", "conf.d", "endpoint.toml"), []byte(endpoint), 0o644))
	must(t, "start", s.StartDaemon(t.Context()))
	return s
}

// The device's address changes in mid-transfer: the transfer goes on over the new one in the same session, charged to
// nobody.
func TestAddressChangesInTransfer(t *testing.T) {
	n := newNetwork(t)
	const size = 6 << 20
	s := n.scene("")
	s.Link.SetRate(1 << 20)
	s.drop("video.mp4", size)
	s.until("a part is confirmed", func() (bool, error) {
		i := s.item("video.mp4")
		return i.ConfirmedBytes != nil && *i.ConfirmedBytes > 1<<20, nil
	})
	n.move()
	s.delivered("video.mp4")
	s.uncharged("video.mp4", 1)
	t.Logf("link carried %d bytes for a file of %d", s.Link.BytesUp(), size)
	log, err := os.ReadFile(s.Log("fieldgwd"))
	must(t, "read log", err)
	if !strings.Contains(string(log), "the link changed") {
		t.Error("the change was not noticed")
	}
}

// A link that comes back ends the wait for it, which would last ten minutes.
func TestLinkComesBack(t *testing.T) {
	n := newNetwork(t)
	s := n.scene("10m-11m")
	must(t, "link down", ip("-n", n.name, "link", "set", n.in, "down"))
	s.drop("a.jpg", 300<<10)
	w := s.held(attachment.HoldOffline)
	if w.NextAttempt == nil || time.Until(*w.NextAttempt) < 5*time.Minute {
		t.Errorf("next attempt: %v", w.NextAttempt)
	}
	must(t, "link up", ip("-n", n.name, "link", "set", n.in, "up"))
	must(t, "route", ip("-n", n.name, "route", "replace", "default", "via", n.server))
	s.delivered("a.jpg")
	s.uncharged("a.jpg", 1)
}
