package remote

import (
	"errors"
	"io"
	"sync"
)

// sending is the body of one attempt. The transport may read a body for a while after it gave up on a request; end makes
// sure that the bytes below are not touched any more.
type sending struct {
	wake  io.Closer // ends a Read of the bytes that waits; nil where none does
	mu    sync.Mutex
	r     io.Reader // nil once ended
	left  int64
	moved func(int64)
	taken func()
	err   error // of reading the bytes; the transport's own errors are not here
}

var errEnded = errors.New("request ended")

func newSending(r io.Reader, length int64, moved func(int64)) *sending {
	s := &sending{r: r, left: length, moved: moved}
	s.wake, _ = r.(io.Closer)
	return s
}

// Read implements io.Reader. It gives exactly the announced number of bytes, or an error.
func (s *sending) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.r == nil:
		return 0, errEnded
	case s.err != nil:
		return 0, s.err
	case s.left == 0:
		return 0, io.EOF
	}
	// A piece is what goes to the kernel at a time: HTTP/2 takes hundreds of KiB at once, and then nothing for long.
	n, err := s.r.Read(p[:min(int64(len(p)), s.left, maxWrite)])
	s.left -= int64(n)
	if n > 0 && s.moved != nil {
		s.moved(int64(n))
	}
	if n > 0 && s.taken != nil {
		s.taken()
	}
	switch {
	case s.left == 0, err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		err = ErrShortBody
	}
	s.err = err
	return n, err
}

// Close implements io.Closer. The bytes' reader is closed by end.
func (s *sending) Close() error { return nil }

// end closes the bytes' reader, takes it away, and returns the error of reading. It waits for a Read under way.
func (s *sending) end() error {
	var err error
	if s.wake != nil {
		err = s.wake.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r, s.wake = nil, nil
	return errors.Join(s.err, err)
}

// bodies are those of one request: it may be built, repeated and rewound.
type bodies struct {
	taken func() // hears of every piece
	mu    sync.Mutex
	all   []*sending
}

func (b *bodies) add(s *sending) *sending {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.taken = b.taken
	b.all = append(b.all, s)
	return s
}

func (b *bodies) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, s := range b.all {
		errs = append(errs, s.end())
	}
	return errors.Join(errs...)
}
