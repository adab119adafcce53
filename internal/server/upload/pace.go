package upload

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// past is a deadline that has come.
var past = time.Unix(1, 0)

// pace reads one request body under an idle limit and lets others end the reading.
type pace struct {
	// deadline sets the deadline of reads from the connection (http.ResponseController.SetReadDeadline).
	deadline func(time.Time) error
	idle     time.Duration

	mu    sync.Mutex
	ended error
}

// arm gives the next read its time, unless the reading was ended.
func (p *pace) arm(at time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended != nil {
		return p.ended
	}
	return p.set(at)
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

func (p *pace) set(at time.Time) error {
	err := p.deadline(at)
	if errors.Is(err, http.ErrNotSupported) {
		return nil // no connection under it, so nobody can be slow
	}
	return err
}

// read reads some bytes. Errors: io.EOF at the end of the body, ErrIdle, what end was given, or ErrBody.
func (p *pace) read(body io.Reader, buf []byte) (int, error) {
	if err := p.arm(time.Now().Add(p.idle)); err != nil {
		return 0, err
	}
	n, err := body.Read(buf)
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ended != nil {
			return n, p.ended
		}
		return n, ErrIdle
	}
	return n, errors.Join(ErrBody, err)
}

// done lifts the deadline from the connection: net/http goes on reading from it while the request is answered, and
// would take the deadline for the client's disappearance.
func (p *pace) done() error { return p.arm(time.Time{}) }
