package uplinktest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Interim decides which offsets are told while an append lasts, once so many bytes are stored.
type Interim func(stored int64) []int64

// Truly tells every offset as it is.
func Truly(stored int64) []int64 { return []int64{stored} }

// InSteps tells no offsets but multiples of every.
func InSteps(every int64) Interim {
	return func(stored int64) []int64 { return []int64{stored - stored%every} }
}

// Offer names the dialects that a reservation offers; at first tus alone.
func (s *Server) Offer(dialects ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialects = dialects
}

// SetInterim replaces what is told while an append lasts; nil tells nothing.
func (s *Server) SetInterim(f Interim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interim = f
}

// SetLimits changes the Upload-Limit of uploads that devices create.
func (s *Server) SetLimits(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = text
}

// SetDigests makes the server say the digest over what it stored, or not.
func (s *Server) SetDigests(said bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.digests = said
}

// partial reports whether a request is one of Resumable Uploads for HTTP.
func partial(r *http.Request) bool { return r.Header.Get(wire.HeaderInteropVersion) == version }

var version = strconv.Itoa(wire.InteropVersion)

// discover is OPTIONS where uploads are created.
func (s *Server) discover(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set(wire.HeaderUploadLimit, s.limits)
	w.WriteHeader(http.StatusNoContent)
}

// create is the beginning of an upload without content.
func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	length, err := strconv.ParseInt(r.Header.Get(wire.HeaderUploadLength), 10, 64)
	if err != nil || r.Header.Get(wire.HeaderUploadComplete) != "?0" || r.ContentLength != 0 {
		problem(w, http.StatusBadRequest, wire.CodeInvalid, "not a careful creation")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	it := &item{state: wire.StateReserved}
	it.facts.Length = length
	u := &upload{id: s.name("upload"), item: it, created: true, declared: r.Header.Get(wire.HeaderReprDigest)}
	it.id, it.upload = u.id, u
	s.uploads[u.id] = u
	h := w.Header()
	h.Set("Location", "/v1/uploads/"+u.id)
	h.Set(wire.HeaderUploadLimit, s.limits)
	if partial(r) {
		h.Set(wire.HeaderInteropVersion, version)
		w.WriteHeader(wire.StatusResumption)
	}
	h.Set(wire.HeaderUploadComplete, "?0")
	w.WriteHeader(http.StatusCreated)
}

// state puts an upload's state into an answer. The lock is held.
func (s *Server) state(h http.Header, u *upload) {
	h.Set(wire.HeaderUploadOffset, strconv.Itoa(len(u.data)))
	h.Set(wire.HeaderUploadLength, strconv.FormatInt(u.item.facts.Length, 10))
	h.Set(wire.HeaderUploadComplete, map[bool]string{true: "?1", false: "?0"}[u.complete()])
	h.Set(wire.HeaderUploadLimit, s.limits)
	if s.digests && u.complete() {
		h.Set(wire.HeaderReprDigest, reprDigest(u.data))
	}
}

func reprDigest(data []byte) string { return "sha-256=:" + base64Digest(data) + ":" }

// download gives back what was uploaded.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	u := s.uploads[r.PathValue("id")]
	if u == nil || u.void || !u.complete() {
		s.mu.Unlock()
		problem(w, http.StatusNotFound, wire.CodeNotFound, "no such upload")
		return
	}
	s.state(w.Header(), u)
	data := u.data
	s.mu.Unlock()
	write(w, data)
}

// Completed returns the bytes of a completed upload of a length that a device created.
func (s *Server) Completed(length int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.uploads {
		if u.created && u.done && !u.void && u.item.facts.Length == length {
			return slices.Clone(u.data)
		}
	}
	return nil
}

// LateInterim lets the server work, and sends interim answers after the final one.
func LateInterim(offsets ...int64) Act {
	return func(_ *Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := record(w)
		next.ServeHTTP(rec, r)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		var text strings.Builder
		fmt.Fprintf(&text, "HTTP/1.1 %d Final\r\n", rec.Code)
		if err := rec.Header().Write(&text); err != nil {
			return
		}
		text.WriteString("\r\n")
		for _, offset := range offsets {
			fmt.Fprintf(&text, "HTTP/1.1 104 Upload Resumption Supported\r\n%s: %s\r\n%s: %d\r\n\r\n",
				wire.HeaderInteropVersion, version, wire.HeaderUploadOffset, offset)
		}
		write(conn, []byte(text.String()))
		if conn.Close() != nil {
			return
		}
	}
}

// Resumable makes the rig's endpoint the place where the server lets devices create uploads, for drivers that know no
// control plane.
func Resumable(o *remote.Options) { o.Endpoint += "v1/uploads" }
