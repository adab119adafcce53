package tus_test

import (
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink/tus"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

// A credential is a bearer token, or user and password; without one nothing is sent in its place.
func TestCredential(t *testing.T) {
	got := ""
	s := newServer()
	s.meddle = func(_ *server, _ int, _ http.ResponseWriter, r *http.Request) bool {
		got = r.Header.Get("Authorization")
		return false
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	for text, want := range map[string]string{
		"": "", "abc123": "Bearer abc123", "anna:secret": "Basic " + base64.StdEncoding.EncodeToString([]byte("anna:secret")),
	} {
		o := remote.Options{Endpoint: web.URL + "/files/", Logger: slog.New(slog.DiscardHandler), Protocol: tus.Protocol()}
		if text != "" {
			credential := &uplinktest.Credential{}
			credential.Set(text, nil, false)
			o.Credential = credential
		}
		client, err := remote.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Probe(t.Context()); err != nil || got != want {
			t.Errorf("%q: sent as %q, %v", text, got, err)
		}
		client.CloseIdle()
	}
}
