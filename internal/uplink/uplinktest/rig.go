package uplinktest

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/fieldgw"
)

// Rig is a device's client and a server, joined by a network.
type Rig struct {
	Server     *Server
	Network    *Network
	Credential *Credential
	Client     *remote.Client
	Driver     uplink.Driver
}

// Start makes a rig that ends with the test. Options may change the client's.
func Start(t testing.TB, change ...func(*remote.Options)) *Rig {
	t.Helper()
	r := &Rig{Server: NewServer(), Network: &Network{}, Credential: &Credential{text: Token}}
	web := &http.Server{Handler: r.Server, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	ended, l := make(chan error, 1), r.Network.Listener()
	go func() { ended <- web.Serve(l) }()
	r.Client = r.NewClient(t, change...)
	r.Driver = fieldgw.New(r.Client)
	t.Cleanup(func() {
		r.Server.Release()
		r.Client.CloseIdle()
		if err := web.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return r
}

// NewClient makes another client of the same server and device.
func (r *Rig) NewClient(t testing.TB, change ...func(*remote.Options)) *remote.Client {
	t.Helper()
	o := remote.Options{
		Endpoint: "http://127.0.0.1/", Credential: r.Credential, UserAgent: "uplinktest",
		Logger: slog.New(slog.DiscardHandler), Dial: r.Network.Dial,
	}
	for _, f := range change {
		f(&o)
	}
	c, err := remote.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

// Uplink makes an uplink over the rig's driver with fixed chunks.
func (r *Rig) Uplink(t testing.TB, chunk int64) *uplink.Uplink {
	t.Helper()
	u, err := uplink.New(uplink.Options{
		Driver: r.Driver, ChunkMax: chunk, ChunkFloor: chunk / 8, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Credential is a token in memory. It implements remote.Credential.
type Credential struct {
	mu    sync.Mutex
	text  string
	err   error
	stamp int
	reads int
}

// Set replaces the token; quietly means that the stamp does not show it.
func (c *Credential) Set(text string, err error, quietly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text, c.err = text, err
	if !quietly {
		c.stamp++
	}
}

// Read implements remote.Credential.
func (c *Credential) Read() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return c.text, c.err
}

// Stamp implements remote.Credential.
func (c *Credential) Stamp() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strconv.Itoa(c.stamp)
}

// Reads is how often the token was read.
func (c *Credential) Reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}
