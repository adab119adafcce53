package wire

import (
	"errors"
	"fmt"
	"strings"
)

// IdentityScheme begins the URI by which a client certificate names account and device: fieldgw:ACCOUNT:DEVICE, as a
// subjectAltName. A certificate that an authority issued for something else has none, and is no identity here.
const IdentityScheme = "fieldgw"

// ErrIdentity is returned by ParseIdentity for what names no account and device.
var ErrIdentity = errors.New("not the URI of a device")

// IdentityURI is the URI of a device.
func IdentityURI(account, device string) string {
	return IdentityScheme + ":" + account + ":" + device
}

// ParseIdentity finds account and device in the URIs of a certificate. There is exactly one of this scheme.
func ParseIdentity(uris []string) (account, device string, err error) {
	found := 0
	for _, uri := range uris {
		rest, ours := strings.CutPrefix(uri, IdentityScheme+":")
		if !ours {
			continue
		}
		found++
		account, device, _ = strings.Cut(rest, ":")
	}
	switch {
	case found != 1:
		return "", "", fmt.Errorf("%w: %d with the scheme %s, want 1", ErrIdentity, found, IdentityScheme)
	case !ValidName(account) || !ValidName(device):
		return "", "", fmt.Errorf("%w: account or device is not a name", ErrIdentity)
	}
	return account, device, nil
}
