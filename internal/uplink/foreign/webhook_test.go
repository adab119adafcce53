package foreign_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

// hook is a webhook that answers as it is told, and a registrar that asks it.
func hook(t *testing.T, answer http.HandlerFunc) foreign.Registrar {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	client, err := remote.New(remote.Options{
		Endpoint: server.URL + "/take", Protocol: foreign.Webhook(), Proxy: remote.ProxyNone,
		Logger: slog.New(slog.DiscardHandler), IdleTimeout: 5 * time.Second, AnswerTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdle)
	return foreign.NewRegistrar(client)
}

func found(m *attachment.Manifest, digest bool) foreign.Found {
	f := foreign.Found{MediaID: "a/b", Location: "https://files.example/a/b", Server: "files.example", Verdict: uplink.Verdict{Length: m.Length}}
	if digest {
		f.Verdict.SHA256 = m.SHA256.String()
	}
	return f
}

func says(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		if _, err := io.WriteString(w, body); err != nil {
			return
		}
	}
}

// Without a webhook a receipt is worth what was found.
func TestWithoutWebhook(t *testing.T) {
	m := uplinktest.NewManifest(t, []byte("content"))
	for digest, want := range map[bool]receipt.Grade{true: receipt.VerifiedDigest, false: receipt.LengthOnly} {
		r, err := foreign.Registrar{}.Register(t.Context(), m, found(m, digest))
		if err != nil || r.Grade != want || r.Server != "files.example" {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// What a webhook that took note makes of the receipt: registered where somebody vouched for the bytes, and never more.
func TestWebhookGrades(t *testing.T) {
	m := uplinktest.NewManifest(t, []byte("content"))
	digest := m.SHA256.String()
	repeats := `{"length":7,"sha256":"` + digest + `","media_id":"media-9","registered_at":"2026-03-04T05:06:07Z"}`
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		digest bool
		want   receipt.Grade
	}{
		"nothing said":                {says(204, "", ""), true, receipt.Registered},
		"an empty object":             {says(201, "application/json", "{}"), true, receipt.Registered},
		"length, nothing said":        {says(200, "application/json", ""), false, receipt.LengthOnly},
		"length, repeated":            {says(200, "application/json; charset=utf-8", repeats), false, receipt.Registered},
		"length, only the length":     {says(200, "application/json", `{"length":7}`), false, receipt.LengthOnly},
		"length, only the digest":     {says(200, "application/json", `{"sha256":"`+digest+`"}`), false, receipt.LengthOnly},
		"digest, and it was repeated": {says(200, "application/json", repeats), true, receipt.Registered},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := hook(t, c.answer).Register(t.Context(), m, found(m, c.digest))
			if err != nil || r.Grade != c.want {
				t.Fatalf("%+v, %v", r, err)
			}
			if err := receipt.Check(r, receipt.Facts{
				AttachmentID: string(m.ID), Length: m.Length, SHA256: digest, Parent: uplink.ParentOf(m),
			}); err != nil {
				t.Error(err)
			}
			if repeated := r.MediaID == "media-9" && r.RegisteredAt.Year() == 2026; strings.Contains(name, "repeated") != repeated {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Whatever else a webhook answers, nothing is registered, and its troubles are the attachment's own: others are sent meanwhile.
func TestWebhookRefuses(t *testing.T) {
	m := uplinktest.NewManifest(t, []byte("content"))
	html := "<html>Welcome to the hotel</html>"
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		class  remote.Class
		reason attachment.Code
	}{
		"pending":          {says(202, "application/json", "{}"), remote.ItemTransient, attachment.HoldWaitingParent},
		"conflict":         {says(409, "application/problem+json", `{"detail":"known"}`), remote.ItemPermanent, attachment.NeedsIdentityConflict},
		"unprocessable":    {says(422, "application/json", "{}"), remote.ItemPermanent, attachment.NeedsParentPolicy},
		"other digest":     {says(200, "application/json", `{"sha256":"00"}`), remote.ItemPermanent, attachment.NeedsReceiptMismatch},
		"other length":     {says(200, "application/json", `{"length":8}`), remote.ItemPermanent, attachment.NeedsReceiptMismatch},
		"portal":           {says(200, "text/html", html), remote.ItemTransient, attachment.HoldNotOurServer},
		"no JSON":          {says(200, "application/json", "ok"), remote.ItemTransient, attachment.HoldNotOurServer},
		"conflict of HTML": {says(409, "text/html", html), remote.ItemTransient, attachment.HoldNotOurServer},
		"no such webhook":  {says(404, "application/json", "{}"), remote.ItemTransient, attachment.HoldNotOurServer},
		"redirect":         {says(307, "", ""), remote.ItemTransient, attachment.HoldNotOurServer},
		"wrong token":      {says(401, "text/html", html), remote.ItemTransient, attachment.HoldCredentials},
		"busy":             {says(429, "application/json", "{}"), remote.ItemTransient, attachment.HoldServerBusy},
		"full":             {says(507, "application/json", "{}"), remote.ItemTransient, attachment.HoldServerFull},
		"failing":          {says(500, "application/json", "{}"), remote.ItemTransient, attachment.HoldServerError},
		"gateway":          {says(502, "text/html", html), remote.ItemTransient, attachment.HoldServerError},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := hook(t, c.answer).Register(t.Context(), m, found(m, true))
			e, ok := errors.AsType[*remote.Error](err)
			if !ok || e.Class != c.class || e.Reason != c.reason || e.Confirm || e.Gone() {
				t.Fatalf("%+v, %+v", r, err)
			}
			if !strings.Contains(e.Error(), "webhook") {
				t.Errorf("does not say whose it is: %v", e)
			}
		})
	}
}

// The message says what was sent and where it lies, with the attachment's ID as the key that makes it idempotent.
func TestWebhookMessage(t *testing.T) {
	m := uplinktest.NewManifest(t, []byte("content"))
	var got map[string]any
	var key, path string
	r := hook(t, func(w http.ResponseWriter, r *http.Request) {
		key, path = r.Header.Get("Idempotency-Key"), r.URL.Path
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	if _, err := r.Register(t.Context(), m, found(m, true)); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"attachment_id": string(m.ID), "media_id": "a/b", "location": "https://files.example/a/b", "length": 7.0,
		"sha256": m.SHA256.String(), "grade": "verified-digest", "filename": m.Filename.Text, "media_type": m.MediaType,
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %v, want %v", name, got[name], value)
		}
	}
	if key != `"`+string(m.ID)+`"` || path != "/take" || got["captured_at"] == nil || got["parent"] == nil {
		t.Errorf("key %s, path %s, message %v", key, path, got)
	}
}

// A credential file is a token or user:password, and nothing in it reaches an error.
func TestCredential(t *testing.T) {
	for text, want := range map[string]string{
		"to.ken": "Bearer to.ken", "user:pass word:x": "Basic dXNlcjpwYXNzIHdvcmQ6eA==",
	} {
		if err := foreign.CheckCredential(text); err != nil || foreign.Authorize(text) != want {
			t.Errorf("%q: %q, %v", text, foreign.Authorize(text), err)
		}
	}
	for _, text := range []string{"", "SECRET word", ":SECRET", "SECRET:", "SECRET\n", "user:SEC\x7fRET", "SÉCRET"} {
		if err := foreign.CheckCredential(text); !errors.Is(err, remote.ErrBadCredential) || strings.Contains(err.Error(), "CRET") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
