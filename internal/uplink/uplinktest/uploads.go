package uplinktest

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// find answers for an upload that is not there. The lock is held.
func (s *Server) find(w http.ResponseWriter, r *http.Request) *upload {
	u := s.uploads[r.PathValue("id")]
	switch {
	case !partial(r) && r.Header.Get(wire.HeaderTusResumable) != wire.TusVersion:
		problem(w, http.StatusPreconditionFailed, wire.CodeTusVersion, "speak tus 1.0.0")
		return nil
	case u == nil:
		problem(w, http.StatusNotFound, wire.CodeNotFound, "no such upload")
		return nil
	case u.void:
		problem(w, http.StatusGone, wire.CodeSessionGone, "void session")
		return nil
	}
	if !partial(r) {
		w.Header().Set(wire.HeaderTusResumable, wire.TusVersion)
	}
	return u
}

func (s *Server) offset(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.find(w, r); u != nil {
		u.turn++
		s.state(w.Header(), u)
		w.WriteHeader(http.StatusOK)
	}
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.find(w, r); u != nil {
		u.void = true
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) append(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	u := s.find(w, r)
	if u == nil {
		s.mu.Unlock()
		return
	}
	refused := true
	from, err := strconv.ParseInt(r.Header.Get(wire.HeaderUploadOffset), 10, 64)
	media := map[bool]string{true: wire.ContentTypePartial, false: wire.ContentTypeOffset}[partial(r)]
	switch {
	case err != nil || r.Header.Get("Content-Type") != media || partial(r) && !readable(r.Header.Get(wire.HeaderUploadComplete)):
		problem(w, http.StatusBadRequest, wire.CodeInvalid, "not an append")
	case from != int64(len(u.data)):
		s.state(w.Header(), u)
		problem(w, http.StatusConflict, wire.CodeOffsetMismatch, "another offset")
	case r.ContentLength < 0 || r.ContentLength > u.item.facts.Length-from || s.max > 0 && r.ContentLength > s.max:
		problem(w, http.StatusRequestEntityTooLarge, wire.CodeAppendLimit, "too large")
	default:
		refused = false
		u.turn++
	}
	turn := u.turn
	s.mu.Unlock()
	if refused {
		return
	}
	err = s.take(u, turn, r.Body, s.teller(w, r))
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.created && err == nil {
		u.done = u.done || r.Header.Get(wire.HeaderUploadComplete) == "?1"
	}
	switch {
	case err != nil:
		problem(w, http.StatusBadRequest, wire.CodeInvalid, "interrupted")
	case !s.finish(u):
		w.Header().Set(wire.HeaderUploadComplete, "?1")
		problem(w, http.StatusUnprocessableEntity, wire.CodeDigestMismatch, "other bytes")
	default:
		s.state(w.Header(), u)
		w.WriteHeader(http.StatusNoContent)
	}
}

func readable(complete string) bool { return complete == "?0" || complete == "?1" }

// teller tells, in an append of Resumable Uploads for HTTP, what is stored while it lasts.
func (s *Server) teller(w http.ResponseWriter, r *http.Request) func(stored int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	interim := s.interim
	if !partial(r) || interim == nil {
		return func(int64) {}
	}
	return func(stored int64) {
		for _, offset := range interim(stored) {
			w.Header().Set(wire.HeaderInteropVersion, version)
			w.Header().Set(wire.HeaderUploadOffset, strconv.FormatInt(offset, 10))
			w.WriteHeader(wire.StatusResumption)
		}
	}
}

var errTurn = errors.New("a newer request came")

// take keeps what arrives, as it arrives.
func (s *Server) take(u *upload, turn int, body io.Reader, tell func(stored int64)) error {
	buf := make([]byte, 4<<10)
	for {
		n, err := body.Read(buf)
		s.mu.Lock()
		current := u.turn == turn && !u.void
		if current && n > 0 {
			from := int64(len(u.data))
			u.data = append(u.data, buf[:n]...)
			if s.received != nil {
				s.received(u.item.id, from, from+int64(n))
			}
		}
		stored := int64(len(u.data))
		s.mu.Unlock()
		if current && n > 0 {
			tell(stored)
		}
		switch {
		case !current:
			return errTurn
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// finish verifies an upload that is complete; false says that its bytes are others than declared.
func (s *Server) finish(u *upload) bool {
	if !u.complete() || u.item.state != wire.StateReserved {
		return true
	}
	other := digest(u.data) != u.item.facts.SHA256
	if u.created {
		other = u.declared != "" && u.declared != reprDigest(u.data)
	}
	if other {
		u.void, u.digest = true, true
		return false
	}
	u.item.state = wire.StateVerified
	return true
}

// The methods below change what the server has, behind its back. They say whether there was something to change.

// SetToken makes the server take another token.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// SetMaxAppend bounds an append, in bytes; 0 for no limit.
func (s *Server) SetMaxAppend(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max = n
}

// SetPending makes registrations wait for their parent, or not.
func (s *Server) SetPending(pending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = pending
}

// SetGrade is what receipts are worth from now on.
func (s *Server) SetGrade(g receipt.Grade) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grade = g
}

// OnReceived has f called, with the server's lock held, for every run of payload bytes as it arrives.
func (s *Server) OnReceived(f func(id string, from, to int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = f
}

func (s *Server) change(id string, f func(it *item)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[id]
	if it != nil {
		f(it)
	}
	return it != nil
}

// Lose voids the attachment's session; one that was verified has its bytes to send again.
func (s *Server) Lose(id string) bool {
	return s.change(id, func(it *item) {
		it.state = wire.StateReserved
		if it.upload != nil {
			it.upload.void = true
		}
	})
}

// Forget removes the attachment altogether.
func (s *Server) Forget(id string) bool {
	found := s.Lose(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.items, id)
	return found
}

// Truncate takes bytes back that were confirmed, which no server may do.
func (s *Server) Truncate(id string, n int64) bool {
	return s.change(id, func(it *item) { it.upload.data = it.upload.data[:n] })
}

// Corrupt changes one stored byte.
func (s *Server) Corrupt(id string, at int64) bool {
	return s.change(id, func(it *item) { it.upload.data[at] ^= 0x40 })
}

// Stored returns the bytes of the attachment's session.
func (s *Server) Stored(id string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if it := s.items[id]; it != nil && it.upload != nil {
		return slices.Clone(it.upload.data)
	}
	return nil
}

// Registered reports whether the attachment has a receipt.
func (s *Server) Registered(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.items[id]
	return it != nil && it.state == wire.StateRegistered
}
