package upload

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// hungAfter is how long an append must have received no byte before a newer request takes its place.
const hungAfter = 5 * time.Second

// past is a deadline that has come.
var past = time.Unix(1, 0)

// pace reads one request body under an idle limit and lets others end the reading.
type pace struct {
	// deadline sets the deadline of reads from the connection (http.ResponseController.SetReadDeadline).
	deadline func(time.Time) error
	idle     time.Duration
	// gone is closed when the append has left its session.
	gone chan struct{}

	mu    sync.Mutex
	ended error
	since time.Time // when the read under way began; zero between reads, when it is the server that takes its time
}

func newPace(body Body, idle time.Duration) *pace {
	return &pace{deadline: body.Deadline, idle: idle, gone: make(chan struct{})}
}

// arm gives the next read its time, unless the reading was ended.
func (p *pace) arm() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return p.ended
	}
	p.since = time.Now()
	return p.set(p.since.Add(p.idle))
}

// end makes the read under way and every later one fail with why. It does not wait.
func (p *pace) end(why error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = why
	}
	return p.set(past)
}

// hangs reports whether the client has left the append waiting for long.
func (p *pace) hangs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.since.IsZero() && time.Since(p.since) >= hungAfter
}

func (p *pace) set(at time.Time) error {
	err := p.deadline(at)
	if errors.Is(err, http.ErrNotSupported) {
		return nil // no connection under it, so nobody can be slow
	}
	return err
}

// read reads some bytes. Errors: io.EOF at the end of the body, ErrIdle, what end was given, or ErrBody.
func (p *pace) read(body io.Reader, buf []byte) (int, error) {
	if err := p.arm(); err != nil {
		return 0, err
	}
	n, err := body.Read(buf)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return n, err
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return n, errors.Join(ErrBody, err)
	case p.ended != nil:
		return n, p.ended
	}
	return n, ErrIdle
}

// done lifts the deadline from the connection: net/http goes on reading from it while the request is answered, and
// would take the deadline for the client's disappearance.
func (p *pace) done() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return p.ended
	}
	return p.set(time.Time{})
}

// piece is what one read of a body brought.
type piece struct {
	buf *[copyBuffer]byte
	n   int
	err error
}

// pieces reads a body ahead of who takes its pieces, so that a wait for the disk does not stop the link. The last piece has
// an error: that of pace.read, or over in place of the bytes that exceed room. Who takes the pieces gives back their
// buffers and takes all of them.
func (e *Engine) pieces(p *pace, body io.Reader, room int64, over error) <-chan piece {
	out := make(chan piece, 2)
	go func() {
		defer close(out)
		for {
			in := piece{buf: e.buffers.Get().(*[copyBuffer]byte)}
			in.n, in.err = p.read(body, in.buf[:])
			if room -= int64(in.n); room < 0 {
				in.n, in.err = 0, over
			}
			out <- in
			if in.err != nil {
				return
			}
		}
	}()
	return out
}
