package remote_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

// identity is the device's certificate in two files, each replaced by a rename.
type identity struct{ cert, key string }

func newIdentity(t *testing.T) identity {
	dir := t.TempDir()
	return identity{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

func replace(t *testing.T, path string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// install makes a certificate for a name and returns its key in PEM.
func (i identity) install(t *testing.T, name string, until time.Time) []byte {
	t.Helper()
	pair, chain := certificate(t, until, name)
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	replace(t, i.key, key, 0o600)
	replace(t, i.cert, chain, 0o644)
	return key
}

// The device shows its certificate. A new one is used for the next request, half a new one is not, and one that expired, is
// readable by others or is missing holds the channel with a reason of its own.
func TestClientCertificate(t *testing.T) {
	var seen atomic.Value
	server, ca := tlsServer(t, func(conf *tls.Config) {
		conf.ClientAuth = tls.RequireAnyClientCert
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			seen.Store(s.PeerCertificates[0].DNSNames[0])
			return nil
		}
	})
	id := newIdentity(t)
	client := func() *remote.Client {
		token := &uplinktest.Credential{}
		token.Set(uplinktest.Token, nil, false)
		c, err := remote.New(remote.Options{
			Endpoint: server.URL, CAFile: ca, CertFile: id.cert, KeyFile: id.key, Credential: token, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdle)
		return c
	}
	held := func(c *remote.Client, what string) {
		t.Helper()
		e := failed(t, c.Probe(t.Context()), remote.KindCertificate)
		if e.Class != remote.ChannelOperator || e.Reason != attachment.HoldCertificate || e.Charge || strings.Contains(e.Error(), "PRIVATE") {
			t.Errorf("%s: %+v", what, e)
		}
	}
	shown := func(c *remote.Client, want string) {
		t.Helper()
		if err := c.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := seen.Load(); got != want {
			t.Errorf("the server saw %v, want %s", got, want)
		}
	}
	c := client()
	held(c, "missing")
	tomorrow := time.Now().Add(24 * time.Hour)
	id.install(t, "tablet-1", tomorrow)
	if !c.CredentialChanged() {
		t.Error("not changed")
	}
	shown(c, "tablet-1")
	oldKey := id.install(t, "tablet-2", tomorrow)
	shown(c, "tablet-2")
	_, chain := certificate(t, tomorrow, "tablet-3")
	replace(t, id.cert, chain, 0o644) // its key is not there yet
	shown(c, "tablet-2")
	id.install(t, "tablet-4", tomorrow)
	shown(c, "tablet-4")
	id.install(t, "tablet-5", time.Now().Add(-time.Hour))
	held(c, "expired")
	id.install(t, "tablet-6", tomorrow)
	shown(c, "tablet-6")
	replace(t, id.key, oldKey, 0o644)
	held(client(), "exposed")
}

// A server that wants another certificate ends the connection; that is not a link that is down.
func TestRefusedCertificate(t *testing.T) {
	_, other := certificate(t, time.Now().Add(time.Hour), "ca")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(other)
	server, ca := tlsServer(t, func(conf *tls.Config) { conf.ClientAuth, conf.ClientCAs = tls.RequireAndVerifyClientCert, pool })
	id := newIdentity(t)
	id.install(t, "tablet-1", time.Now().Add(time.Hour))
	token := &uplinktest.Credential{}
	token.Set(uplinktest.Token, nil, false)
	for name, o := range map[string]remote.Options{"unknown": {CertFile: id.cert, KeyFile: id.key}, "none": {}} {
		o.Endpoint, o.CAFile, o.Credential, o.Logger = server.URL, ca, token, slog.New(slog.DiscardHandler)
		c, err := remote.New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdle)
		e := failed(t, c.Probe(t.Context()), remote.KindCertificate)
		if e.Class != remote.ChannelOperator {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if _, err := remote.New(remote.Options{
		Endpoint: server.URL, CertFile: id.cert, Credential: token, Logger: slog.New(slog.DiscardHandler),
	}); !errors.Is(err, remote.ErrBadOptions) {
		t.Errorf("without its key: %v", err)
	}
}

// What does not speak TLS at an https address is another server, and not a link that is down.
func TestPlainServer(t *testing.T) {
	plain := listening(t, nothingButHTTP)
	token := &uplinktest.Credential{}
	token.Set(uplinktest.Token, nil, false)
	c, err := remote.New(remote.Options{Endpoint: "https://" + plain, Credential: token, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if e := failed(t, c.Probe(t.Context()), remote.KindForeign); e.Reason != attachment.HoldNotOurServer {
		t.Errorf("%+v", e)
	}
}
