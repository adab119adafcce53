package remote_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

const nextToken = "fgw1.plant.tablet-1.b3RoZXItc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM"

// ask is a request that needs a token; the server does not know what is asked for.
func ask(t *testing.T, c *remote.Client) error {
	t.Helper()
	_, err := c.Do(t.Context(), remote.Request{Step: remote.StepVerify, Method: http.MethodGet, Path: "v1/attachments/none"})
	if e, ok := errors.AsType[*remote.Error](err); ok && e.Gone() {
		return nil
	}
	return err
}

// A refused credential is read again once. If it was replaced, the request is sent again, with its body from the
// beginning; else the channel is held. A token that expires in mid-transfer costs nothing.
func TestCredentialIsReadAgain(t *testing.T) {
	rig := uplinktest.Start(t)
	if err := ask(t, rig.Client); err != nil {
		t.Fatal(err)
	}
	rig.Server.SetToken(nextToken)
	e := failed(t, ask(t, rig.Client), remote.KindProblem)
	if e.Class != remote.ChannelOperator || e.Reason != attachment.HoldCredentials || rig.Server.Count(remote.StepVerify) != 2 {
		t.Errorf("not replaced: %+v, %d requests", e, rig.Server.Count(remote.StepVerify))
	}
	if rig.Client.CredentialChanged() {
		t.Error("changed, and nothing was")
	}
	rig.Credential.Set(nextToken, nil, true) // a clock that stands still: the stamp does not show it
	_, err := patch(t, rig.Client, make([]byte, 200<<10))
	if e := failed(t, err, remote.KindProblem); e.Status != http.StatusPreconditionFailed {
		t.Errorf("replaced in mid-transfer: %v", e)
	}
	reads := rig.Credential.Reads()
	if err := ask(t, rig.Client); err != nil {
		t.Error(err)
	}
	if rig.Credential.Reads() != reads {
		t.Error("the credential is read for every request")
	}
	rig.Server.SetToken(uplinktest.Token)
	rig.Credential.Set(uplinktest.Token, nil, false)
	if !rig.Client.CredentialChanged() {
		t.Error("not changed")
	}
	before := rig.Server.Count(remote.StepVerify)
	if err := ask(t, rig.Client); err != nil || rig.Server.Count(remote.StepVerify) != before+1 {
		t.Errorf("replaced before it was refused: %v", err)
	}
}

// A missing or damaged credential holds the channel, and nothing is sent without one.
func TestNoCredential(t *testing.T) {
	rig := uplinktest.Start(t)
	for _, c := range []struct {
		text string
		err  error
	}{{"", os.ErrNotExist}, {"not a token", nil}, {"", nil}} {
		rig.Credential.Set(c.text, c.err, false)
		e := failed(t, ask(t, rig.Client), remote.KindCredential)
		if e.Class != remote.ChannelOperator || e.Reason != attachment.HoldCredentialUnusable || e.Charge {
			t.Errorf("%q: %+v", c.text, e)
		}
	}
	if n := len(rig.Server.Calls()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// The token reaches no other host, no log and no error.
func TestTokenStaysSecret(t *testing.T) {
	var log bytes.Buffer
	secret := "Zmlyc3Qtc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM"
	rig := uplinktest.Start(t, func(o *remote.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	var errs []error
	for _, act := range []uplinktest.Act{
		nil, uplinktest.Refuse(401, wire.CodeCredentials, nil), uplinktest.Refuse(403, wire.CodeForbidden, nil), uplinktest.Cut(0),
		uplinktest.Foreign(302, http.Header{"Location": {"http://portal.example/?" + secret}}, ""), uplinktest.Foreign(200, nil, secret),
	} {
		if act != nil {
			rig.Server.Inject(uplinktest.Fault{Step: remote.StepVerify, Act: act, Times: 2})
		}
		errs = append(errs, ask(t, rig.Client))
		rig.Server.Heal()
	}
	rig.Server.Inject(uplinktest.Fault{Step: remote.StepVerify, Act: uplinktest.Refuse(401, wire.CodeCredentials, nil)})
	rig.Credential.Set(nextToken, nil, true)
	errs = append(errs, ask(t, rig.Client))
	rig.Network.Down(true)
	errs = append(errs, ask(t, rig.Client))
	text := log.String()
	if !strings.Contains(text, "credential") {
		t.Error("nothing was logged")
	}
	for _, err := range errs {
		if err != nil {
			text += err.Error() + "\n"
		}
	}
	for _, part := range []string{secret, "bmV4dA", "Bearer", "fgw1"} {
		if strings.Contains(text, part) {
			t.Errorf("%q in %s", part, text)
		}
	}
	for _, c := range rig.Server.Calls() {
		if !strings.HasPrefix(c.Header.Get("Authorization"), "Bearer fgw1.plant.tablet-1.") || c.Header.Get("User-Agent") != "uplinktest" {
			t.Errorf("header %v", c.Header)
		}
	}
}

// certificate makes one that signs itself.
func certificate(t *testing.T, until time.Time, host string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: until.Add(-48 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Over real TLS: a certificate of the CA file is accepted, and an unknown, expired or wrong one is the operator's matter.
func TestTLS(t *testing.T) {
	tomorrow := time.Now().Add(24 * time.Hour)
	for name, c := range map[string]struct {
		until time.Time
		host  string
		known bool
		kind  remote.Kind
	}{
		"good":         {tomorrow, "127.0.0.1", true, ""},
		"unknown":      {tomorrow, "127.0.0.1", false, remote.KindTLS},
		"expired":      {tomorrow.Add(-36 * time.Hour), "127.0.0.1", true, remote.KindTLS},
		"another name": {tomorrow, "gw.example", true, remote.KindTLS},
	} {
		t.Run(name, func(t *testing.T) {
			cert, ca := certificate(t, c.until, c.host)
			server := httptest.NewUnstartedServer(uplinktest.NewServer())
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
			server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
			server.StartTLS()
			t.Cleanup(server.Close)
			if !c.known {
				_, ca = certificate(t, c.until, c.host)
			}
			path := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(path, ca, 0o600); err != nil {
				t.Fatal(err)
			}
			token := &uplinktest.Credential{}
			token.Set(uplinktest.Token, nil, false)
			client, err := remote.New(remote.Options{Endpoint: server.URL, CAFile: path, Credential: token, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.CloseIdle)
			err = client.Probe(t.Context())
			if c.kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				_, err := patch(t, client, make([]byte, 4<<20))
				failed(t, err, remote.KindProblem)
				return
			}
			if e := failed(t, err, c.kind); e.Class != remote.ChannelOperator || e.Reason != attachment.HoldTLS {
				t.Errorf("%+v", e)
			}
		})
	}
}

// A CA file that is missing or holds no certificate is found out before anything is sent.
func TestCAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	options := remote.Options{
		Endpoint: "https://gw.example", CAFile: path, Credential: &uplinktest.Credential{}, Logger: slog.New(slog.DiscardHandler),
	}
	if _, err := remote.New(options); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if err := os.WriteFile(path, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.New(options); !errors.Is(err, remote.ErrBadOptions) {
		t.Errorf("empty: %v", err)
	}
}
