package foreign

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"sync"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// Readings read stored bytes back to hash them. One that breaks off goes on where it was, if the server gives parts of what it
// stored (RFC 9110, 14): otherwise a large file would never come back over a link that does not last that long. The zero value
// is ready to use. What was read is kept in memory alone.
type Readings struct {
	mu     sync.Mutex
	broken map[string]*reading // by address
}

const (
	maxBroken = 64 // readings that are kept; beyond it all are forgotten, which only costs reading
	maxBreaks = 8  // of one Read, each with more read than before
)

// Content is what came back.
type Content struct {
	Length int64
	SHA256 string
	Answer *remote.Response // the last one
}

// ErrTooLong is returned when more came back than was sent: it is something else.
var ErrTooLong = fmt.Errorf("%w: more came back than was sent", remote.ErrForeign)

// Read sends a GET, whose URL is set, until the whole of m's bytes came back. Bytes are told to uplink.Progress. Every error is a
// *remote.Error, or wraps ErrTooLong.
func (r *Readings) Read(ctx context.Context, c *remote.Client, get remote.Request, m *attachment.Manifest) (Content, error) {
	at := r.take(get.URL.String())
	at.length, at.moved = m.Length, uplink.Progress(ctx)
	for breaks := 0; ; breaks++ {
		furthest := at.n
		answer, err := at.once(ctx, c, get)
		e, judged := errors.AsType[*remote.Error](err)
		switch {
		case err == nil:
			got := Content{Length: at.n, SHA256: hex.EncodeToString(at.sum.Sum(nil)), Answer: answer}
			if at.parts == 1 || got.Length == m.Length && got.SHA256 == m.SHA256.String() {
				return got, nil
			}
			at.reset() // the parts do not fit, which may be theirs: once in one piece
			at.whole = true
		case errors.Is(err, ErrTooLong):
			return Content{}, err
		case errors.Is(err, errParts):
			at.reset()
			at.whole = true
		case !judged || e.Status != 0:
			return Content{}, err
		case at.n <= furthest || breaks >= maxBreaks || e.Kind != remote.KindBroken && e.Kind != remote.KindStalled:
			r.keep(get.URL.String(), at)
			return Content{}, err
		}
	}
}

func (r *Readings) take(address string) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.broken[address]
	delete(r.broken, address)
	if at == nil {
		at = &reading{sum: sha256.New()}
	}
	return at
}

func (r *Readings) keep(address string, at *reading) {
	if at.n == 0 || at.n >= at.length || at.whole {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil || len(r.broken) >= maxBroken {
		r.broken = map[string]*reading{}
	}
	at.moved = nil
	r.broken[address] = at
}

// reading is how far stored bytes have come back.
type reading struct {
	sum    hash.Hash
	n      int64 // bytes in sum
	parts  int   // answers that they came in
	length int64 // of all
	whole  bool  // parts are of no use
	misfit bool  // the answer is another part than was asked for
	moved  func(n int64)
}

func (r *reading) reset() {
	r.sum.Reset()
	r.n, r.parts = 0, 0
}

var errParts = errors.New("another part came back than was asked for")

// once sends one request for what is left.
func (r *reading) once(ctx context.Context, c *remote.Client, get remote.Request) (*remote.Response, error) {
	header := get.Header.Clone()
	header.Set("Accept-Encoding", "identity")
	if r.n >= r.length || r.whole {
		r.reset()
	}
	if r.n > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", r.n))
	}
	get.Header, get.Answered = header, r.answered
	return c.Download(ctx, get, r)
}

// answered looks whether it is the part that was asked for, or all of it.
func (r *reading) answered(status int, header http.Header) {
	if status != http.StatusPartialContent {
		r.reset()
	}
	r.parts++
	want := fmt.Sprintf("bytes %d-%d/%d", r.n, r.length-1, r.length)
	r.misfit = status == http.StatusPartialContent && strings.TrimSpace(header.Get("Content-Range")) != want
}

// Write implements io.Writer.
func (r *reading) Write(p []byte) (int, error) {
	switch {
	case r.misfit:
		return 0, errParts
	case int64(len(p)) > r.length-r.n:
		return 0, ErrTooLong
	}
	r.n += int64(len(p))
	r.moved(int64(len(p)))
	return r.sum.Write(p)
}
