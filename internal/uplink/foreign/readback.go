package foreign

import (
	"context"
	"errors"
	"fmt"
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

// Read sends a GET, whose URL is set, until the whole of m's bytes came back. Bytes are told to uplink.Progress. Every error is a
// *remote.Error, or wraps ErrTooLong.
func (r *Readings) Read(ctx context.Context, c *remote.Client, get remote.Request, m *attachment.Manifest) (Content, error) {
	at := r.take(get.URL.String())
	at.most, at.moved = m.Length, uplink.Progress(ctx)
	for breaks := 0; ; breaks++ {
		furthest := at.n
		answer, err := at.once(ctx, c, get)
		e, judged := errors.AsType[*remote.Error](err)
		switch {
		case err == nil:
			got := Content{Answer: answer}
			got.Length, got.SHA256 = at.Sum()
			if at.parts == 1 || got.Length == m.Length && got.SHA256 == m.SHA256.String() {
				return got, nil
			}
			at.reset() // the parts do not fit, which may be theirs: once in one piece
			at.whole = true
		case errors.Is(err, ErrTooLong):
			return Content{}, err
		case errors.Is(err, errParts) && !at.whole:
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
		at = &reading{Sink: NewSink(0, nil)}
	}
	return at
}

func (r *Readings) keep(address string, at *reading) {
	if at.n == 0 || at.n >= at.most || at.whole {
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
	*Sink
	parts  int  // answers that the bytes came in
	whole  bool // parts are of no use
	misfit bool // the answer is another part than was asked for
}

func (r *reading) reset() {
	r.Sink.reset()
	r.parts = 0
}

var errParts = errors.New("another part came back than was asked for")

// once sends one request for what is left.
func (r *reading) once(ctx context.Context, c *remote.Client, get remote.Request) (*remote.Response, error) {
	header := get.Header.Clone()
	header.Set("Accept-Encoding", "identity")
	if r.n >= r.most || r.whole {
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
	want := fmt.Sprintf("bytes %d-%d/%d", r.n, r.most-1, r.most)
	r.misfit = status == http.StatusPartialContent && strings.TrimSpace(header.Get("Content-Range")) != want
}

// Write implements io.Writer.
func (r *reading) Write(p []byte) (int, error) {
	if r.misfit {
		return 0, errParts
	}
	return r.Sink.Write(p)
}
