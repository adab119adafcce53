package tus_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// server is a tus server in memory. Its fields are set before it serves.
type server struct {
	extensions string
	algorithms string
	maxSize    int64
	// silent: OPTIONS is not answered.
	silent bool
	// sloppy takes an append at any offset, and has its own idea of a status.
	sloppy bool
	// closed does not give back what it stored; telling says its digest.
	closed, telling bool
	// location makes the address of a new upload.
	location func(r *http.Request, id string) string
	// meddle may answer a request itself, and says so; n counts the requests of its method from 1.
	meddle func(s *server, n int, w http.ResponseWriter, r *http.Request) bool

	mu      sync.Mutex
	uploads map[string]*upload
	serial  int
	counts  map[string]int
	sent    int64 // bytes of appends that were taken
}

type upload struct {
	length   int64
	data     []byte
	metadata map[string]string
	turn     int // an append goes on only while it is its turn
}

func newServer() *server {
	return &server{extensions: "creation,termination", uploads: map[string]*upload{}, counts: map[string]int{}}
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.counts[r.Method]++
	n := s.counts[r.Method]
	s.mu.Unlock()
	if s.meddle != nil && s.meddle(s, n, w, r) {
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Tus-Resumable", "1.0.0")
	}
	switch r.Method {
	case http.MethodOptions:
		s.options(w)
	case http.MethodPost:
		s.create(w, r)
	default:
		s.serve(w, r)
	}
}

func (s *server) options(w http.ResponseWriter) {
	if s.silent {
		w.Header().Del("Tus-Resumable")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Tus-Version", "1.0.0,0.2.2")
	w.Header().Set("Tus-Extension", s.extensions)
	w.Header().Set("Tus-Checksum-Algorithm", s.algorithms)
	if s.maxSize > 0 {
		w.Header().Set("Tus-Max-Size", strconv.FormatInt(s.maxSize, 10))
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *server) create(w http.ResponseWriter, r *http.Request) {
	length, err := strconv.ParseInt(r.Header.Get("Upload-Length"), 10, 64)
	if err != nil {
		http.Error(w, "no length", http.StatusBadRequest)
		return
	}
	u := &upload{length: length, metadata: map[string]string{}}
	for _, pair := range strings.Split(r.Header.Get("Upload-Metadata"), ",") {
		key, value, _ := strings.Cut(pair, " ")
		text, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			http.Error(w, "metadata", http.StatusBadRequest)
			return
		}
		u.metadata[key] = string(text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	id := "upload-" + strconv.Itoa(s.serial)
	s.uploads[id] = u
	location := "/files/" + id
	if s.location != nil {
		location = s.location(r, id)
	}
	w.Header().Set("Location", location)
	status := http.StatusCreated
	if s.sloppy && length == 0 {
		status = http.StatusOK // complete already
	}
	w.WriteHeader(status)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	id := path.Base(r.URL.Path)
	u := s.uploads[id]
	if u == nil {
		s.mu.Unlock()
		http.Error(w, "ERR_UPLOAD_NOT_FOUND: upload not found", http.StatusNotFound)
		return
	}
	if r.Method == http.MethodPatch {
		u.turn++
		turn := u.turn
		s.mu.Unlock()
		s.patch(w, r, u, turn)
		return
	}
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodHead:
		u.turn++
		w.Header().Set("Upload-Offset", strconv.Itoa(len(u.data)))
		w.Header().Set("Upload-Length", strconv.FormatInt(u.length, 10))
		if s.telling && r.Header.Get("Want-Repr-Digest") != "" {
			sum := sha256.Sum256(u.data)
			w.Header().Set("Repr-Digest", "md5=:AAAA:, sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
		}
	case http.MethodDelete:
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet:
		if s.closed {
			http.Error(w, "no downloads", http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(u.data))
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *server) patch(w http.ResponseWriter, r *http.Request, u *upload, turn int) {
	from, err := strconv.ParseInt(r.Header.Get("Upload-Offset"), 10, 64)
	s.mu.Lock()
	at := int64(len(u.data))
	if err == nil && s.sloppy && from < at {
		u.data, at = u.data[:from], from
	}
	s.mu.Unlock()
	switch {
	case err != nil || r.Header.Get("Content-Type") != "application/offset+octet-stream":
		http.Error(w, "no append", http.StatusBadRequest)
		return
	case from != at:
		http.Error(w, "ERR_MISMATCHED_OFFSET: mismatched offset", http.StatusConflict)
		return
	case r.ContentLength > u.length-from:
		http.Error(w, "ERR_UPLOAD_SIZE_EXCEEDED: upload's size exceeded", http.StatusRequestEntityTooLarge)
		return
	}
	if sum := r.Header.Get("Upload-Checksum"); sum != "" {
		body, err := io.ReadAll(r.Body)
		want := sha256.Sum256(body)
		if err != nil || sum != "sha256 "+base64.StdEncoding.EncodeToString(want[:]) {
			http.Error(w, `{"error":{"code":"ChecksumMismatch"}}`, 460)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	buf := make([]byte, 4<<10)
	for err = nil; err == nil; {
		var n int
		n, err = r.Body.Read(buf)
		s.mu.Lock()
		if u.turn != turn {
			s.mu.Unlock()
			http.Error(w, "ERR_UPLOAD_INTERRUPTED: upload has been interrupted", http.StatusBadRequest)
			return
		}
		u.data = append(u.data, buf[:n]...)
		s.sent += int64(n)
		at = int64(len(u.data))
		s.mu.Unlock()
	}
	w.Header().Set("Upload-Offset", strconv.FormatInt(at, 10))
	w.WriteHeader(http.StatusNoContent)
}

// stored is the whole upload of an attachment; without one, nil.
func (s *server) stored(m *attachment.Manifest) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.uploads {
		if u.metadata["attachment_id"] == string(m.ID) && int64(len(u.data)) == u.length {
			return u.data
		}
	}
	return nil
}

// change alters every upload.
func (s *server) change(f func(u *upload)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.uploads {
		f(u)
	}
}

func reply(w io.Writer, data []byte) {
	if _, err := w.Write(data); err != nil {
		return // the device is gone
	}
}
