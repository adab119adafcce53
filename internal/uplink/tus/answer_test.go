package tus_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/tus"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

// connect serves s and returns a driver for it.
func connect(t *testing.T, s *server, o tus.Options) (*tus.Driver, *httptest.Server) {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	client, err := remote.New(remote.Options{Endpoint: web.URL + "/files/", Logger: slog.New(slog.DiscardHandler), Protocol: tus.Protocol()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdle)
	o.Client = client
	return tus.New(o), web
}

// The address of a new upload may be written in every way that stays at the server, and in no other.
func TestLocations(t *testing.T) {
	for location, good := range map[string]bool{
		"/files/ID": true, "ID": true, "//HOST/files/ID": true, "http://HOST/files/ID": true, "http://HOST/files/ID?sig=a": true,
		"https://HOST/files/ID": false, "http://other.example/files/ID": false, "//other.example/ID": false, "": false, ":": false,
		"http://user@HOST/files/ID": false,
	} {
		s := newServer()
		s.location = func(r *http.Request, id string) string {
			return strings.NewReplacer("HOST", r.Host, "ID", id).Replace(location)
		}
		d, _ := connect(t, s, tus.Options{})
		m := uplinktest.NewManifest(t, []byte("content"))
		res, err := d.Reserve(t.Context(), m, attachment.Session{})
		if !good {
			if e, ok := errors.AsType[*remote.Error](err); !ok || e.Kind != remote.KindForeign || e.Class == remote.ItemPermanent {
				t.Errorf("%q: %+v, %v", location, res, err)
			}
			continue
		}
		if err != nil || res.Session.ID == "" || res.MediaID != res.Session.ID || len(res.Session.ID) > 255 {
			t.Errorf("%q: %+v, %v", location, res, err)
			continue
		}
		if strings.Contains(location, "?") != (res.Session.ID != "upload-1") || strings.Contains(res.Session.ID, "sig") {
			t.Errorf("%q: the upload is called %q", location, res.Session.ID)
		}
		if at, err := d.Offset(t.Context(), m, res.Session); err != nil || at != 0 {
			t.Errorf("%q: offset %d, %v", location, at, err)
		}
	}
}

// A creation says what the file is, in the keys that servers show it by.
func TestMetadata(t *testing.T) {
	s := newServer()
	d, _ := connect(t, s, tus.Options{})
	m := uplinktest.NewManifest(t, []byte("content"))
	m.Filename = attachment.NameOf("Öltank, 2. Stock.jpg")
	if _, err := d.Reserve(t.Context(), m, attachment.Session{}); err != nil {
		t.Fatal(err)
	}
	s.change(func(u *upload) {
		for key, want := range map[string]string{
			"filename": "Öltank, 2. Stock.jpg", "filetype": m.MediaType, "attachment_id": string(m.ID), "parent": "inspection-7",
			"sha256": m.SHA256.String(),
		} {
			if u.metadata[key] != want {
				t.Errorf("%s is %q, want %q", key, u.metadata[key], want)
			}
		}
	})
}

// A file that the server says it does not take needs a person, and is not announced.
func TestTooLargeForTheServer(t *testing.T) {
	s := newServer()
	s.maxSize = 6
	d, _ := connect(t, s, tus.Options{})
	_, err := d.Reserve(t.Context(), uplinktest.NewManifest(t, []byte("content")), attachment.Session{})
	if e, ok := errors.AsType[*remote.Error](err); !ok || e.Reason != attachment.NeedsSizeLimit || s.counts[http.MethodPost] != 0 {
		t.Errorf("%v after %d creations", err, s.counts[http.MethodPost])
	}
	if _, err := d.Reserve(t.Context(), uplinktest.NewManifest(t, []byte("conten")), attachment.Session{}); err != nil {
		t.Error(err)
	}
	if n := s.counts[http.MethodOptions]; n != 1 {
		t.Errorf("asked %d times what the server can do", n)
	}
}

// A creation that is refused says why in the terms of the class table.
func TestRefusedCreations(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		reason attachment.Code
		class  remote.Class
	}{
		{413, "ERR_MAX_SIZE_EXCEEDED: maximum size exceeded", attachment.NeedsSizeLimit, remote.ItemPermanent},
		{415, "", attachment.NeedsMediaType, remote.ItemPermanent},
		{400, "ERR_UPLOAD_REJECTED: upload creation has been rejected by server", attachment.NeedsRefused, remote.ItemPermanent},
		{401, "", attachment.HoldCredentials, remote.ChannelOperator},
		{412, "ERR_UNSUPPORTED_VERSION", attachment.HoldServerError, remote.ChannelOperator},
		{503, "ERR_SERVER_SHUTDOWN: request has been interrupted", attachment.HoldServerBusy, remote.ChannelTransient},
		{507, "", attachment.HoldServerFull, remote.ChannelOperator},
		{500, `{"error":{"code":"UnknownError","message":"Something went wrong"}}`, attachment.HoldServerError, remote.ItemTransient},
	} {
		s := newServer()
		s.meddle = on(http.MethodPost, 1, says(c.status, c.body))
		d, _ := connect(t, s, tus.Options{})
		_, err := d.Reserve(t.Context(), uplinktest.NewManifest(t, []byte("content")), attachment.Session{})
		e, ok := errors.AsType[*remote.Error](err)
		if !ok || e.Reason != c.reason || e.Class != c.class {
			t.Errorf("%d %q: %v", c.status, c.body, err)
		}
		if ok && strings.ContainsAny(e.Detail, "{}") {
			t.Errorf("%d: the detail is %q", c.status, e.Detail)
		}
	}
}

// A session that lies elsewhere, is another file's, or is denied to a device that needs no credential is gone; denied to one
// with a credential it is not.
func TestSessionsThatAreNotOurs(t *testing.T) {
	m := uplinktest.NewManifest(t, []byte("content"))
	denied := func(_ *server, _ int, w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodHead && says(403, "")(nil, w, r)
	}
	for name, c := range map[string]struct {
		meddle    func(*server, int, http.ResponseWriter, *http.Request) bool
		anonymous bool
		spoil     func(s *server, at *attachment.Session)
		gone      bool
	}{
		"sound":              {},
		"another server":     {spoil: func(_ *server, at *attachment.Session) { at.URL = "http://127.0.0.1:1/files/upload-1" }, gone: true},
		"another file":       {spoil: func(s *server, _ *attachment.Session) { s.change(func(u *upload) { u.length++ }) }, gone: true},
		"denied":             {meddle: denied, anonymous: true, gone: true},
		"credential refused": {meddle: denied},
	} {
		s := newServer()
		s.meddle = c.meddle
		d, _ := connect(t, s, tus.Options{Anonymous: c.anonymous})
		res, err := d.Reserve(t.Context(), m, attachment.Session{})
		if err != nil {
			t.Fatal(err)
		}
		if c.spoil != nil {
			c.spoil(s, &res.Session)
		}
		_, err = d.Reserve(t.Context(), m, res.Session)
		e, failed := errors.AsType[*remote.Error](err)
		if (failed && e.Gone()) != c.gone || failed && e.Class == remote.ItemPermanent || failed == (c.meddle == nil && c.spoil == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server of another version is for its operator; whatever does not speak tus is not our server.
func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		meddle func(*server, int, http.ResponseWriter, *http.Request) bool
		kind   remote.Kind
	}{
		"a tus server": {},
		"a portal": {func(_ *server, _ int, w http.ResponseWriter, _ *http.Request) bool {
			reply(w, []byte("<html>"))
			return true
		}, remote.KindForeign},
		"an error": {on(http.MethodOptions, 1, says(500, "oops")), remote.KindProblem},
	} {
		s := newServer()
		s.meddle = c.meddle
		d, _ := connect(t, s, tus.Options{})
		err := d.Client.Probe(t.Context())
		if e, ok := errors.AsType[*remote.Error](err); ok != (c.kind != "") || ok && e.Kind != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := newServer()
	s.meddle = on(http.MethodOptions, 1, func(_ *server, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Tus-Version", "2.0.0")
		return true
	})
	d, _ := connect(t, s, tus.Options{})
	_, err := d.Reserve(t.Context(), uplinktest.NewManifest(t, nil), attachment.Session{})
	if e, ok := errors.AsType[*remote.Error](err); !ok || e.Class != remote.ChannelOperator {
		t.Errorf("another version: %v", err)
	}
}

// An append carries a digest where the server checks it and the connection does not, and is then taken whole or not at all.
func TestChecksum(t *testing.T) {
	content := uplinktest.Content(1, 1000)
	m := uplinktest.NewManifest(t, content)
	for _, offered := range []string{"", "md5", "sha1", "md5,sha1,sha256"} {
		s := newServer()
		s.extensions, s.algorithms = "creation,checksum", offered
		got := ""
		s.meddle = func(_ *server, _ int, w http.ResponseWriter, r *http.Request) bool {
			got = r.Header.Get("Upload-Checksum")
			return r.Method == http.MethodPatch && says(204, "", "Upload-Offset", "1000")(nil, w, r)
		}
		d, _ := connect(t, s, tus.Options{})
		res, err := d.Reserve(t.Context(), m, attachment.Session{})
		if err != nil {
			t.Fatal(err)
		}
		a := uplink.Append{Manifest: m, Session: res.Session, Length: 1000, Body: func() io.Reader { return strings.NewReader(string(content)) }}
		if at, err := d.Append(t.Context(), a); err != nil || at != 1000 {
			t.Errorf("offered %q: %d, %v", offered, at, err)
		}
		want := map[string]string{"": "", "md5": "", "sha1": "sha1 ", "md5,sha1,sha256": "sha256 "}[offered]
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("offered %q: the append has %q", offered, got)
		}
	}
}
