package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"

	"github.com/fieldgw/fieldgw/internal/control"
)

// Submit hands files over. open returns the bytes of the file at an index of sub.Files, from the start; it is called in
// order, and once more for each file when the connection broke: the submission's ID makes sure that the files are taken
// once. The daemon's answer means that every file is durable. Errors wrap ErrFileChanged or those of open, or are as
// for every request.
func (c *Client) Submit(ctx context.Context, sub control.Submission, open func(int) (io.ReadCloser, error)) (control.SubmissionResult, error) {
	var stream *multipartStream
	result, err := call[control.SubmissionResult](ctx, c, func() (*http.Request, error) {
		stream.stop()
		stream = newMultipartStream(sub, open)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://fieldgwd/v1/submissions", stream)
		if err == nil {
			r.Header.Set("Content-Type", "multipart/mixed; boundary="+stream.boundary)
		}
		return r, err
	})
	if failed := stream.stop(); failed != nil {
		return result, failed // the reason, where the connection's error is only the consequence
	}
	return result, err
}

// multipartStream is a submission's body. A goroutine writes it into a pipe as it is read.
type multipartStream struct {
	*io.PipeReader
	boundary string
	done     chan struct{}
	failed   error // of the files, not of the connection; valid after done
}

func newMultipartStream(sub control.Submission, open func(int) (io.ReadCloser, error)) *multipartStream {
	r, w := io.Pipe()
	parts := multipart.NewWriter(w)
	s := &multipartStream{PipeReader: r, boundary: parts.Boundary(), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		err := writeSubmission(parts, sub, open)
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			s.failed = err
		}
		_ = w.CloseWithError(err) // never fails; nil ends the body
	}()
	return s
}

// stop ends the writer, waits for it, and returns what was wrong with the files.
func (s *multipartStream) stop() error {
	if s == nil {
		return nil
	}
	_ = s.Close() // never fails
	<-s.done
	return s.failed
}

func writeSubmission(parts *multipart.Writer, sub control.Submission, open func(int) (io.ReadCloser, error)) error {
	first, err := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/json"}})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(first).Encode(sub); err != nil {
		return err
	}
	for i, f := range sub.Files {
		part, err := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {"application/octet-stream"}})
		if err != nil {
			return err
		}
		if err := copyFile(part, f, i, open); err != nil {
			return err
		}
	}
	return parts.Close()
}

// copyFile sends exactly as many bytes as announced and looks whether there are more.
func copyFile(to io.Writer, f control.SubmissionFile, i int, open func(int) (io.ReadCloser, error)) (err error) {
	from, err := open(i)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	n, err := io.Copy(to, io.LimitReader(from, f.Length))
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name.Printable(), err)
	}
	more, err := io.CopyN(io.Discard, from, 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", f.Name.Printable(), err)
	}
	if n != f.Length || more > 0 {
		return fmt.Errorf("read %s: %w", f.Name.Printable(), ErrFileChanged)
	}
	return nil
}
