package uplinktest

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Act answers a request in place of the server; next is the server as it should be.
type Act func(s *Server, w http.ResponseWriter, r *http.Request, next http.Handler)

// Always, as Fault.Times, never ends.
const Always = -1

// Fault makes the server misbehave at one step.
type Fault struct {
	Step remote.Step
	// After so many requests of the step that are answered well.
	After int
	// Times is how often; 0 counts as once.
	Times int
	Act   Act
}

// Inject adds a fault. Of several at one step the first that is due acts.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults = append(s.faults, &f)
}

// Heal removes every fault.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

func (s *Server) fault(step remote.Step) Act {
	for _, f := range s.faults {
		if f.Step != step || f.Times == 0 {
			continue
		}
		if f.After > 0 {
			f.After--
			continue
		}
		if f.Times > 0 {
			f.Times--
		}
		return f.Act
	}
	return nil
}

// Release ends every wait of Hang and Slow; no later request waits.
func (s *Server) Release() { s.once.Do(func() { close(s.released) }) }

// Foreign answers as somebody else would: without the protocol's mark, and without reading the request.
func Foreign(status int, header http.Header, body string) Act {
	return func(_ *Server, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		maps.Copy(w.Header(), header)
		w.WriteHeader(status)
		write(w, []byte(body))
	}
}

// Refuse answers with a problem of ours. header may be nil.
func Refuse(status int, code wire.Code, header http.Header) Act {
	return func(_ *Server, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		maps.Copy(w.Header(), header)
		problem(w, status, code, "told to refuse")
	}
}

// recording keeps a final answer back. Interim ones go out as they come.
type recording struct {
	*httptest.ResponseRecorder
	live http.ResponseWriter
}

func record(w http.ResponseWriter) recording { return recording{httptest.NewRecorder(), w} }

// WriteHeader implements http.ResponseWriter.
func (r recording) WriteHeader(status int) {
	if status >= 200 {
		r.ResponseRecorder.WriteHeader(status)
		return
	}
	maps.Copy(r.live.Header(), r.Header())
	r.live.WriteHeader(status)
}

// RefuseFieldgw answers with a status as a fieldgw server of a later version might: marked, with a code that nobody knows.
func RefuseFieldgw(w http.ResponseWriter, _ *http.Request, status int) {
	problem(w, status, "a_code_of_the_future", "told to refuse")
}

// Edit lets the server work and changes its answer before it leaves.
func Edit(change func(status int, header http.Header, body []byte) (int, []byte)) Act {
	return func(_ *Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := record(w)
		next.ServeHTTP(rec, r)
		header := rec.Header().Clone()
		status, body := change(rec.Code, header, rec.Body.Bytes())
		maps.Copy(w.Header(), header)
		w.WriteHeader(status)
		write(w, body)
	}
}

// Offset changes the confirmed offset in the answer.
func Offset(change func(real int64) string) Act {
	return Edit(func(status int, h http.Header, body []byte) (int, []byte) {
		real, err := strconv.ParseInt(h.Get(wire.HeaderUploadOffset), 10, 64)
		if err == nil {
			h.Set(wire.HeaderUploadOffset, change(real))
		}
		return status, body
	})
}

// Cut breaks the connection after n bytes of the request's body, which the server keeps. With as many as there are, or
// more, only the answer is lost.
func Cut(n int64) Act {
	return func(_ *Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if n < r.ContentLength {
			r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, n), failing{}))
		}
		next.ServeHTTP(record(w), r)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil || conn.Close() != nil {
			return
		}
	}
}

type failing struct{}

// Read implements io.Reader.
func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Hang keeps n bytes of the body and then neither reads nor answers until Release.
func Hang(n int64) Act {
	return func(s *Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, n), failing{}))
		next.ServeHTTP(record(w), r)
		<-s.released
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// Slow lets the server work and holds the answer back for so long.
func Slow(d time.Duration) Act {
	return func(s *Server, w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := record(w)
		next.ServeHTTP(rec, r)
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.released:
		}
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		write(w, rec.Body.Bytes())
	}
}

// write ignores a device that went away.
func write(w io.Writer, data []byte) {
	if _, err := w.Write(data); err != nil {
		return
	}
}
