package remote_test

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
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

// listening takes connections until the test ends.
func listening(t *testing.T, serve func(net.Conn) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if err := serve(conn); err != nil && !errors.Is(err, io.EOF) {
					t.Logf("proxy: %v", err)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// join moves bytes both ways until one side ends.
func join(client io.ReadWriter, address string) error {
	server, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer server.Close()
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(server, client); ended <- err }()
	go func() { _, err := io.Copy(client, server); ended <- err }()
	return <-ended
}

// connectProxy speaks CONNECT (RFC 9110, 9.3.6); refuse, if not 0, is its answer to everything.
func connectProxy(t *testing.T, password string, refuse *atomic.Int64, used *atomic.Int64) func(net.Conn) error {
	return func(conn net.Conn) error {
		in := bufio.NewReader(conn)
		r, err := http.ReadRequest(in)
		if err != nil {
			return err
		}
		used.Add(1)
		status := int(refuse.Load())
		given := strings.TrimPrefix(r.Header.Get("Proxy-Authorization"), "Basic ")
		if status == 0 && password != "" && given != base64.StdEncoding.EncodeToString([]byte(password)) {
			status = http.StatusProxyAuthRequired
		}
		if r.Header.Get("Authorization") != "" {
			t.Error("the proxy was shown the token")
		}
		if status != 0 {
			_, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n", status, http.StatusText(status))
			return err
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return err
		}
		return join(struct {
			io.Reader
			io.Writer
		}{in, conn}, r.Host)
	}
}

// socksProxy speaks SOCKS5 (RFC 1928) with user and password (RFC 1929); code, if not 0, is its refusal to connect.
func socksProxy(_ *testing.T, password string, code *atomic.Int64, used *atomic.Int64) func(net.Conn) error {
	return func(conn net.Conn) error {
		in := bufio.NewReader(conn)
		head := make([]byte, 2)
		if _, err := io.ReadFull(in, head); err != nil {
			return err
		}
		methods := make([]byte, head[1])
		if _, err := io.ReadFull(in, methods); err != nil {
			return err
		}
		used.Add(1)
		method := byte(0)
		if password != "" {
			method = 0xff
			if strings.ContainsRune(string(methods), 2) {
				method = 2
			}
		}
		if _, err := conn.Write([]byte{5, method}); err != nil || method == 0xff {
			return err
		}
		if method == 2 {
			given, err := readUser(in)
			status := byte(0)
			if given != password {
				status = 1
			}
			if _, werr := conn.Write([]byte{1, status}); err != nil || werr != nil || status != 0 {
				return errors.Join(err, werr)
			}
		}
		request := make([]byte, 10) // version, command, 0, IPv4, address, port
		if _, err := io.ReadFull(in, request); err != nil {
			return err
		}
		reply := byte(code.Load())
		if _, err := conn.Write([]byte{5, reply, 0, 1, 0, 0, 0, 0, 0, 0}); err != nil || reply != 0 {
			return err
		}
		to := net.TCPAddr{IP: request[4:8], Port: int(request[8])<<8 | int(request[9])}
		return join(struct {
			io.Reader
			io.Writer
		}{in, conn}, to.String())
	}
}

func readUser(in *bufio.Reader) (string, error) {
	var parts []string
	if _, err := in.Discard(1); err != nil {
		return "", err
	}
	for range 2 {
		n, err := in.ReadByte()
		if err != nil {
			return "", err
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(in, text); err != nil {
			return "", err
		}
		parts = append(parts, string(text))
	}
	return strings.Join(parts, ":"), nil
}

// tlsServer is a server on this machine, and the path of its certificate.
func tlsServer(t *testing.T, change ...func(*tls.Config)) (server *httptest.Server, ca string) {
	t.Helper()
	cert, pem := certificate(t, time.Now().Add(time.Hour), "127.0.0.1")
	server = httptest.NewUnstartedServer(uplinktest.NewServer())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	for _, f := range change {
		f(server.TLS)
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	return server, ca
}

// Every kind of proxy carries calls and appends. A refused password is the operator's matter and says so, one that is
// replaced is used at once, and a proxy that cannot reach the server is a link that is down.
func TestProxies(t *testing.T) {
	const password = "field:s3cret/+:word"
	for scheme, make := range map[string]func(*testing.T, string, *atomic.Int64, *atomic.Int64) func(net.Conn) error{
		"http": connectProxy, "https": connectProxy, "socks5": socksProxy, "socks5h": socksProxy,
	} {
		t.Run(scheme, func(t *testing.T) {
			server, ca := tlsServer(t)
			var refuse, used atomic.Int64
			serve := make(t, password, &refuse, &used)
			if scheme == "https" {
				plain := serve
				serve = func(conn net.Conn) error { return plain(tls.Server(conn, server.TLS)) }
			}
			proxy := listening(t, serve)
			token, secret := &uplinktest.Credential{}, &uplinktest.Credential{}
			token.Set(uplinktest.Token, nil, false)
			secret.Set("field:wrong", nil, false)
			c, err := remote.New(remote.Options{
				Endpoint: server.URL, CAFile: ca, Credential: token, Logger: slog.New(slog.DiscardHandler),
				Proxy: scheme + "://" + proxy, ProxyCredential: secret,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.CloseIdle)
			refused := func(what string, reason attachment.Code, class remote.Class) {
				t.Helper()
				e, ok := errors.AsType[*remote.Error](c.Probe(t.Context()))
				if !ok || e.Reason != reason || e.Class != class || e.Charge || strings.Contains(e.Error(), "s3cret") {
					t.Errorf("%s: %+v", what, e)
				}
			}
			refused("wrong password", attachment.HoldProxy, remote.ChannelOperator)
			secret.Set("nonsense", nil, false)
			if !c.CredentialChanged() {
				t.Error("not changed")
			}
			refused("no password", attachment.HoldProxy, remote.ChannelOperator)
			secret.Set("", os.ErrPermission, false)
			refused("unreadable", attachment.HoldProxy, remote.ChannelOperator)
			secret.Set(password, nil, false)
			if err := c.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err = patch(t, c, []byte(strings.Repeat("x", 200<<10)))
			failed(t, err, remote.KindProblem)
			if used.Load() == 0 {
				t.Error("went past the proxy")
			}
			c.CloseIdle()
			unreachable := int64(http.StatusBadGateway)
			if strings.HasPrefix(scheme, "socks") {
				unreachable = 4 // host unreachable
			}
			refuse.Store(unreachable)
			refused("server unreachable", attachment.HoldOffline, remote.ChannelTransient)
		})
	}
}

// A proxy that is configured so that something could leak makes no client, and "none" goes past the environment's.
func TestProxyOptions(t *testing.T) {
	for _, c := range []struct{ endpoint, proxy string }{
		{"https://gw.example", "http://user:password@proxy:1"}, {"https://gw.example", "ftp://proxy"}, {"https://gw.example", "proxy:3128"},
		{"https://gw.example", "http://proxy/path"}, {"http://127.0.0.1:1", "http://proxy:1"}, {"https://gw.example", "http://"},
	} {
		_, err := remote.New(remote.Options{
			Endpoint: c.endpoint, Proxy: c.proxy, Credential: &uplinktest.Credential{}, Logger: slog.New(slog.DiscardHandler),
		})
		if !errors.Is(err, remote.ErrBadOptions) || strings.Contains(err.Error(), "password@") {
			t.Errorf("%s through %s: %v", c.endpoint, c.proxy, err)
		}
	}
	for _, good := range []string{"none", "http://proxy", "https://proxy:1", "socks5://[::1]:1080/", ""} {
		_, err := remote.New(remote.Options{
			Endpoint: "https://gw.example", Proxy: good, Credential: &uplinktest.Credential{}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

// nothingButHTTP answers like a web server that was sent TLS.
func nothingButHTTP(conn net.Conn) error {
	if _, err := conn.Read(make([]byte, 4096)); err != nil {
		return err
	}
	_, err := io.WriteString(conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	return err
}
