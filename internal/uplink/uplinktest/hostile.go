package uplinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// Kind is a kind of server in memory, and how a device speaks to it.
type Kind struct {
	Name string
	// Serve makes a new server, and says what it holds of an attachment.
	Serve func(t testing.TB) (server http.Handler, stored func(m *attachment.Manifest) []byte)
	// Bare: an answer needs no mark to be one of this protocol.
	Bare bool
	// Refuse answers with a status in the protocol of this kind.
	Refuse func(w http.ResponseWriter, r *http.Request, status int)
	// Options of the client, such as its protocol.
	Options func(o *remote.Options)
	Driver  func(client *remote.Client) uplink.Driver
	// Size of the content and of a chunk, in bytes.
	Size int
	// Chunk is the largest.
	Chunk int64
}

// Hostile delivers one attachment again and again, each time with another mischief at another request, and demands that it
// arrives as it is once the mischief is over, that nothing is recorded that the server did not say, and that only a refusal in
// the server's own protocol needs a person. Each delivery has a new server, an in-memory network and fake time.
func Hostile(t *testing.T, k Kind) {
	requests := 0
	synctest.Test(t, func(t *testing.T) { requests = k.run(t, mischief{}, -1).requests })
	if requests < 2 {
		t.Fatalf("a delivery takes %d requests", requests)
	}
	var deliveries, losses, parked int
	for _, m := range k.mischiefs() {
		for at := range requests {
			t.Run(fmt.Sprintf("%s at request %d", m.name, at+1), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := k.run(t, m, at)
					deliveries, losses = deliveries+1, losses+got.losses
					if got.parked {
						parked++
					}
					if got.parked && !m.refusal {
						t.Errorf("needs a person because of %s", m.name)
					}
				})
			})
		}
	}
	t.Logf("| %s | %d requests | %d mischiefs | %d deliveries | %d began anew | %d needed a person |",
		k.Name, requests, len(k.mischiefs()), deliveries, losses, parked)
}

// outcome is what came of one delivery.
type outcome struct {
	requests, losses int
	parked           bool
}

// maxRuns bounds the deliveries after a mischief, each with its wait.
const maxRuns = 30

func (k Kind) run(t *testing.T, m mischief, at int) outcome {
	server, stored := k.Serve(t)
	meddler := &meddler{next: server, act: m.act, at: at, released: make(chan struct{})}
	network := &Network{}
	web := &http.Server{Handler: meddler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	ended, l := make(chan error, 1), network.Listener()
	go func() { ended <- web.Serve(l) }()
	o := remote.Options{
		Endpoint: "http://127.0.0.1/", Credential: &Credential{text: Token}, UserAgent: "uplinktest",
		Logger: slog.New(slog.DiscardHandler), Dial: network.Dial,
	}
	if k.Options != nil {
		k.Options(&o)
	}
	client, err := remote.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		close(meddler.released)
		client.CloseIdle()
		if err := web.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}()
	up, err := uplink.New(uplink.Options{Driver: k.Driver(client), ChunkMax: k.Chunk, ChunkFloor: k.Chunk / 8, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	content := Content(uint64(at)+7, k.Size)
	manifest := NewManifest(t, content)
	payload, rec := NewPayload(t, content), NewRecorder(manifest)
	out := deliverUntil(t, up, manifest, payload, rec)
	out.requests = meddler.served()
	if held := stored(manifest); !bytes.Equal(held, content) {
		t.Errorf("the server holds %d bytes that are not the content of %d", len(held), len(content))
	}
	return out
}

// deliverUntil is what the daemon does: deliver, wait, deliver again; a person who is needed says retry.
func deliverUntil(t *testing.T, up *uplink.Uplink, manifest *attachment.Manifest, payload *Payload, rec *Recorder) (out outcome) {
	t.Helper()
	for run := 0; ; run++ {
		m, confirmed := rec.Manifest(manifest)
		m.Delivery.Failures = run
		err := up.Deliver(context.WithoutCancel(t.Context()), m, confirmed, payload, &Gate{}, rec)
		for _, broken := range Broken(rec, payload) {
			t.Error(broken)
		}
		if err == nil {
			break
		}
		switch class := remote.ClassOf(err); class {
		case remote.ItemPermanent:
			out.parked = true
		case remote.ItemTransient, remote.ChannelTransient, remote.ChannelOperator:
		default:
			t.Fatalf("class %q of %v", class, err)
		}
		if run == maxRuns {
			t.Fatalf("does not arrive: %v", err)
		}
		time.Sleep(time.Minute)
	}
	seen := rec.Seen()
	if seen.Receipt == nil {
		t.Fatal("ended well without a receipt")
	}
	out.losses = seen.Losses
	return out
}

// meddler stands before a server and does one mischief.
type meddler struct {
	next     http.Handler
	act      act
	at       int
	released chan struct{}

	mu   sync.Mutex
	n    int
	late func() // what a mischief left to be done two requests later
	due  int
}

func (m *meddler) served() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}

// ServeHTTP implements http.Handler.
func (m *meddler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	mine := m.n
	m.n++
	var late func()
	if m.late != nil && mine >= m.due {
		late, m.late = m.late, nil
	}
	m.mu.Unlock()
	if late != nil {
		late()
	}
	if mine == m.at && m.act != nil {
		m.act(m, w, r)
		return
	}
	m.next.ServeHTTP(w, r)
}

// later has f done before the request after the next is served.
func (m *meddler) later(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late, m.due = f, m.n+1
}
