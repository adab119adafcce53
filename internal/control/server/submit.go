package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/fieldgw/fieldgw/internal/control"
)

// maxEpilogue bounds what may follow the last part, in bytes.
const maxEpilogue = 4 << 10

// submit answers POST /v1/submissions. Its body is multipart/mixed (RFC 2046): a control.Submission in JSON, then the
// bytes of each announced file in order. They pass through a buffer of some kilobytes.
func (s *Server) submit(w http.ResponseWriter, r *http.Request) error {
	caller, err := requireCaller(r.Context())
	if err != nil {
		return err
	}
	release, err := s.submissions.take()
	if err != nil {
		return err
	}
	defer release()
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "multipart/mixed" || params["boundary"] == "" {
		return control.Refuse(control.CodeInvalid, "a submission is multipart/mixed with a boundary")
	}
	sub, files, err := openSubmission(s.bodyOf(w, r.Body), params["boundary"])
	if err != nil {
		return err
	}
	result, err := s.backend.Submit(r.Context(), caller, sub, files.next)
	if err != nil {
		return err
	}
	result.Schema, result.SubmissionID, result.Items = control.SchemaSubmission, sub.SubmissionID, orEmpty(result.Items)
	return s.answer(w, result)
}

// openSubmission reads the announcement and leaves the files to be read.
func openSubmission(body io.Reader, boundary string) (control.Submission, *files, error) {
	var sub control.Submission
	parts := multipart.NewReader(body, boundary)
	first, err := parts.NextRawPart()
	if err != nil {
		return sub, nil, broken(err)
	}
	data, err := io.ReadAll(io.LimitReader(first, control.MaxSubmissionHeader+1))
	if err != nil {
		return sub, nil, broken(err)
	}
	if len(data) > control.MaxSubmissionHeader {
		return sub, nil, control.Refuse(control.CodeInvalid, "the submission's first part is too large")
	}
	if err := decodeStrict(data, &sub); err != nil {
		return sub, nil, err
	}
	if err := sub.Validate(); err != nil {
		return sub, nil, err
	}
	return sub, &files{parts: parts, body: body, announced: sub.Files}, nil
}

// files hands out the files of a submission and holds them to their announcement.
type files struct {
	parts     *multipart.Reader
	body      io.Reader
	announced []control.SubmissionFile
	at        int   // files handed out
	left      int64 // bytes that the current file still owes
	ended     bool  // the current file was read to its end
}

// errOrder is returned when a file is asked for before the one before it was read to its end.
var errOrder = errors.New("the file before was not read to its end")

// next returns the following file's bytes, and io.EOF after the last.
func (f *files) next() (io.Reader, error) {
	if f.at > 0 && !f.ended {
		return nil, errOrder
	}
	if f.at == len(f.announced) {
		return nil, io.EOF
	}
	part, err := f.parts.NextRawPart()
	if errors.Is(err, io.EOF) {
		return nil, control.Refuse(control.CodeInvalid, fmt.Sprintf("%d files announced, %d sent", len(f.announced), f.at))
	}
	if err != nil {
		return nil, broken(err)
	}
	f.left, f.ended = f.announced[f.at].Length, false
	f.at++
	return &file{of: f, part: part}, nil
}

// file is one file's bytes: exactly as many as announced.
type file struct {
	of   *files
	part *multipart.Part
}

// Read implements io.Reader. io.EOF comes only when the file, and with the last file the whole submission, is complete.
func (f *file) Read(p []byte) (int, error) {
	n, err := f.part.Read(p)
	f.of.left -= int64(n)
	switch {
	case f.of.left < 0:
		return 0, f.mismatch("more")
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, broken(err)
	case f.of.left > 0:
		return n, f.mismatch("fewer")
	}
	if f.of.at == len(f.of.announced) && !f.of.ended {
		if err := f.of.finish(); err != nil {
			return n, err
		}
	}
	f.of.ended = true
	return n, io.EOF
}

func (f *file) mismatch(how string) error {
	a := f.of.announced[f.of.at-1]
	return control.Refuse(control.CodeLengthMismatch, fmt.Sprintf("%.60q: %s than %d bytes", a.Name.Exact(), how, a.Length))
}

// finish sees the end of the request's body, so that net/http notices from now on when the client goes away.
func (f *files) finish() error {
	switch _, err := f.parts.NextRawPart(); {
	case err == nil:
		return control.Refuse(control.CodeInvalid, fmt.Sprintf("more than the %d announced files", len(f.announced)))
	case !errors.Is(err, io.EOF):
		return broken(err)
	}
	n, err := io.Copy(io.Discard, io.LimitReader(f.body, maxEpilogue+1))
	if err != nil {
		return broken(err)
	}
	if n > maxEpilogue {
		return control.Refuse(control.CodeInvalid, "too much after the last part")
	}
	return nil
}

// broken is a failure to read the submission's form, as a refusal: what body.Read already explained stays as it is.
func broken(err error) error {
	if problem, ok := errors.AsType[*control.Error](err); ok {
		return problem
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return control.Refuse(control.CodeInterrupted, "it ended early")
	}
	return control.Refuse(control.CodeInvalid, err.Error())
}
