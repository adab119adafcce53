package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// fuzzServer is a server and a token for requests without a connection.
func fuzzServer(f *testing.F) (*Server, string) {
	f.Helper()
	s, err := New(f.Context(), Options{Dir: f.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.Error(err)
		}
	})
	token, err := s.Admin().CreateToken(f.Context(), admin.TokenRequest{Account: "acme", Device: "d"})
	if err != nil {
		f.Fatal(err)
	}
	return s, token.Text
}

// release ends the session of an attachment, so that the inputs to come find room for theirs.
func (s *Server) release(t *testing.T, id string) {
	t.Helper()
	err := s.records.Void(context.WithoutCancel(t.Context()), "acme", id, 1, store.VoidLost)
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrState) {
		t.Fatal(err)
	}
}

// answerOf serves one request and checks what holds for every answer; it returns the code of a refusal.
func answerOf(t *testing.T, h http.Handler, req *http.Request) wire.Code {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	if w.Header().Get(wire.HeaderProtocol) != "1" {
		t.Fatalf("%d without %s", w.Code, wire.HeaderProtocol)
	}
	if w.Code < 400 {
		return ""
	}
	var p wire.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Code.Status() != w.Code {
		t.Fatalf("%d with problem %+v (%v): %s", w.Code, p, err, w.Body)
	}
	if p.Code == wire.CodeInternal {
		t.Fatalf("internal: %s", w.Body)
	}
	return p.Code
}

// No body of a reserve or a registration brings the server down or an answer that is not the protocol's; what is accepted
// once is accepted again.
func FuzzReserveBody(f *testing.F) {
	s, token := fuzzServer(f)
	h := s.Handler()
	good := newFile("content")
	text, err := json.Marshal(good.facts)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(text), "{}", "null", "<html>", `{"length":1e9}`, `{"parent":{"local_id_raw":"/w=="}}`, `{"captured_at":"9999-12-31T23:59:60Z"}`,
		`{"role":"preview","of":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		id := newFile("").id
		send := func(method, path string) wire.Code {
			req := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(body))
			req.Header.Set("Authorization", "Bearer "+token)
			req.Header.Set("Content-Type", wire.ContentTypeJSON)
			return answerOf(t, h, req)
		}
		first := send(http.MethodPut, "/v1/attachments/"+id)
		if again := send(http.MethodPut, "/v1/attachments/"+id); again != first {
			t.Fatalf("first %q, then %q", first, again)
		}
		send(http.MethodPost, "/v1/attachments/"+id+"/registration")
		s.release(t, id)
	})
}

// No headers of an append bring the server down, and none but a fitting append of the right token moves the offset.
func FuzzAppendHeaders(f *testing.F) {
	s, token := fuzzServer(f)
	h := s.Handler()
	f.Add("1.0.0", "0", wire.ContentTypeOffset, "Bearer ", "PATCH")
	f.Add("1.0.0", "-1", "text/html; charset=x", "bearer", "HEAD")
	f.Add("", "99999999999999999999", "a/b;c", "Basic x", "")
	f.Fuzz(func(t *testing.T, version, offset, kind, scheme, override string) {
		file := newFile("0123456789")
		reserve := httptest.NewRequestWithContext(t.Context(), http.MethodPut, file.path(), bytes.NewReader(asJSON(t, file.facts)))
		reserve.Header.Set("Authorization", "Bearer "+token)
		reserve.Header.Set("Content-Type", wire.ContentTypeJSON)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, reserve)
		var a wire.Attachment
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		if a.Upload == nil {
			t.Fatalf("%s", w.Body)
		}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, a.Upload.URL, strings.NewReader("0123"))
		for name, value := range map[string]string{
			wire.HeaderTusResumable: version, wire.HeaderUploadOffset: offset, "Content-Type": kind,
			"Authorization": scheme + token, wire.HeaderMethodOverride: override,
		} {
			req.Header[http.CanonicalHeaderKey(name)] = []string{value}
		}
		code := answerOf(t, h, req)
		head := httptest.NewRequestWithContext(t.Context(), http.MethodHead, a.Upload.URL, nil)
		head.Header.Set("Authorization", "Bearer "+token)
		head.Header.Set(wire.HeaderTusResumable, wire.TusVersion)
		w = httptest.NewRecorder()
		h.ServeHTTP(w, head)
		moved := w.Header().Get(wire.HeaderUploadOffset) == "4"
		want := code == "" && (override == "" || override == http.MethodPatch)
		if moved != want {
			t.Fatalf("code %q, offset %s", code, w.Header().Get(wire.HeaderUploadOffset))
		}
		s.release(t, file.id)
	})
}

// No headers of the IETF dialect bring the server down, and an upload never has bytes that no request brought.
func FuzzDraftHeaders(f *testing.F) {
	s, token := fuzzServer(f)
	h := s.Handler()
	f.Add("?0", "4", "8", "sha-256=:AAEC:", `inline; filename="a"`, "0")
	f.Add("?1", "", "x", "sha-256", "attachment; filename*=UTF-8''%ff", "-1")
	f.Add("?1;a=b", "10", "8;x", "", "", "0;y")
	f.Fuzz(func(t *testing.T, complete, length, version, digest, name, offset string) {
		send := func(method, path string, header map[string]string) *httptest.ResponseRecorder {
			req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("0123"))
			req.Header.Set("Authorization", "Bearer "+token)
			for name, value := range header {
				req.Header[http.CanonicalHeaderKey(name)] = []string{value}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			return w
		}
		w := send(http.MethodPost, uploads, map[string]string{
			wire.HeaderUploadComplete: complete, wire.HeaderUploadLength: length, wire.HeaderInteropVersion: version,
			wire.HeaderContentDigest: digest, wire.HeaderReprDigest: digest, wire.HeaderWantReprDigest: digest, "Content-Disposition": name,
		})
		url, appended := w.Header().Get("Location"), 1
		if w.Code >= 500 || w.Code < 300 && url == "" {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		if url == "" {
			return
		}
		w = send(http.MethodPatch, url, map[string]string{
			wire.HeaderUploadComplete: complete, wire.HeaderUploadOffset: offset, wire.HeaderUploadLength: length,
			wire.HeaderContentDigest: digest, "Content-Type": wire.ContentTypePartial,
		})
		if w.Code < 300 {
			appended++
		}
		head := send(http.MethodHead, url, nil)
		at, err := strconv.Atoi(head.Header().Get(wire.HeaderUploadOffset))
		if w.Code >= 500 || head.Code == 204 && (err != nil || at > 4*appended) {
			t.Fatalf("%d, then %d bytes, %v: %s", w.Code, at, err, w.Body)
		}
		send(http.MethodDelete, url, nil)
	})
}
