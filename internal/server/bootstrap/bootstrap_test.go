package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// The certificate is made once, is accepted for the loopback names by a client that trusts it, and its key is private.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key, err := Certificate(durable.OS(), dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("key: %v, %v", info, err)
	}
	before, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Certificate(durable.OS(), dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(cert); err != nil || string(after) != string(before) {
		t.Fatalf("the certificate changed (%v)", err)
	}
	conf, err := TLS(cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(before) {
		t.Fatal("no certificate in the file")
	}
	for _, name := range []string{"127.0.0.1", "::1", "localhost"} {
		client, server := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- tls.Server(server, conf).HandshakeContext(t.Context()) }()
		conn := tls.Client(client, &tls.Config{RootCAs: roots, ServerName: name, NextProtos: []string{"h2", "http/1.1"}})
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("%s: protocol %q", name, got)
		}
		if err := errors.Join(<-ended, client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	}
	block, _ := pem.Decode(before)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil || parsed.VerifyHostname("example.org") == nil {
		t.Errorf("the certificate is good for another name (%v)", err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Certificate(durable.OS(), dir, time.Now()); !errors.Is(err, ErrKeyMissing) {
		t.Errorf("without its key: %v", err)
	}
}

func newAdmin(t *testing.T, dir string) *admin.Admin {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	records, err := store.OpenEmbedded(filepath.Join(dir, "server.db"), durable.OS(), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	return admin.New(records, nil, time.Now, log) // tokens need no files
}

// Wherever the first start stops, the next one ends with one valid token whose text is in its file, and a whole pair of
// certificate and key.
func TestFirstStartStopsAnywhere(t *testing.T) {
	for n := 0; ; n++ {
		dir := t.TempDir()
		a := newAdmin(t, dir)
		count, hit := 0, false
		broken := durable.Hooked(func(durable.Call) error {
			if count++; count > n {
				hit = true
				return unix.EIO // and everything after it: the process is dead
			}
			return nil
		})
		if _, _, err := Certificate(broken, dir, time.Now()); err == nil {
			_, err = Token(t.Context(), broken, dir, a)
			if (err != nil) != hit {
				t.Fatalf("stop after %d: %v", n, err)
			}
		}
		cert, key, err := Certificate(durable.OS(), dir, time.Now())
		if err != nil {
			t.Fatalf("stop after %d: %v", n, err)
		}
		if _, err := TLS(cert, key, nil); err != nil {
			t.Errorf("stop after %d: %v", n, err)
		}
		for range 2 {
			checkToken(t, dir, a)
		}
		if !hit {
			if n < 10 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
	}
}

func checkToken(t *testing.T, dir string, a *admin.Admin) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	path, err := Token(ctx, durable.OS(), dir, a)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	token, err := wire.ParseToken(strings.TrimSuffix(string(text), "\n"))
	if err != nil || token.Account != Account || token.Device != Device {
		t.Fatalf("%s, %v", token, err)
	}
	all, err := a.Tokens(ctx)
	if err != nil || len(all) != 1 || all[0].ID != store.HashToken(token.Text()).ID() {
		t.Fatalf("%+v, %v", all, err)
	}
}

// A server whose tokens an operator made gets no token of its own.
func TestNoTokenBesideOthers(t *testing.T) {
	dir := t.TempDir()
	a := newAdmin(t, dir)
	if _, err := a.CreateToken(t.Context(), admin.TokenRequest{Account: "acme", Device: "d"}); err != nil {
		t.Fatal(err)
	}
	path, err := Token(t.Context(), durable.OS(), dir, a)
	if err != nil || path != "" {
		t.Fatalf("%q, %v", path, err)
	}
}
