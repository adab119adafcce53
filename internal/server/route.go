package server

import (
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/status", methods{http.MethodGet: s.status})
	mux.Handle("/v1/attachments", methods{http.MethodGet: s.device(s.list)})
	mux.Handle("/v1/attachments/{id}", methods{http.MethodPut: s.device(s.reserve), http.MethodGet: s.device(s.show)})
	mux.Handle("/v1/attachments/{id}/registration", methods{http.MethodPost: s.device(s.register)})
	mux.Handle("/v1/attachments/{id}/content", methods{http.MethodGet: s.device(s.content), http.MethodHead: s.device(s.content)})
	mux.Handle(strings.TrimSuffix(upload.Path, "/"), override(methods{
		http.MethodOptions: s.rufh.Options(s.tus.Options),
		http.MethodPost:    s.device(either(s.tus.Create, s.rufh.Create)),
		http.MethodPut:     s.device(s.rufh.Create),
	}))
	mux.Handle(upload.Path+"{session}", override(methods{
		http.MethodOptions: s.rufh.Options(s.tus.Options),
		http.MethodGet:     s.device(session(s.rufh.Head)),
		http.MethodHead:    s.device(either(session(s.tus.Head), session(s.rufh.Head))),
		http.MethodPatch:   s.device(either(session(s.tus.Patch), session(s.rufh.Patch))),
		http.MethodDelete:  s.device(either(session(s.tus.Delete), session(s.rufh.Delete))),
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		reply.Problem(w, wire.CodeNotFound, "no such route")
	})
	return mux
}

// methods answers one path by method.
type methods map[string]http.HandlerFunc

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler, ok := m[r.Method]; ok {
		handler(w, r)
		return
	}
	allowed := make([]string, 0, len(m))
	for method := range m {
		allowed = append(allowed, method)
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	reply.Problem(w, wire.CodeMethod, "this resource does not take the method")
}

// override takes the method that the client names in a header over the one of the request line, for networks that let
// only some methods pass (tus 1.0.0, X-HTTP-Method-Override).
func override(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if method := r.Header.Get(wire.HeaderMethodOverride); method != "" {
			copied := *r // net/http frames the answer by the method of the original
			copied.Method = method
			r = &copied
		}
		next.ServeHTTP(w, r)
	})
}

func session(next func(http.ResponseWriter, *http.Request, store.Identity, string)) deviceHandler {
	return func(w http.ResponseWriter, r *http.Request, who store.Identity) {
		next(w, r, who, r.PathValue("session"))
	}
}

// either answers in the dialect that the request is in.
func either(tus, rufh deviceHandler) deviceHandler {
	return func(w http.ResponseWriter, r *http.Request, who store.Identity) {
		if upload.SpeaksTus(r) {
			tus(w, r, who)
			return
		}
		rufh(w, r, who)
	}
}

// middleware does what belongs to every request: common headers, one spelling of each path, an answer after a panic, and
// a limit on reading what is left of a body.
func (s *Server) middleware(next http.Handler) http.Handler {
	asterisk := methods{http.MethodOptions: s.rufh.Options(s.tus.Options)}.ServeHTTP
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply.Common(w.Header())
		a := &answer{ResponseWriter: w, conn: http.NewResponseController(w), limit: s.limits.Answer}
		// Of this and the other deadlines here: where there is no connection, or none any more, there is nothing to limit.
		_ = a.conn.SetWriteDeadline(time.Time{})
		defer func() {
			if cause := recover(); cause != nil {
				s.panicked(a, r, cause)
			}
			if r.ContentLength != 0 {
				_ = a.conn.SetReadDeadline(time.Now().Add(discardTime))
			}
		}()
		switch {
		case r.RequestURI == "*": // of which http.ServeMux knows nothing
			asterisk(a, r)
		case path.Clean(r.URL.Path) != r.URL.Path:
			reply.Problem(a, wire.CodeNotFound, "no such route")
		default:
			next.ServeHTTP(a, r)
		}
	})
}

func (s *Server) panicked(a *answer, r *http.Request, cause any) {
	if cause == http.ErrAbortHandler { // the handler wants no answer
		panic(cause)
	}
	s.log.Error("request handler panicked", slog.String(logging.KeyEvent, r.Method+" "+r.Pattern), slog.Any(logging.KeyErr, cause),
		slog.String(logging.KeyFailure, string(debug.Stack())))
	if a.begun {
		// The client must not take the part that it has for the whole.
		panic(http.ErrAbortHandler)
	}
	reply.Problem(a, wire.CodeInternal, "the server could not do this; its log says why")
}

// answer notes whether an answer has begun, and limits how long the client may take to read each piece of it.
type answer struct {
	http.ResponseWriter
	conn  *http.ResponseController
	limit time.Duration
	begun bool
}

func (a *answer) WriteHeader(status int) {
	begun := a.begun
	a.begin()
	a.ResponseWriter.WriteHeader(status)
	if status < http.StatusOK { // the answer itself is still to come, whenever that is
		a.begun = begun
		_ = a.conn.SetWriteDeadline(time.Time{})
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.begin()
	return a.ResponseWriter.Write(p)
}

func (a *answer) begin() {
	a.begun = true
	_ = a.conn.SetWriteDeadline(time.Now().Add(a.limit))
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	reply.JSON(w, http.StatusOK, wire.Status{Service: wire.ServiceName, Protocol: wire.Protocol, Epoch: s.records.Epoch()})
}
