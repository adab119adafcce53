package upload

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
)

// Sum is a checksum that a body must have.
type Sum struct {
	hash hash.Hash
	want []byte
}

// newSum is a checksum of one of the algorithms here, by its name in tus and in Digest Fields (RFC 9530); ok is false for
// any other.
func newSum(algorithm string, want []byte) (sum Sum, ok bool) {
	switch algorithm {
	case "sha1": // tus 1.0.0 demands it; it finds damage, and nothing is trusted on it
		return Sum{sha1.New(), want}, true
	case "sha256", "sha-256":
		return Sum{sha256.New(), want}, true
	case "sha-512":
		return Sum{sha512.New(), want}, true
	}
	return Sum{}, false
}

// whole reports whether the body counts wholly or not at all.
func (b Body) whole() bool { return len(b.Sums) > 0 }

// hash takes the next bytes of the body into its checksums.
func (b Body) hash(p []byte) {
	for _, sum := range b.Sums {
		_, _ = sum.hash.Write(p) // never fails (package hash)
	}
}

// verify tells, after the last byte, whether the body has its checksums. Errors: ErrChecksum.
func (b Body) verify() error {
	for _, sum := range b.Sums {
		if !bytes.Equal(sum.hash.Sum(nil), sum.want) {
			return ErrChecksum
		}
	}
	return nil
}
