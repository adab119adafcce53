package remote

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/logging"
)

// ErrCertificate is returned when the device's own certificate cannot be used.
var ErrCertificate = errors.New("the device's certificate cannot be used")

// certificate is the device's own, by which a server may know it. It is read again when one of its files changes. Two files
// cannot be replaced at once: while the new pair does not fit, the old one is used.
type certificate struct {
	certFile, keyFile string
	check             func(*x509.Certificate) error // nil accepts all
	log               *slog.Logger

	mu    sync.Mutex
	stamp string // of the last reading, successful or not
	pair  *tls.Certificate
	err   error
}

// LoadCertificate reads a certificate chain and its key, whose file must be as private as a credential's. Errors contain
// nothing of the key.
func LoadCertificate(certFile, keyFile string) (*tls.Certificate, error) {
	chain, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	key, err := config.ReadCredential(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(chain, []byte(key))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	return &pair, nil
}

func (c *certificate) now() string {
	return CredentialFile(c.certFile).Stamp() + "/" + CredentialFile(c.keyFile).Stamp()
}

// refresh reads the files if they changed, and reports whether connections that were made before are made with another
// certificate. The error says why there is none to send with.
func (c *certificate) refresh(now time.Time) (replaced bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stamp := c.now(); stamp != c.stamp {
		var pair *tls.Certificate
		pair, c.err = LoadCertificate(c.certFile, c.keyFile)
		if c.err == nil && c.check != nil {
			c.err = c.check(pair.Leaf)
		}
		switch {
		case c.err == nil:
			replaced, c.pair = c.pair != nil, pair
		case c.pair != nil:
			c.log.Warn("the new client certificate cannot be used; going on with the one before", slog.Any(logging.KeyErr, c.err))
		}
		c.stamp = stamp
	}
	switch {
	case c.pair == nil:
		return false, c.err
	case now.After(c.pair.Leaf.NotAfter):
		return replaced, fmt.Errorf("%w: it expired on %s", ErrCertificate, c.pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return replaced, nil
}

func (c *certificate) changed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now() != c.stamp
}

// give implements tls.Config.GetClientCertificate. The server's list of authorities is not asked: who made the certificate
// configured it for this server.
func (c *certificate) give(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair == nil {
		return nil, c.err
	}
	return c.pair, nil
}

// isOwnCertificate reports whether the other side of TLS refused the device's certificate, or misses one. The type of an
// alert is crypto/tls's own, a number (RFC 8446, 6).
func isOwnCertificate(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return false
	}
	alert := reflect.ValueOf(op.Err)
	if alert.Kind() != reflect.Uint8 {
		return false
	}
	switch alert.Uint() {
	case 42, 43, 44, 45, 46, 48, 49, 116: // a bad, unsupported, revoked, expired, unknown, untrusted, forbidden or missing one
		return true
	}
	return false
}
