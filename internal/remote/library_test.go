package remote

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// secretText is a credential in memory, whose stamp says nothing.
type secretText struct{ texts []string }

func (s *secretText) Stamp() string { return "" }

func (s *secretText) Read() (string, error) {
	text := s.texts[0]
	if len(s.texts) > 1 {
		s.texts = s.texts[1:]
	}
	return text, nil
}

// librarian makes a client of a protocol whose answers are marked, and of a server.
func librarian(t *testing.T, secrets []string, h http.HandlerFunc) *Client {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	c, err := New(Options{
		Endpoint: web.URL, Credential: &secretText{secrets}, Logger: slog.New(slog.DiscardHandler),
		Protocol: &Protocol{
			Name: "marked", Ours: func(_ Step, resp *http.Response) bool { return resp.Header.Get("Mark") != "" },
			Problem: func(_ *http.Response, body []byte) (wire.Code, string, error) {
				return wire.CodeCredentials, string(body), nil
			},
			Refusal: func(body []byte) bool { return strings.HasPrefix(string(body), "refused") },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

// library sends one request as an SDK does, and takes whatever answers for its server.
func library(method, url string, body io.Reader) func(context.Context, string, Doer) error {
	return func(ctx context.Context, credential string, do Doer) error {
		req, err := http.NewRequestWithContext(ctx, method, url, body)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Signed "+credential)
		resp, err := do.Do(req)
		if err != nil {
			return errors.Join(errors.New("the library's own words"), err)
		}
		return resp.Body.Close()
	}
}

// What a library makes of an answer does not count: the client's judgement does.
func TestLibraryIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		kind   Kind
	}{
		"portal": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, KindForeign},
		"cut":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, KindBroken},
		"refused with 200": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Mark", "1")
			if _, err := io.WriteString(w, "refused"); err != nil {
				panic(err)
			}
		}, KindProblem},
	} {
		client := librarian(t, []string{"secret-of-this-test"}, c.answer)
		err := client.Operate(t.Context(), Operation{Step: StepOffset, Run: library(http.MethodGet, client.Endpoint().String(), nil)})
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != c.kind {
			t.Errorf("%s: %v, want %s", name, err, c.kind)
		}
	}
}

// A library's request carries the payload that the caller gives, once with each credential, and goes to the endpoint alone.
func TestLibrarySends(t *testing.T) {
	var got []string
	client := librarian(t, []string{"old-secret-of-this-test", "new-secret-of-this-test"}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		got = append(got, r.Header.Get("Authorization")+": "+string(body))
		w.Header().Set("Mark", "1")
		if strings.Contains(r.Header.Get("Authorization"), "old-") {
			w.WriteHeader(http.StatusBadRequest) // as stores refuse a token that expired
			if _, err := io.WriteString(w, r.Header.Get("Authorization")); err != nil {
				panic(err)
			}
		}
	})
	var moved int64
	o := Operation{
		Step: StepAppend, Body: func() io.Reader { return strings.NewReader("payload") }, Length: 7, Moved: func(n int64) { moved += n },
		Run: library(http.MethodPut, client.Endpoint().String(), strings.NewReader("what the library thinks")),
	}
	if err := client.Operate(t.Context(), o); err != nil || moved != 14 {
		t.Fatalf("%v, %d bytes heard of", err, moved)
	}
	if want := "Signed old-secret-of-this-test: payload, Signed new-secret-of-this-test: payload"; strings.Join(got, ", ") != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	for _, url := range []string{"http://127.0.0.2/", "https://" + client.Endpoint().Host, "http://u@" + client.Endpoint().Host} {
		o.Run = library(http.MethodPut, url, nil)
		if e, ok := errors.AsType[*Error](client.Operate(t.Context(), o)); !ok || e.Kind != KindRequest {
			t.Errorf("%s: %v", url, e)
		}
	}
	gone := errors.New("card removed")
	o.Body = func() io.Reader { return io.MultiReader(strings.NewReader("pay"), &failingReader{gone}) }
	o.Run = library(http.MethodPut, client.Endpoint().String(), nil)
	if e, ok := errors.AsType[*Error](client.Operate(t.Context(), o)); !ok || e.Kind != KindUnread || !errors.Is(e, gone) {
		t.Errorf("bytes that cannot be read: %v", e)
	}
}

type failingReader struct{ err error }

func (f *failingReader) Read([]byte) (int, error) { return 0, f.err }

// No session ends because the server does not know who asks.
func TestGone(t *testing.T) {
	for code, want := range map[wire.Code]bool{wire.CodeNotFound: true, wire.CodeCredentials: false, CodeSetup: false, "": true} {
		e := &Error{Kind: KindProblem, Status: 404, Problem: code, Ruling: Classify(Case{Step: StepOffset, Kind: KindProblem, Status: 404, Problem: code})}
		if e.Gone() != want {
			t.Errorf("%q: gone %v", code, e.Gone())
		}
	}
}
