package server

import (
	"crypto/x509"
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

// device lets a request through when its bearer token is valid (RFC 6750, section 2.1), or, where it has none, when its
// client certificate is.
func (s *Server) device(next deviceHandler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.identify(r)
		switch {
		case err == nil:
			next(w, r, who)
		case errors.Is(err, errCredentials):
			reply.Problem(w, wire.CodeCredentials, "no valid token or certificate: it is missing, unknown, expired or revoked")
		default:
			s.fail(w, r, err)
		}
	}
}

// errCredentials is returned by identify for whatever is not a valid token or certificate; which of the reasons it was is not told.
var errCredentials = errors.New("no valid token")

func (s *Server) identify(r *http.Request) (store.Identity, error) {
	if r.Header.Get("Authorization") == "" && s.opts.ClientCAs != nil && r.TLS != nil {
		return s.certified(r.TLS.PeerCertificates)
	}
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

// certified is the identity that a certificate names. It is looked at for every request, since it may expire while its
// connection lasts. The handshake has shown that the client has its key.
func (s *Server) certified(chain []*x509.Certificate) (store.Identity, error) {
	if len(chain) == 0 {
		return store.Identity{}, errCredentials
	}
	options := x509.VerifyOptions{
		Roots: s.opts.ClientCAs, Intermediates: x509.NewCertPool(), CurrentTime: s.opts.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(options)
	var who store.Identity
	if err == nil {
		who.Account, who.Device, err = wire.ParseIdentity(urisOf(chain[0]))
	}
	if err != nil {
		s.log.Debug("client certificate refused", slog.Any(logging.KeyErr, err))
		return store.Identity{}, errCredentials
	}
	return who, nil
}

func urisOf(c *x509.Certificate) (uris []string) {
	for _, u := range c.URIs {
		uris = append(uris, u.String())
	}
	return uris
}

// fail answers with the problem that belongs to an error and logs those that a client cannot mend.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code, detail := upload.Refusal(err)
	if code == wire.CodeInternal {
		s.log.Error("request could not be answered", slog.String(logging.KeyEvent, r.Method+" "+r.Pattern), slog.Any(logging.KeyErr, err))
	}
	reply.Problem(w, code, detail)
}
