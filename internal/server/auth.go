package server

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// A deviceHandler answers a request of a device.
type deviceHandler func(w http.ResponseWriter, r *http.Request, who store.Identity)

// device lets a request through when its bearer token is valid (RFC 6750, section 2.1).
func (s *Server) device(next deviceHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.identify(r)
		switch {
		case err == nil:
			next(w, r, who)
		case errors.Is(err, errCredentials):
			reply.Problem(w, wire.CodeCredentials, "no valid token: it is missing, unknown, expired or revoked")
		default:
			s.fail(w, r, err)
		}
	}
}

// errCredentials is returned by identify for whatever is not a valid token; which of the reasons it was is not told.
var errCredentials = errors.New("no valid token")

func (s *Server) identify(r *http.Request) (store.Identity, error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return store.Identity{}, errCredentials
	}
	token, err := wire.ParseToken(text)
	if err != nil {
		return store.Identity{}, errCredentials
	}
	known, err := s.records.Token(r.Context(), token.Account, store.HashToken(text))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Identity{}, errCredentials
	case err != nil:
		return store.Identity{}, err
	case !known.Valid(s.opts.Now()):
		return store.Identity{}, errCredentials
	}
	return store.Identity{Account: known.Account, Device: known.Device}, nil
}

// fail answers with the problem that belongs to an error and logs those that a client cannot mend.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code, detail := upload.Refusal(err)
	if code == wire.CodeInternal {
		s.log.Error("request could not be answered", slog.String(logging.KeyEvent, r.Method+" "+r.Pattern), slog.Any(logging.KeyErr, err))
	}
	reply.Problem(w, code, detail)
}
