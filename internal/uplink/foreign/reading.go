package foreign

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

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
