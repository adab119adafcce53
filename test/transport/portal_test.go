package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/wire"
	"github.com/fieldgw/fieldgw/test/rig"
)

// impostor stands at the server's address.
type impostor struct {
	asked atomic.Int64
	close func()
}

// stand puts a handler in the server's place, with the server's certificate unless another is given; plain is without TLS.
func (s *scene) stand(handler http.HandlerFunc, cert *tls.Certificate, plain bool) *impostor {
	s.t.Helper()
	if s.Server().Running() {
		must(s.t, "stop server", s.StopServer())
	}
	u, err := url.Parse(s.ServerURL())
	must(s.t, "read address", err)
	l, err := net.Listen("tcp", u.Host)
	must(s.t, "listen in the server's place", err)
	if cert == nil {
		pair, err := tls.LoadX509KeyPair(s.Path("server", "tls", "cert.pem"), s.Path("server", "tls", "key.pem"))
		must(s.t, "load the server's certificate", err)
		cert = &pair
	}
	i := &impostor{}
	web := &http.Server{
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { i.asked.Add(1); handler(w, r) }),
		ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}},
	}
	if plain {
		go func() { _ = web.Serve(l) }()
	} else {
		go func() { _ = web.ServeTLS(l, "", "") }()
	}
	i.close = func() { _ = web.Close() }
	s.t.Cleanup(i.close)
	return i
}

// leave takes the impostor away and starts the server again.
func (s *scene) leave(i *impostor) {
	s.t.Helper()
	i.close()
	must(s.t, "start server", s.StartServer(s.t.Context()))
}

// selfSigned makes a certificate for this machine, with a URI of a device if one is given, and its parts in PEM.
func selfSigned(t *testing.T, uri string, until time.Time, more ...net.IP) (pair tls.Certificate, cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, "make key", err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, NotBefore: until.Add(-48 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: append(more, net.IPv4(127, 0, 0, 1)),
	}
	if uri != "" {
		u, err := url.Parse(uri)
		must(t, "read URI", err)
		template.URIs = []*url.URL{u}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	must(t, "make certificate", err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, "encode key", err)
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	pair, err = tls.X509KeyPair(cert, key)
	must(t, "join certificate and key", err)
	return pair, cert, key
}

// Whatever answers in our server's place, it is named for what it is, nothing is confirmed and nothing charged, and sending
// goes on by itself when the server is back.
func TestImpostors(t *testing.T) {
	answer := func(status int, header map[string]string, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for k, v := range header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	html := map[string]string{"Content-Type": "text/html"}
	other, _, _ := selfSigned(t, "", time.Now().Add(time.Hour))
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		cert    *tls.Certificate
		plain   bool
		code    attachment.Code
		detail  string
	}{
		{"portal, 200", answer(200, html, "<html>sign in"), nil, false, attachment.HoldNotOurServer, "text/html"},
		{"portal, 302", answer(302, map[string]string{"Location": "http://portal.example/login"}, ""), nil, false, attachment.HoldNotOurServer, "portal.example"},
		{"portal, 307", answer(307, map[string]string{"Location": "/login"}, ""), nil, false, attachment.HoldNotOurServer, ""},
		{"portal, 511", answer(511, html, "<html>sign in"), nil, false, attachment.HoldNotOurServer, "text/html"},
		{"portal with a certificate of its own", answer(200, html, ""), &other, false, attachment.HoldTLS, ""},
		{"portal without TLS", answer(200, html, ""), nil, true, attachment.HoldNotOurServer, "TLS"},
		{"another web server", answer(404, map[string]string{"Server": "nginx", "Content-Type": "text/html"}, "404"), nil, false, attachment.HoldNotOurServer, ""},
		{"another server of uploads", answer(204, map[string]string{"Tus-Resumable": "1.0.0", "Upload-Offset": "99999999"}, ""), nil, false, attachment.HoldNotOurServer, ""},
		{"fieldgw of another version", answer(200, map[string]string{wire.HeaderProtocol: "2", "Content-Type": "application/json"},
			`{"service":"fieldgw","protocol":2}`), nil, false, attachment.HoldNotOurServer, "version 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, rig.Options{Uplink: `chunk_size = "128KiB"`})
			must(t, "start", s.StartDaemon(t.Context()))
			s.Link.CutAfter(400 << 10) // in the midst of the file
			s.drop("a.jpg", 1<<20)
			must(t, "wait for the cut", s.Link.Wait(t.Context(), "cut"))
			i := s.stand(c.handler, c.cert, c.plain)
			s.Link.Restore()
			w := s.held(c.code)
			if w.Message == "" || len(w.Unblock) == 0 || !strings.Contains(w.Detail, c.detail) {
				t.Errorf("told: %+v", w)
			}
			if c.cert == nil && !c.plain && i.asked.Load() == 0 {
				t.Error("nobody asked")
			}
			if shown := s.item("a.jpg"); shown.Condition == attachment.ShownDelivered || shown.ConfirmedBytes != nil && *shown.ConfirmedBytes > 400<<10 {
				t.Errorf("shown: %+v", shown)
			}
			s.leave(i)
			s.delivered("a.jpg")
			s.uncharged("a.jpg", 1)
			if channel := s.status().Sending.Channel; channel != nil {
				t.Errorf("still held: %+v", channel)
			}
		})
	}
}
