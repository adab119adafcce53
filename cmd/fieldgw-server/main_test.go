package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"go.uber.org/goleak"

	"github.com/fieldgw/fieldgw/internal/logging/loggingtest"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// command runs the program to its end.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs loggingtest.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// ok runs the program and fails the test unless it succeeds.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := command(t, args...)
	if code != exitDone {
		t.Fatalf("%q: exit %d\n%s", args, code, stderr)
	}
	return stdout
}

// served is a program that serves.
type served struct {
	uplink uplink
	log    *loggingtest.Buffer
	stop   func() int
}

// uplink is what the program prints for a device.
type uplink struct {
	Endpoint   string
	Credential string
	CAFile     string `toml:"ca_file"`
}

// start runs the program until stop is called, and reads what it prints for a device.
func start(t *testing.T, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &served{log: &loggingtest.Buffer{}}
	out, feed := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, append([]string{"--listen", "127.0.0.1:0"}, args...), feed, s.log)
		_ = feed.CloseWithError(errors.New("the program ended"))
		ended <- code
	}()
	s.stop = sync.OnceValue(func() int {
		cancel()
		_ = out.Close()
		return <-ended
	})
	t.Cleanup(func() { s.stop() })
	text := make([]byte, 4096) // holds the one write that the configuration comes in
	n, err := out.Read(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	var config struct{ Uplink *uplink }
	config.Uplink = &s.uplink
	if err := toml.Unmarshal(text[:n], &config); err != nil {
		t.Fatalf("%v in\n%s", err, text[:n])
	}
	return s
}

// get asks the server as a device would that was given the printed configuration.
func (s *served) get(t *testing.T, path, token string) *http.Response {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if s.uplink.CAFile != "" {
		ca, err := os.ReadFile(s.uplink.CAFile)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.uplink.Endpoint+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get(wire.HeaderProtocol) != "1" {
		t.Errorf("%s: no %s", path, wire.HeaderProtocol)
	}
	return resp
}

// One command without configuration is a server: what it prints is enough to reach it, and the token is nowhere but in
// its file.
func TestFirstStart(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	for _, command := range [][]string{{}, {"serve"}} {
		s := start(t, append(command, "--data", data)...)
		if !strings.HasPrefix(s.uplink.Endpoint, "https://127.0.0.1:") || !filepath.IsAbs(s.uplink.Credential) || !filepath.IsAbs(s.uplink.CAFile) {
			t.Fatalf("%+v", s.uplink)
		}
		text, err := os.ReadFile(s.uplink.Credential)
		if err != nil {
			t.Fatal(err)
		}
		token := strings.TrimSpace(string(text))
		if resp := s.get(t, "/v1/attachments", token); resp.StatusCode != 200 {
			t.Errorf("%d with the printed configuration", resp.StatusCode)
		}
		if resp := s.get(t, "/v1/attachments", "x"); resp.StatusCode != 401 {
			t.Errorf("%d without a token", resp.StatusCode)
		}
		if code := s.stop(); code != exitDone {
			t.Errorf("exit %d", code)
		}
		parsed, err := wire.ParseToken(token)
		if err != nil {
			t.Fatal(err)
		}
		if secret := strings.TrimPrefix(token, "fgw1."+parsed.Account+"."+parsed.Device+"."); strings.Contains(s.log.String(), secret) {
			t.Errorf("the token is in the log:\n%s", s.log)
		}
	}
}

// Plain http is served on loopback by flag, and nowhere else.
func TestPlainHTTP(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := start(t, "--data", data, "--http", "--log-format", "json", "--log-level", "debug")
	if !strings.HasPrefix(s.uplink.Endpoint, "http://127.0.0.1:") {
		t.Errorf("%+v", s.uplink)
	}
	if resp := s.get(t, "/v1/status", ""); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	s.stop()
	for line := range strings.Lines(s.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line %q", line)
		}
	}
	for _, listen := range []string{":0", "0.0.0.0:0", "[::]:0", "example.org:0", "192.0.2.1:0", "nonsense"} {
		if code, _, stderr := command(t, "--data", data, "--http", "--listen", listen); code != exitUsage {
			t.Errorf("--listen %s: exit %d, %s", listen, code, stderr)
		}
	}
}

// A server on all addresses prints one that leads to it, and says that its own certificate is for loopback only.
func TestAllAddresses(t *testing.T) {
	s := start(t, "--data", filepath.Join(t.TempDir(), "data"), "--listen", "0.0.0.0:0")
	if resp := s.get(t, "/v1/status", ""); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	s.stop()
	if !strings.Contains(s.log.String(), "--tls-cert") {
		t.Errorf("no warning in\n%s", s.log)
	}
}

// Tokens are made, listed and revoked with the server running and stopped alike, and take effect at once.
func TestTokenCommands(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	before := strings.TrimSpace(ok(t, "token", "create", "--data", data, "--account", "acme", "--device", "tablet-1"))
	s := start(t, "--data", data, "--http")
	if s.uplink.Credential != "" {
		t.Errorf("a token was made beside the operator's: %s", s.uplink.Credential)
	}
	during := strings.TrimSpace(ok(t, "token", "create", "--data", data, "--account", "acme", "--device", "tablet-2", "--expires", "2999-01-01T00:00:00+02:00"))
	for _, token := range []string{before, during} {
		if resp := s.get(t, "/v1/attachments", token); resp.StatusCode != 200 {
			t.Errorf("new token: %d", resp.StatusCode)
		}
	}
	var listed []admin.Token
	if err := json.Unmarshal([]byte(ok(t, "token", "list", "--json", "--data", data)), &listed); err != nil || len(listed) != 2 {
		t.Fatalf("%+v, %v", listed, err)
	}
	for _, token := range listed {
		ok(t, "token", "revoke", token.ID, "--data", data)
	}
	for _, token := range []string{before, during} {
		if resp := s.get(t, "/v1/attachments", token); resp.StatusCode != 401 {
			t.Errorf("revoked token: %d", resp.StatusCode)
		}
	}
	s.stop()
	table := ok(t, "token", "list", "--data", data)
	if !strings.Contains(table, "tablet-2") || !strings.Contains(table, "2998-12-31T22:00:00Z") || strings.Contains(table, during) {
		t.Errorf("%s", table)
	}
	if code, _, _ := command(t, "token", "revoke", "unknown", "--data", data); code != exitNotFound {
		t.Errorf("exit %d", code)
	}
}

// Attachment commands tell what is there, and by their exit code what is not.
func TestAttachmentCommands(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	ok(t, "token", "create", "--data", data, "--account", "acme", "--device", "d")
	if got := ok(t, "attachment", "list", "--data", data); !strings.HasPrefix(got, "ACCOUNT") || strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
	if got := ok(t, "attachment", "list", "--json", "--account", "acme", "--data", data); strings.TrimSpace(got) != "[]" {
		t.Errorf("%q", got)
	}
	for _, verb := range []string{"show", "verify"} {
		if code, stdout, _ := command(t, "attachment", verb, "ffff", "--data", data); code != exitNotFound || stdout != "" {
			t.Errorf("%s: exit %d, %q", verb, code, stdout)
		}
	}
}

// An attachment is named by its whole ID or by a beginning or an end of it that fits no other of the account.
func TestShortIDs(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	token := strings.TrimSpace(ok(t, "token", "create", "--data", data, "--account", "acme", "--device", "d"))
	s := start(t, "--data", data, "--http")
	const one, two = "0198f3a2-4c1d-7abc-8def-0123456789ab", "0198f3a2-4c1d-7abc-8def-0123456700cd"
	for _, id := range []string{one, two} {
		body := `{"length":3,"sha256":"` + strings.Repeat("ab", 32) + `","role":"original","media_type":"image/jpeg","filename":"a.jpg"}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.uplink.Endpoint+"/v1/attachments/"+id, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusCreated {
			t.Fatalf("reserve: %d, %v", resp.StatusCode, err)
		}
	}
	for _, running := range []bool{true, false} {
		if !running {
			s.stop()
		}
		for _, ref := range []string{one, "456789AB", "89ab", one[:33]} {
			if got := ok(t, "attachment", "show", ref, "--account", "acme", "--data", data); !strings.Contains(got, one) {
				t.Errorf("%s: %s", ref, got)
			}
		}
		for ref, want := range map[string]struct {
			code int
			text string
		}{
			"0198": {exitUsage, two + ", " + one}, "9ab": {exitUsage, "too short"}, "ffff": {exitNotFound, "ffff"}, one + "0": {exitNotFound, ""},
		} {
			for _, verb := range []string{"show", "verify"} {
				code, stdout, stderr := command(t, "attachment", verb, ref, "--account", "acme", "--data", data)
				if code != want.code || stdout != "" || !strings.Contains(stderr, want.text) {
					t.Errorf("%s %s: exit %d, %s", verb, ref, code, stderr)
				}
			}
		}
		if code, _, _ := command(t, "attachment", "show", "89ab", "--data", data); code != exitNotFound {
			t.Errorf("in another account: exit %d", code)
		}
		if code, _, stderr := command(t, "attachment", "verify", "89ab", "--account", "acme", "--data", data); code != exitState {
			t.Errorf("not complete: exit %d, %s", code, stderr)
		}
	}
}

// Mistakes on the command line exit with 2 and say what was wrong; nothing is made by them.
func TestUsage(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{
		{"--unknown"}, {"extra"}, {"serve", "extra"}, {"--tls-cert", "x"}, {"--http", "--tls-cert", "x", "--tls-key", "y"},
		{"--http", "--client-ca", "x"}, {"--client-ca", os.DevNull}, {"--expire", "7"}, {"--expire", "10ms"},
		{"--max-append", "0"}, {"--max-append", "8"}, {"--max-length", "2TiB"}, {"--max-length", "0"}, {"--log-level", "loud"}, {"--log-format", "xml"},
		{"token", "revoke"}, {"token", "create", "--account", "a", "--expires", "tomorrow"}, {"attachment", "show"}, {"version", "x"},
		{"token", "create"}, {"token", "create", "--account", "a"}, {"token", "create", "--device", "d"}, {"token", "frobnicate"},
		{"completion", "tcsh"}, {"--log-level", "INFO"},
	} {
		code, stdout, stderr := command(t, append(args, "--data", data)...)
		if code != exitUsage || !strings.HasPrefix(stderr, "fieldgw-server: Usage: ") || !strings.Contains(stderr, "\n  See: fieldgw-server") || stdout != "" {
			t.Errorf("%q: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
	for line, want := range map[string]string{
		"extra":                    `Usage: there is no command "extra"`,
		"token frobnicate":         `Usage: there is no command "token frobnicate"`,
		"attachment show":          "Usage: show takes one ID\n  See: fieldgw-server attachment show --help",
		"token create":             "Usage: --account and --device are missing",
		"token create --account a": "Usage: --device is missing",
		"token create --device d":  "Usage: --account is missing",
	} {
		if _, _, stderr := command(t, strings.Fields(line)...); !strings.Contains(stderr, want) {
			t.Errorf("%s: %s", line, stderr)
		}
	}
	for _, args := range [][]string{{"token", "list"}, {"token", "revoke", "x"}, {"attachment", "list"}} {
		if code, _, stderr := command(t, append(args, "--data", data)...); code != exitFailed || !strings.Contains(stderr, data) {
			t.Errorf("%q: exit %d\n%s", args, code, stderr)
		}
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a data directory was made: %v", err)
	}
	if code, _, _ := command(t, "token", "create", "--data", data, "--account", "A", "--device", "d"); code != exitUsage {
		t.Errorf("exit %d", code)
	}
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if got := ok(t, args...); !strings.HasPrefix(got, "fieldgw-server ") || strings.Count(got, "\n") != 1 {
			t.Errorf("%q", got)
		}
	}
	if got := ok(t, "--help"); !strings.Contains(got, "(default info)") {
		t.Errorf("%q", got)
	}
	if got := ok(t, "token"); !strings.Contains(got, "create") {
		t.Errorf("%q", got)
	}
}

// A missing or foreign certificate ends the program with an error, not with a server without TLS.
func TestCertificateFlags(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := command(t, "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0",
		"--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"))
	if code != exitFailed || !strings.Contains(stderr, "cert.pem") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	own := filepath.Join(dir, "first")
	start(t, "--data", own).stop()
	s := start(t, "--data", filepath.Join(dir, "second"),
		"--tls-cert", filepath.Join(own, "tls", "cert.pem"), "--tls-key", filepath.Join(own, "tls", "key.pem"))
	if s.uplink.CAFile != "" || s.uplink.Credential == "" {
		t.Errorf("%+v", s.uplink)
	}
	s.uplink.CAFile = filepath.Join(own, "tls", "cert.pem")
	if resp := s.get(t, "/v1/status", ""); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if code := s.stop(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}
