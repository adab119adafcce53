package transport

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/wire"
	"github.com/fieldgw/fieldgw/test/rig"
)

// formsOf are the ways in which a secret may be written down.
func formsOf(secret string) map[string][]byte {
	return map[string][]byte{
		"raw": []byte(secret), "base64": []byte(base64.StdEncoding.EncodeToString([]byte(secret))),
		"base64url": []byte(base64.RawURLEncoding.EncodeToString([]byte(secret))), "URL": []byte(url.QueryEscape(secret)),
		"hex": []byte(hex.EncodeToString([]byte(secret))),
	}
}

// secrets are what must not be found, by what it is.
type secrets map[string]string

// in returns which secrets stand in data.
func (s secrets) in(data []byte) (found []string) {
	for name, secret := range s {
		for form, text := range formsOf(secret) {
			if bytes.Contains(data, text) {
				found = append(found, name+" ("+form+")")
			}
		}
	}
	return found
}

// inTree looks at every file below dir but those that hold a secret by their nature, and returns how many it looked at.
func (s secrets) inTree(t *testing.T, dir string, except ...string) (files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		for _, x := range except {
			if path == x {
				return nil
			}
		}
		data, err := os.ReadFile(path)
		if found := s.in(data); len(found) > 0 {
			t.Errorf("%s holds %v", path, found)
		}
		files++
		return err
	})
	must(t, "read files", err)
	return files
}

// connectProxy speaks CONNECT and asks for a password; it answers a wrong one with everything that it was sent.
func connectProxy(t *testing.T, password *atomic.Value, refused *atomic.Int64) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, "listen", err)
	t.Cleanup(func() { _ = l.Close() })
	serve := func(conn net.Conn) error {
		defer conn.Close()
		in := bufio.NewReader(conn)
		r, err := http.ReadRequest(in)
		if err != nil {
			return err
		}
		given := r.Header.Get("Proxy-Authorization")
		if given != "Basic "+base64.StdEncoding.EncodeToString([]byte(password.Load().(string))) {
			refused.Add(1)
			_, err := fmt.Fprintf(conn, "HTTP/1.1 407 not %s\r\nX-You: %s\r\nContent-Length: 0\r\n\r\n", given, given)
			return err
		}
		server, err := net.Dial("tcp", r.Host)
		if err != nil {
			return err
		}
		defer server.Close()
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return err
		}
		ended := make(chan error, 2)
		go func() { _, err := io.Copy(server, in); ended <- err }()
		go func() { _, err := io.Copy(conn, server); ended <- err }()
		return <-ended
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = serve(conn) }() // a connection that breaks is the client's matter
		}
	}()
	return l.Addr().String()
}

// echo sends the request's authorization back in every place that an answer has, as a portal and as our server.
func echo(w http.ResponseWriter, r *http.Request) {
	you := r.Header.Get("Authorization")
	w.Header().Set("Location", "http://"+strings.ToLower(strings.TrimPrefix(you, "Bearer "))+"/?"+url.QueryEscape(you))
	w.Header().Set("X-You", you)
	if r.URL.Path == "/v1/status" {
		w.Header().Set("Content-Type", "text/html; you="+base64.StdEncoding.EncodeToString([]byte(strings.TrimPrefix(you, "Bearer "))))
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, you)
		return
	}
	w.Header().Set(wire.HeaderProtocol, "1")
	w.Header().Set("Content-Type", wire.ContentTypeProblem)
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = fmt.Fprintf(w, `{"code":"credentials","title":%q,"detail":"%s: unknown"}`, you, you)
}

// Through refusals, portals that send everything back, dead servers and a refusing proxy, with everything logged: no secret
// of the device is found in what daemon, server and fieldgwctl write, show or answer.
func TestSecretsStaySecret(t *testing.T) {
	dir := shortDir(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	const proxyPassword = "field:pr0xy-s3cret/+word"
	var password atomic.Value
	var refused atomic.Int64
	password.Store(proxyPassword)
	_, cert, key := selfSigned(t, wire.IdentityURI("default", "tablet"), time.Now().Add(time.Hour))
	must(t, "write certificate", os.WriteFile(file("cert.pem"), cert, 0o644))
	must(t, "write key", os.WriteFile(file("key.pem"), key, 0o600))
	must(t, "write password", os.WriteFile(file("proxy"), []byte(proxyPassword+"\n"), 0o600))
	s := newScene(t, rig.Options{
		Dir: dir, Credential: file("token"), Config: "[log]\nlevel = \"debug\"\n", ServerArgs: []string{"--log-level", "debug", "--client-ca", file("cert.pem")},
		Uplink: fmt.Sprintf("client_cert = %q\nclient_key = %q\nproxy = \"http://%s\"\nproxy_credential = %q\n",
			file("cert.pem"), file("key.pem"), connectProxy(t, &password, &refused), file("proxy")),
	})
	s.Env = map[string][]string{"fieldgwd": {"no_proxy="}}
	der, _ := pem.Decode(key)
	hide := secrets{
		"proxy password": strings.TrimPrefix(proxyPassword, "field:"), "proxy user and password": proxyPassword,
		"key": string(der.Bytes), "key's text": strings.Split(string(key), "\n")[1],
	}
	add := func(name string) {
		text, err := os.ReadFile(s.Credential)
		must(t, "read token", err)
		token := strings.TrimSpace(string(text))
		hide[name], hide[name+"'s secret"] = token, strings.Split(token, ".")[3]
		hide[name+", small"] = strings.ToLower(strings.Split(token, ".")[3])
	}
	var shown bytes.Buffer
	look := func() {
		for _, args := range [][]string{{"status"}, {"list"}, {"records"}, {"check", "--deep"}} {
			for _, form := range [][]string{nil, {"-o", "json"}} {
				stdout, stderr, _, err := s.Ctl(t.Context(), append(form, args...)...)
				must(t, "fieldgwctl", err)
				shown.WriteString(stdout + stderr)
			}
		}
		items, err := s.Items(t.Context())
		must(t, "list", err)
		for _, i := range items {
			stdout, stderr, _, err := s.Ctl(t.Context(), "-o", "json", "show", string(i.ID))
			must(t, "fieldgwctl", err)
			shown.WriteString(stdout + stderr)
		}
		stdout, stderr, _, err := s.Offline(t.Context(), "check-config")
		must(t, "check-config", err)
		shown.WriteString(stdout + stderr)
	}

	must(t, "make token", s.NewToken(t.Context(), "tablet", s.Credential, time.Time{}))
	add("token")
	must(t, "start", s.StartDaemon(t.Context()))
	s.drop("a.jpg", 300<<10)
	s.delivered("a.jpg")
	look()

	i := s.stand(echo, nil, false)
	s.drop("b.jpg", 300<<10)
	s.held(attachment.HoldNotOurServer)
	look()
	i.close()
	s.held(attachment.HoldOffline)
	look()
	i = s.stand(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/status" { // ours, so that the refusal of what follows is believed
			w.Header().Set(wire.HeaderProtocol, "1")
			_, _ = io.WriteString(w, `{"service":"fieldgw","protocol":1}`)
			return
		}
		echo(w, r)
	}, nil, false)
	s.held(attachment.HoldCredentials)
	look()
	i.close()
	password.Store("field:another")
	s.held(attachment.HoldProxy)
	look()
	password.Store(proxyPassword)
	must(t, "start server", s.StartServer(t.Context()))
	must(t, "renew token", s.NewToken(t.Context(), "tablet", s.Credential, time.Time{}))
	add("second token")
	s.delivered("b.jpg")
	look()
	must(t, "stop", s.StopDaemon())

	if refused.Load() == 0 {
		t.Error("the proxy was not asked")
	}
	if found := hide.in(shown.Bytes()); len(found) > 0 {
		t.Errorf("shown: %v", found)
	}
	files := hide.inTree(t, dir, file("token"), file("proxy"), file("key.pem"))
	t.Logf("%d files and %d bytes of answers hold none of %d secrets in %d forms", files, shown.Len(), len(hide), len(formsOf("")))
	log, err := os.ReadFile(s.Log("fieldgwd"))
	must(t, "read log", err)
	if !bytes.Contains(log, []byte("[credential]")) {
		t.Error("what was sent back never came near the log: the test sees nothing")
	}
	if token, err := os.ReadFile(s.Credential); err != nil || len(hide.in(token)) == 0 {
		t.Errorf("the token is not found where it is: %v", err)
	}
}
