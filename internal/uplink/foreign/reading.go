package foreign

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// SHA256 is the name of the digest in Repr-Digest and Want-Repr-Digest (RFC 9530).
const SHA256 = "sha-256"

// DigestIn is the SHA-256 in hex of a Repr-Digest; empty without a valid one.
func DigestIn(h http.Header) string {
	digests, err := wire.ParseDigests(h.Values(wire.HeaderReprDigest))
	if sum := digests[SHA256]; err == nil && len(sum) == sha256.Size {
		return hex.EncodeToString(sum)
	}
	return ""
}

// Unreadable are the answers to GET of servers that do not give out what they stored, or send elsewhere for it.
var Unreadable = []int{
	http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
	http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
	http.StatusGone, http.StatusNotImplemented,
}

// ErrTooLong is returned when more came back than was sent: it is something else.
var ErrTooLong = fmt.Errorf("%w: more came back than was sent", remote.ErrForeign)

// Reading takes the bytes that are read back. It implements io.Writer.
type Reading struct {
	sum    hash.Hash
	length int64
	taken  int64
	moved  func(n int64)
}

// NewReading expects so many bytes at most; moved hears of them as they come.
func NewReading(length int64, moved func(n int64)) *Reading {
	return &Reading{sum: sha256.New(), length: length, moved: moved}
}

// Write implements io.Writer. Errors: ErrTooLong.
func (r *Reading) Write(p []byte) (int, error) {
	if int64(len(p)) > r.length-r.taken {
		return 0, ErrTooLong
	}
	r.taken += int64(len(p))
	r.moved(int64(len(p)))
	return r.sum.Write(p)
}

// Sum is how many bytes came back, and their SHA-256 in hex.
func (r *Reading) Sum() (length int64, sha string) {
	return r.taken, hex.EncodeToString(r.sum.Sum(nil))
}
