package remote

import (
	"crypto/x509"
	"fmt"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// Token is what a token's text says in clear, so that a device that is offline knows whom it works for.
type Token struct {
	Account string
	Device  string
}

// CertificateIdentity is what a certificate says of the device it was issued to.
func CertificateIdentity(c *x509.Certificate) (Token, error) {
	uris := make([]string, len(c.URIs))
	for i, u := range c.URIs {
		uris[i] = u.String()
	}
	account, device, err := wire.ParseIdentity(uris)
	return Token{Account: account, Device: device}, err
}

// ParseToken reads the text of a token (wire.ParseToken) and keeps what is not secret. Errors wrap ErrBadToken and contain
// no part of the text.
func ParseToken(text string) (Token, error) {
	t, err := wire.ParseToken(text)
	if err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrBadToken, err)
	}
	return Token{Account: t.Account, Device: t.Device}, nil
}
