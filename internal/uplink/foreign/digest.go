package foreign

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/fieldgw/fieldgw/internal/wire"
)

// SHA256 is the name of the digest in the headers of RFC 9530, and WantSHA256 asks for it.
const (
	SHA256     = "sha-256"
	WantSHA256 = SHA256 + "=10"
)

// DigestIn is the SHA-256 in hex of a Repr-Digest; empty without a valid one.
func DigestIn(h http.Header) string {
	digests, err := wire.ParseDigests(h.Values(wire.HeaderReprDigest))
	if sum := digests[SHA256]; err == nil && len(sum) == sha256.Size {
		return hex.EncodeToString(sum)
	}
	return ""
}
