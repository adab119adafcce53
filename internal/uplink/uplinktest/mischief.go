package uplinktest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"
)

// act takes the place of the server for one request.
type act func(m *meddler, w http.ResponseWriter, r *http.Request)

// mischief is what befalls one request.
type mischief struct {
	name string
	// refusal: it is an answer in the server's own protocol, which may need a person.
	refusal bool
	act     act
}

var everyStatus = flag.Bool("uplink.every-status", false, "hostile servers answer with every status, not only one of each kind")

// common has the statuses that drivers or the table of classes treat each in its own way, and one of the rest of each class.
var common = []int{200, 204, 206, 303, 307, 400, 401, 403, 404, 407, 409, 410, 412, 413, 418, 423, 429, 460, 500, 501, 503, 507}

// statuses are those that servers, proxies and portals are known to answer with, and some of nobody's.
var statuses = []int{
	200, 201, 202, 204, 206, 207, 299, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411,
	412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 460, 499, 500, 501, 502, 503, 504, 505,
	507, 508, 511, 520, 522, 599,
}

// cuts are the places in which a connection breaks: before the request is read, at several bytes of its body, and then with
// the request done, before the answer and within it.
var cuts = []string{"before the body", "after one byte", "half-way", "before the last byte", "before the answer", "within the answer's header", "within the answer's body"}

func (k Kind) mischiefs() []mischief {
	all := []mischief{
		{name: "a duplicate", act: duplicate},
		{name: "a late request", act: reorder},
		{name: "a half-open connection", act: halfOpen},
		{name: "an answer after a minute", act: slow(time.Minute)},
		{name: "an answer after an hour", act: slow(time.Hour)},
		{name: "a captive portal", act: portal},
		{name: "an answer to somebody else", act: garbled, refusal: true},
	}
	for _, place := range cuts {
		all = append(all, mischief{name: "a cut " + place, act: cutAt(place)})
	}
	tried := common
	if *everyStatus {
		tried = statuses
	}
	for _, status := range tried {
		bare := func(_ *meddler, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		refused := func(_ *meddler, w http.ResponseWriter, r *http.Request) { k.Refuse(w, r, status) }
		done := func(m *meddler, w http.ResponseWriter, r *http.Request) {
			m.next.ServeHTTP(httptest.NewRecorder(), r)
			k.Refuse(w, r, status)
		}
		all = append(all,
			mischief{name: fmt.Sprintf("a bare %d", status), act: bare, refusal: k.Bare},
			mischief{name: fmt.Sprintf("a %d", status), act: refused, refusal: true},
			mischief{name: fmt.Sprintf("a %d and the work done", status), act: done, refusal: true})
	}
	return all
}

// duplicate serves a request twice, as a proxy that repeats it does; the device gets the second answer.
func duplicate(m *meddler, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for _, to := range []http.ResponseWriter{httptest.NewRecorder(), w} {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		m.next.ServeHTTP(to, again)
	}
}

// reorder breaks the connection and has the request arrive after the next one.
func reorder(m *meddler, _ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	again := r.Clone(context.WithoutCancel(r.Context()))
	again.Body = io.NopCloser(bytes.NewReader(body))
	m.later(func() { m.next.ServeHTTP(httptest.NewRecorder(), again) })
	panic(http.ErrAbortHandler)
}

// halfOpen reads nothing and answers nothing.
func halfOpen(m *meddler, _ http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-m.released:
	}
	panic(http.ErrAbortHandler)
}

func slow(d time.Duration) act {
	return func(m *meddler, w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		m.next.ServeHTTP(rec, r)
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		case <-m.released:
			panic(http.ErrAbortHandler)
		}
		repeat(w, rec, rec.Body.Bytes())
	}
}

func portal(_ *meddler, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	write(w, []byte("<html><body>Welcome to the hotel. Please log in.</body></html>"))
}

// garbled lets the server work and answers with its header and another body.
func garbled(m *meddler, w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	m.next.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	if len(body) > 0 {
		body = []byte(`{"attachment_id":"somebody-else","state":"registered"}`)
	}
	rec.Header().Del("Content-Length")
	repeat(w, rec, body)
}

func repeat(w http.ResponseWriter, rec *httptest.ResponseRecorder, body []byte) {
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	write(w, body)
}

// cutAt breaks the connection in a place; what came before has happened.
func cutAt(place string) act {
	return func(m *meddler, w http.ResponseWriter, r *http.Request) {
		of := slices.Index(cuts, place)
		if of == 0 {
			panic(http.ErrAbortHandler)
		}
		if kept := map[int]int64{1: 1, 2: r.ContentLength / 2, 3: r.ContentLength - 1}[of]; of <= 3 {
			if kept < r.ContentLength {
				r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, max(kept, 0)), failing{}))
			}
		}
		rec := httptest.NewRecorder()
		m.next.ServeHTTP(rec, r)
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		switch of {
		case 5:
			_, err = buf.WriteString("HTTP/1.1 200 OK\r\nContent-Le")
		case 6:
			_, err = buf.WriteString("HTTP/1.1 200 OK\r\nFieldgw-Protocol: 1\r\nTus-Resumable: 1.0.0\r\nContent-Length: 100\r\n\r\n{")
		}
		if err == nil {
			err = buf.Flush()
		}
		if cerr := conn.Close(); err != nil || cerr != nil {
			return // the device is gone already
		}
	}
}
