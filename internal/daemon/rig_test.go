package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging/loggingtest"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// device is a daemon in this process: a state directory that survives its restarts, a capture directory, a credential
// file, and a server that misbehaves on request.
type device struct {
	t      *testing.T
	dir    string
	server *uplinktest.Server
	http   *httptest.Server
	fs     *durable.FS
	extra  string
	// queueMax is how large the queue file may become; 0 for no limit of its own.
	queueMax int64
	watch    string // more keys of the watch
	workers  int    // 0: two
	uplink   string // more keys of the uplink
	patience string // its timeouts; "" for short ones
	watchdog time.Duration
	fed      atomic.Int64 // how often the watchdog was

	client *client.Client
	stop   context.CancelFunc
	done   chan error
	log    *loggingtest.Buffer
}

func newDevice(t *testing.T) *device {
	t.Helper()
	dir, err := os.MkdirTemp("", "fgwd") // short enough for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	d := &device{t: t, dir: dir, server: uplinktest.NewServer(), fs: durable.OS(), log: &loggingtest.Buffer{}}
	d.http = httptest.NewServer(d.server)
	if err := os.Mkdir(filepath.Join(dir, "capture"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.setToken(uplinktest.Token)
	t.Cleanup(func() {
		d.server.Release()
		d.down()
		d.http.Close()
		if t.Failed() {
			t.Logf("log:\n%s", d.log)
		}
		if strings.Contains(d.log.String(), strings.Split(uplinktest.Token, ".")[3]) {
			t.Error("the log contains the credential")
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *device) setToken(token string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, "token"), []byte(token), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *device) config() *config.Config {
	d.t.Helper()
	text := fmt.Sprintf(`version = 1
state_dir = %q
[watch.camera]
path = %q
settle = "50ms"
%s
[uplink]
endpoint = %q
credential = %q
chunk_size = "128KiB"
workers = %d
idle_timeout = %q
answer_timeout = %q
%s
[uplink.retry]
first = "20ms-30ms"
second = "30ms-40ms"
third = "40ms-50ms"
cap = "50ms-100ms"
[control]
socket = %q
group = ""
%s`, filepath.Join(d.dir, "state"), filepath.Join(d.dir, "capture"), d.watch, d.http.URL, filepath.Join(d.dir, "token"), cmp.Or(d.workers, 2),
		cmp.Or(d.patience, "500ms"), cmp.Or(d.patience, "1s"), d.uplink,
		d.socket(), d.extra)
	path := filepath.Join(d.dir, "fieldgw.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	cfg, err := config.Load(path, func(string) string { return "" })
	if err != nil {
		d.t.Fatal(err)
	}
	return cfg
}

func (d *device) socket() string { return filepath.Join(d.dir, "run", "control.sock") }

// up starts the daemon and waits until it is ready.
func (d *device) up() {
	d.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan struct{})
	var once sync.Once
	d.stop, d.done = stop, make(chan error, 1)
	opts := Options{
		Config: d.config(), FS: d.fs, QueueMax: d.queueMax, Watchdog: d.watchdog, Logger: slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Notify: func(state string) {
			if strings.HasPrefix(state, "READY=1") {
				once.Do(func() { close(ready) })
			}
			if state == "WATCHDOG=1" {
				d.fed.Add(1)
			}
		},
	}
	go func() { d.done <- Run(ctx, opts) }()
	select {
	case <-ready:
	case err := <-d.done:
		d.t.Fatalf("the daemon ended: %v", err)
	case <-time.After(20 * time.Second):
		d.t.Fatal("the daemon does not get ready")
	}
	d.client = client.New(d.socket())
}

// down stops the daemon in order.
func (d *device) down() {
	d.t.Helper()
	if d.stop == nil {
		return
	}
	d.client.Close()
	d.stop()
	if err := <-d.done; err != nil {
		d.t.Errorf("the daemon ended with %v", err)
	}
	d.stop = nil
}

// drop puts a file into the capture directory and returns its content.
func (d *device) drop(name string, size int) []byte {
	d.t.Helper()
	content := uplinktest.Content(uint64(len(name)*1000+size), size)
	path := filepath.Join(d.dir, "capture", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		d.t.Fatal(err)
	}
	return content
}

// until asks until ok says yes. No timing is asserted: the limit only ends a test that would hang.
func (d *device) until(what string, ok func() bool) {
	d.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			d.t.Fatalf("never came true: %s\nitems: %+v", what, d.items())
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (d *device) items() []control.Item {
	page, err := d.client.List(context.Background(), control.ListQuery{})
	if err != nil {
		return nil
	}
	return page.Items
}

func (d *device) item(name string) control.Item {
	for _, i := range d.items() {
		if i.Filename.Text == name {
			return i
		}
	}
	return control.Item{}
}

func (d *device) status() control.Status {
	s, err := d.client.Status(context.Background())
	if err != nil {
		d.t.Errorf("status: %v", err)
	}
	return s
}

func (d *device) delivered(names ...string) {
	d.t.Helper()
	for _, name := range names {
		d.until(name+" delivered", func() bool { return d.item(name).Condition == attachment.ShownDelivered })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func reason(w *control.Waiting) attachment.Code {
	if w == nil {
		return ""
	}
	return w.Reason
}

func newSilent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// accountOf is the account that the test token names.
func accountOf(t *testing.T) string {
	t.Helper()
	token, err := remote.ParseToken(uplinktest.Token)
	must(t, err)
	return token.Account
}

var testTime = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
