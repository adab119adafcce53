package remote_test

import (
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// What answers may send the credential back, in its header, its words, or instead of an answer. Errors do not repeat it,
// also where they would cut it in two.
func TestEchoedCredential(t *testing.T) {
	secret := strings.Split(uplinktest.Token, ".")[3]
	forms := map[string]string{
		"raw": uplinktest.Token, "secret": secret, "base64": base64.StdEncoding.EncodeToString([]byte(uplinktest.Token)),
		"URL": url.QueryEscape("Bearer " + uplinktest.Token),
	}
	for name, form := range forms {
		for _, padding := range []int{0, 225} {
			page := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html; you="+form)
				w.Header().Set("Location", "http://"+strings.ToLower(secret)+"/"+form)
				w.WriteHeader(http.StatusFound)
				_, _ = io.WriteString(w, form)
			}
			ours := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(wire.HeaderProtocol, "1")
				w.Header().Set("Content-Type", wire.ContentTypeProblem)
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, `{"code":"credentials","detail":"`+strings.Repeat("x", padding)+" "+form+` is refused"}`)
			}
			for kind, handler := range map[string]http.HandlerFunc{"page": page, "refusal": ours} {
				server := httptest.NewServer(handler)
				err := askAt(t, server.URL)
				server.Close()
				if err == nil || strings.Contains(strings.ToLower(err.Error()), strings.ToLower(secret[:8])) || strings.Contains(err.Error(), form[:min(len(form), 30)]) {
					t.Errorf("%s, %s: %v", name, kind, err)
				}
			}
			garbage := listening(t, func(conn net.Conn) error {
				if _, err := conn.Read(make([]byte, 4096)); err != nil {
					return err
				}
				_, err := io.WriteString(conn, form+" is what you sent\r\n\r\n")
				return err
			})
			err := askAt(t, "http://"+garbage)
			if err == nil || strings.Contains(strings.ToLower(err.Error()), strings.ToLower(secret[:8])) || strings.Contains(err.Error(), form[:min(len(form), 30)]) {
				t.Errorf("%s, garbage: %v", name, err)
			}
		}
	}
}

func askAt(t *testing.T, endpoint string) error {
	t.Helper()
	token := &uplinktest.Credential{}
	token.Set(uplinktest.Token, nil, false)
	c, err := remote.New(remote.Options{Endpoint: endpoint, Credential: token, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return ask(t, c)
}

// A protocol that has redirects follows 307 and 308 within the server's origin, a few times, and remembers a move for good.
// Nothing else is followed, and nothing at all without the flag.
func TestRedirects(t *testing.T) {
	for name, c := range map[string]struct {
		status, hops int
		elsewhere    bool
		flag         bool
		followed     bool
		second       int // requests for the same again
	}{
		"307": {307, 1, false, true, true, 2}, "308": {308, 1, false, true, true, 1}, "three": {308, 3, false, true, true, 1},
		"too many": {307, 4, false, true, false, 4}, "301": {301, 1, false, true, false, 1}, "another host": {308, 1, true, true, false, 1},
		"no redirects": {308, 1, false, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			requests, bodies := 0, ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				hop := len(r.URL.Path) - len("/x")
				if hop == c.hops {
					body, _ := io.ReadAll(r.Body)
					bodies += string(body)
					w.WriteHeader(http.StatusNoContent)
					return
				}
				to := r.URL.Path + "x"
				if c.elsewhere {
					to = "http://127.0.0.1:1" + to
				}
				w.Header().Set("Location", to)
				w.WriteHeader(c.status)
			}))
			defer server.Close()
			token := &uplinktest.Credential{}
			token.Set(uplinktest.Token, nil, false)
			client, err := remote.New(remote.Options{
				Endpoint: server.URL, Credential: token, Logger: slog.New(slog.DiscardHandler),
				Protocol: &remote.Protocol{Name: "other", Redirects: c.flag},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.CloseIdle)
			u, err := client.Resolve("/x")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				requests = 0
				_, err = client.Stream(t.Context(), remote.Append{
					Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Length: 3, Body: func() io.Reader { return strings.NewReader("abc") },
				})
			}
			if (err == nil) != c.followed || c.followed && bodies != "abcabc" || requests != c.second {
				t.Errorf("%v, bodies %q, %d requests", err, bodies, requests)
			}
			if e, ok := errors.AsType[*remote.Error](err); ok && e.Charge {
				t.Errorf("charged: %+v", e)
			}
		})
	}
}
