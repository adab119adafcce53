package foreign

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"

	"github.com/fieldgw/fieldgw/internal/remote"
)

// Unreadable are the answers to GET of servers that do not give out what they stored, or send elsewhere for it.
var Unreadable = []int{
	http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
	http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
	http.StatusGone, http.StatusNotImplemented,
}

// ErrTooLong is returned when more came back than was sent: it is something else.
var ErrTooLong = fmt.Errorf("%w: more came back than was sent", remote.ErrForeign)

// Sink takes the bytes that are read back. It implements io.Writer.
type Sink struct {
	sum   hash.Hash
	most  int64
	n     int64 // bytes in sum
	moved func(n int64)
}

// NewSink takes so many bytes at most; moved hears of them as they come.
func NewSink(most int64, moved func(n int64)) *Sink {
	return &Sink{sum: sha256.New(), most: most, moved: moved}
}

// Write implements io.Writer. Errors: ErrTooLong.
func (s *Sink) Write(p []byte) (int, error) {
	if int64(len(p)) > s.most-s.n {
		return 0, ErrTooLong
	}
	s.n += int64(len(p))
	s.moved(int64(len(p)))
	return s.sum.Write(p)
}

// Sum is how many bytes came back, and their SHA-256 in hex.
func (s *Sink) Sum() (length int64, sha string) { return s.n, hex.EncodeToString(s.sum.Sum(nil)) }

func (s *Sink) reset() {
	s.sum.Reset()
	s.n = 0
}
