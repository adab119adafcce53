package daemon

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

// webServer takes files by PUT and registrations by POST, and does neither while it is told to wait.
type webServer struct {
	mu      sync.Mutex
	files   map[string][]byte
	hooks   []map[string]any
	hold    chan struct{} // a PUT waits for it half-way; nil: for nothing
	refuses int           // the status that the webhook answers; 0: it takes note
	auth    map[string]bool
	conns   map[net.Conn]bool // that are open
}

// ServeHTTP implements http.Handler.
func (s *webServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	hold := s.hold
	s.auth[r.Header.Get("Authorization")] = true
	s.mu.Unlock()
	if r.Method == http.MethodPut && hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	content, there := s.files[r.URL.Path]
	switch {
	case r.Method == http.MethodPut:
		s.files[r.URL.Path] = body
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPost && s.refuses != 0:
		w.WriteHeader(s.refuses)
	case r.Method == http.MethodPost:
		var message map[string]any
		if json.Unmarshal(body, &message) == nil {
			s.hooks = append(s.hooks, message)
		}
		w.WriteHeader(http.StatusNoContent)
	case !there:
		w.WriteHeader(http.StatusNotFound)
	default:
		if _, err := w.Write(content); err != nil {
			return
		}
	}
}

func (s *webServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// newWebDevice is a device whose uplink is a web server, and maybe a webhook.
func newWebDevice(t *testing.T, uplink string) (*device, *webServer) {
	t.Helper()
	d, s := newDevice(t), &webServer{files: map[string][]byte{}, auth: map[string]bool{}, conns: map[net.Conn]bool{}}
	d.http.Close()
	d.http = httptest.NewUnstartedServer(s)
	d.http.Config.ConnState = func(c net.Conn, state http.ConnState) {
		s.set(func() {
			if s.conns[c] = true; state == http.StateClosed || state == http.StateHijacked {
				delete(s.conns, c)
			}
		})
	}
	d.http.Start()
	d.setToken("user:pass word")
	d.uplink = "driver = \"http\"\naccount = \"plant\"\n" + strings.ReplaceAll(uplink, "SERVER", d.http.URL)
	return d, s
}

// A web server stores a file and registers nothing: it is sent. With a webhook that takes note it is delivered, once that does,
// and meanwhile other files are sent.
func TestWebServer(t *testing.T) {
	d, s := newWebDevice(t, "webhook = \"SERVER/hook\"\n")
	s.refuses = http.StatusBadGateway
	d.up()
	content := d.drop("insp-7/a.jpg", 300_000)
	d.until("the webhook's trouble is shown", func() bool {
		i := d.item("a.jpg")
		return reason(i.Waiting) == attachment.HoldServerError && i.Condition == attachment.ShownUploaded &&
			strings.Contains(i.Waiting.Detail, "webhook")
	})
	d.drop("b.jpg", 1000)
	d.until("the other one is sent meanwhile", func() bool { return d.item("b.jpg").State == attachment.Uploaded })
	s.set(func() { s.refuses = 0 })
	d.delivered("a.jpg", "b.jpg")
	i := d.item("a.jpg")
	name := "insp-7/" + i.CapturedAt.Format("2006-01-02") + "/" + string(i.ID) + "-a.jpg"
	s.set(func() {
		if string(s.files["/"+name]) != string(content) || len(s.files) != 2 {
			t.Errorf("stored under %d names, want %s", len(s.files), name)
		}
		if len(s.hooks) != 2 || s.hooks[0]["grade"] != string(receipt.VerifiedDigest) {
			t.Errorf("the webhook heard %v", s.hooks)
		}
		if len(s.auth) != 2 || !s.auth["Basic dXNlcjpwYXNzIHdvcmQ="] { // and none at the webhook
			t.Errorf("authorized by %v", s.auth)
		}
	})
	if i.Grade != receipt.Registered {
		t.Errorf("grade %s", i.Grade)
	}
}

// A device that stops leaves no connection behind, not at the webhook either.
func TestWebhookIsLeft(t *testing.T) {
	d, s := newWebDevice(t, "webhook = \"SERVER/hook\"\n")
	d.up()
	d.drop("a.jpg", 1000)
	d.delivered("a.jpg")
	d.down()
	d.until("no connection is open", func() (none bool) {
		s.set(func() { none = len(s.conns) == 0 })
		return none
	})
}

// Without a webhook what a web server has is sent and not delivered. A transfer that nothing can resume says so, and a pause
// begins it anew.
func TestWebServerRestarts(t *testing.T) {
	d, s := newWebDevice(t, "")
	s.hold = make(chan struct{})
	d.up()
	content := d.drop("a.jpg", 300_000)
	d.until("under way", func() bool { return d.item("a.jpg").Condition == attachment.ShownUploading })
	if i := d.item("a.jpg"); !i.Restarts || i.ConfirmedBytes != nil {
		t.Errorf("%+v", i)
	}
	act := func(verb client.Verb) {
		_, err := d.client.Act(context.Background(), verb, control.Action{IDs: []attachment.ID{d.item("a.jpg").ID}})
		must(t, err)
	}
	act(client.Pause)
	d.until("paused", func() bool {
		return d.item("a.jpg").Condition == attachment.ShownPaused && d.item("a.jpg").State == attachment.Ready
	})
	s.set(func() { close(s.hold); s.hold = nil })
	act(client.Resume)
	d.sent("a.jpg")
	i := d.item("a.jpg")
	if i.Grade != receipt.VerifiedDigest || i.Restarts || i.LocalCopy != control.CopySpool {
		t.Errorf("%+v", i)
	}
	s.set(func() {
		for _, held := range s.files {
			if string(held) != string(content) {
				t.Errorf("%d bytes are stored", len(held))
			}
		}
	})
	kept, err := filepath.Glob(filepath.Join(d.dir, "state", "accounts", "plant", "receipts", "*"))
	if err != nil || len(kept) != 1 {
		t.Errorf("receipts %v, %v", kept, err)
	}
}
