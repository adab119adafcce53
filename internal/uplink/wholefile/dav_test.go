package wholefile_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// dav is a web server that takes files, in memory: it keeps what arrived of a request that broke off, as some do.
type dav struct {
	// blind: it heeds no condition. mute: it gives nothing back. flat: it has all directories. tells: it tells digests.
	blind, mute, flat, tells bool

	mu      sync.Mutex
	files   map[string][]byte
	dirs    map[string]bool
	calls   []string // method and path
	headers []http.Header
}

func newDav(set ...func(*dav)) *dav {
	d := &dav{files: map[string][]byte{}, dirs: map[string]bool{"/": true}}
	for _, f := range set {
		f(d)
	}
	return d
}

// ServeHTTP implements http.Handler.
func (d *dav) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status := d.answer(w, r); status != http.StatusOK {
		w.WriteHeader(status)
	}
}

func (d *dav) answer(w http.ResponseWriter, r *http.Request) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, r.Method+" "+r.URL.Path)
	d.headers = append(d.headers, r.Header.Clone())
	return d.serve(w, r)
}

// serve answers a request, or returns the status to answer with. The lock is held, but not while a body is read.
func (d *dav) serve(w http.ResponseWriter, r *http.Request) int {
	at := r.URL.Path
	content, there := d.files[at]
	switch r.Method {
	case http.MethodPut:
		return d.put(r, at, there)
	case "MKCOL":
		dir := strings.TrimSuffix(at, "/")
		switch {
		case d.dirs[dir]:
			return http.StatusMethodNotAllowed
		case !d.dirs[path.Dir(dir)]:
			return http.StatusConflict
		}
		d.dirs[dir] = true
		return http.StatusCreated
	case http.MethodDelete:
		delete(d.files, at)
		if !there {
			return http.StatusNotFound
		}
		return http.StatusNoContent
	case http.MethodHead, http.MethodGet:
		switch {
		case at == "/":
			return http.StatusForbidden
		case !there:
			return http.StatusNotFound
		case d.mute && r.Method == http.MethodGet:
			return http.StatusForbidden
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		w.Header().Set("Content-Type", "image/jpeg")
		if d.tells && r.Header.Get(wire.HeaderWantReprDigest) != "" {
			sum := sha256.Sum256(content)
			w.Header().Set(wire.HeaderReprDigest, wire.FormatDigest("sha-256", sum[:]))
		}
		if r.Method == http.MethodGet {
			if _, err := w.Write(content); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		return http.StatusOK
	}
	return http.StatusMethodNotAllowed
}

func (d *dav) put(r *http.Request, at string, there bool) int {
	switch {
	case !d.flat && !d.dirs[path.Dir(at)]:
		return http.StatusConflict
	case there && !d.blind && r.Header.Get("If-None-Match") == "*":
		return http.StatusPreconditionFailed
	}
	var got bytes.Buffer
	d.mu.Unlock()
	_, err := io.Copy(&got, r.Body)
	d.mu.Lock()
	d.files[at] = got.Bytes()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return http.StatusCreated
}

func (d *dav) stored(at string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[at]
}

func (d *dav) store(at string, content []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[at] = content
}

// count is how many requests of a method arrived.
func (d *dav) count(method string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if strings.HasPrefix(c, method+" ") {
			n++
		}
	}
	return n
}
