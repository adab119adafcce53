package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

const submissionID = "6b1f2f0e-36a5-4c6f-9a57-1f0a3b0a7c11"

func announce(lengths ...int64) control.Submission {
	sub := control.Submission{SubmissionID: submissionID, Record: attachment.NameOf("INS-1")}
	for i, n := range lengths {
		sub.Files = append(sub.Files, control.SubmissionFile{Name: attachment.NameOf(fmt.Sprintf("%d.jpg", i)), Length: n})
	}
	return sub
}

// form makes a submission's body; the parts are sent as they are, whatever was announced.
func form(t testing.TB, first any, parts ...string) (mediaType string, body *bytes.Buffer) {
	t.Helper()
	body = new(bytes.Buffer)
	w := multipart.NewWriter(body)
	header, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range append([]string{string(header)}, parts...) {
		part, err := w.CreatePart(textproto.MIMEHeader{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(part, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return "multipart/mixed; boundary=" + w.Boundary(), body
}

// reading is a backend that reads every file and keeps nothing when one fails.
func reading(kept *[]string) *stub {
	return &stub{submit: func(_ context.Context, sub control.Submission, next func() (io.Reader, error)) (r control.SubmissionResult, err error) {
		var got []string
		for i := range sub.Files {
			from, err := next()
			if err != nil {
				return r, fmt.Errorf("next %d: %w", i, err)
			}
			data, err := io.ReadAll(from)
			if err != nil {
				return r, fmt.Errorf("read %d: %w", i, err)
			}
			got = append(got, string(data))
		}
		if _, err := next(); !errors.Is(err, io.EOF) {
			return r, fmt.Errorf("after the last: %w", err)
		}
		*kept = got
		return r, nil
	}}
}

// The files arrive in order and whole, an empty one too, with the caller and the announcement.
func TestSubmit(t *testing.T) {
	var kept []string
	b := reading(&kept)
	v := serve(t, b, nil)
	mediaType, body := form(t, announce(3, 0, 5), "abc", "", "hello")
	status, data := v.ask(t, http.MethodPost, "/v1/submissions", mediaType, body)
	var result control.SubmissionResult
	if err := json.Unmarshal(data, &result); err != nil || status != http.StatusOK {
		t.Fatalf("%d, %v, %s", status, err, data)
	}
	if strings.Join(kept, ",") != "abc,,hello" || result.SubmissionID != submissionID || result.Schema != control.SchemaSubmission {
		t.Errorf("kept %q, answered %+v", kept, result)
	}
	if len(b.by) != 1 || b.by[0].UID != own().UID {
		t.Errorf("by %+v", b.by)
	}
}

// Whatever is not exactly as announced is refused before the last file counts as read, so that a backend keeps nothing.
func TestSubmitRefusals(t *testing.T) {
	good := announce(3, 5)
	nameless := announce(3)
	nameless.Files[0].Name = attachment.NameOf("../escape")
	whole, cut := form(t, good, "abc", "hello")
	cut.Truncate(cut.Len() - 10)
	early := new(bytes.Buffer)
	early.Write(cut.Bytes()[:cut.Len()-60])
	epilogue := new(bytes.Buffer)
	_, complete := form(t, good, "abc", "hello")
	for name, c := range map[string]struct {
		code  control.Code
		first any
		parts []string
		body  func() (string, *bytes.Buffer)
	}{
		"shorter":        {code: control.CodeLengthMismatch, first: good, parts: []string{"ab", "hello"}},
		"longer":         {code: control.CodeLengthMismatch, first: good, parts: []string{"abcd", "hello"}},
		"last longer":    {code: control.CodeLengthMismatch, first: good, parts: []string{"abc", "hello!"}},
		"missing":        {code: control.CodeInvalid, first: good, parts: []string{"abc"}},
		"too many":       {code: control.CodeInvalid, first: good, parts: []string{"abc", "hello", "x"}},
		"bad name":       {code: control.CodeInvalid, first: nameless, parts: []string{"abc"}},
		"unknown member": {code: control.CodeInvalid, first: map[string]any{"submission_id": submissionID, "fields": 1}},
		"no JSON":        {code: control.CodeInvalid, first: "text"},
		"large header":   {code: control.CodeInvalid, first: strings.Repeat("x", control.MaxSubmissionHeader)},
		"no multipart":   {code: control.CodeInterrupted, body: func() (string, *bytes.Buffer) { return "multipart/mixed; boundary=x", bytes.NewBufferString("hello") }},
		"form data":      {code: control.CodeInvalid, body: func() (string, *bytes.Buffer) { return "multipart/form-data; boundary=x", complete }},
		"no boundary":    {code: control.CodeInvalid, body: func() (string, *bytes.Buffer) { return "multipart/mixed", complete }},
		"no end":         {code: control.CodeInterrupted, body: func() (string, *bytes.Buffer) { return whole, cut }},
		"ends in a file": {code: control.CodeInterrupted, body: func() (string, *bytes.Buffer) { return whole, early }},
		"empty":          {code: control.CodeInterrupted, body: func() (string, *bytes.Buffer) { return whole, new(bytes.Buffer) }},
		"much at the end": {code: control.CodeInvalid, body: func() (string, *bytes.Buffer) {
			m, b := form(t, good, "abc", "hello")
			epilogue.Write(b.Bytes())
			epilogue.WriteString(strings.Repeat("\r\nx", 10<<10))
			return m, epilogue
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var kept []string
			v := serve(t, reading(&kept), nil)
			mediaType, body := "", new(bytes.Buffer)
			if c.body != nil {
				mediaType, body = c.body()
			} else {
				mediaType, body = form(t, c.first, c.parts...)
			}
			v.refused(t, c.code, http.MethodPost, "/v1/submissions", mediaType, body)
			if kept != nil {
				t.Errorf("kept %q", kept)
			}
		})
	}
}

// A backend that knows the submission answers at once, and a refusal reaches the caller, although much is still unsent.
func TestSubmitAnswersEarly(t *testing.T) {
	refusal := control.Refuse(control.CodeStorageFull, "no room")
	v := serve(t, &stub{submit: func(context.Context, control.Submission, func() (io.Reader, error)) (control.SubmissionResult, error) {
		return control.SubmissionResult{}, refusal
	}}, nil)
	mediaType, body := form(t, announce(32<<20), strings.Repeat("x", 32<<20))
	v.refused(t, control.CodeStorageFull, http.MethodPost, "/v1/submissions", mediaType, body)
}

// A backend cannot skip a file by mistake: the next one is not handed out before the end of the one before.
func TestFilesInOrder(t *testing.T) {
	_, body := form(t, announce(3, 5), "abc", "hello")
	boundary, _, _ := strings.Cut(strings.TrimPrefix(body.String(), "--"), "\r\n")
	_, files, err := openSubmission(body, boundary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.next(); err != nil {
		t.Fatal(err)
	}
	if _, err := files.next(); !errors.Is(err, errOrder) {
		t.Errorf("second before the end of the first: %v", err)
	}
}

// A client that falls silent is given up after the idle time, however little of it the whole would need.
func TestSilentClient(t *testing.T) {
	ended := make(chan error, 1)
	b := &stub{submit: func(_ context.Context, _ control.Submission, next func() (io.Reader, error)) (r control.SubmissionResult, err error) {
		from, err := next()
		if err == nil {
			_, err = io.Copy(io.Discard, from)
		}
		ended <- err
		return r, err
	}}
	v := serve(t, b, func(w *timing) { w.idle = 100 * time.Millisecond })
	mediaType, body := form(t, announce(100_000), strings.Repeat("x", 100_000))
	c, err := net.Dial("unix", v.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "POST /v1/submissions HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		mediaType, body.Len(), body.Bytes()[:50_000]); err != nil {
		t.Fatal(err)
	}
	problem, ok := errors.AsType[*control.Error](receive(t, ended))
	if !ok || problem.Code != control.CodeInterrupted {
		t.Errorf("ended with %v", problem)
	}
}

// A submission under way when the daemon stops is finished, and its caller gets the answer.
func TestStopFinishesSubmission(t *testing.T) {
	reached, proceed := make(chan struct{}), make(chan struct{})
	v := serve(t, &stub{submit: func(ctx context.Context, _ control.Submission, next func() (io.Reader, error)) (r control.SubmissionResult, err error) {
		from, err := next()
		if err != nil {
			return r, err
		}
		if _, err := io.Copy(io.Discard, from); err != nil {
			return r, err
		}
		close(reached)
		<-proceed
		return r, ctx.Err()
	}}, nil)
	mediaType, body := form(t, announce(3), "abc")
	answered := make(chan int, 1)
	go func() {
		status, _ := v.ask(t, http.MethodPost, "/v1/submissions", mediaType, body)
		answered <- status
	}()
	receive(t, reached)
	stopped := make(chan error, 1)
	go func() { stopped <- v.stop() }()
	for { // the listener closes first
		c, err := net.Dial("unix", v.socket)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(proceed)
	if status := receive(t, answered); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	if err := receive(t, stopped); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// A request that does not end in time is cut off: its context ends, and so does Run.
func TestStopCutsOff(t *testing.T) {
	reached := make(chan struct{})
	v := serve(t, &stub{submit: func(ctx context.Context, _ control.Submission, _ func() (io.Reader, error)) (r control.SubmissionResult, err error) {
		close(reached)
		<-ctx.Done()
		return r, ctx.Err()
	}}, func(w *timing) { w.drain = 50 * time.Millisecond })
	mediaType, body := form(t, announce(3), "abc")
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://fieldgwd/v1/submissions", body)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Content-Type", mediaType)
		if response, err := v.http.Do(r); err == nil {
			_ = response.Body.Close()
		}
	}()
	receive(t, reached)
	if err := v.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	receive(t, asked)
	if !strings.Contains(v.log.String(), "cut off") {
		t.Errorf("not logged: %q", v.log)
	}
}

// Whatever bytes a caller sends as a submission, the server reads them to a refusal or hands out files of exactly the
// announced lengths.
func FuzzSubmission(f *testing.F) {
	_, whole := form(f, announce(3, 5), "abc", "hello")
	boundary, _, _ := strings.Cut(strings.TrimPrefix(whole.String(), "--"), "\r\n")
	f.Add(whole.Bytes(), boundary)
	f.Add([]byte("--x\r\n\r\n{}\r\n--x--"), "x")
	f.Add([]byte(""), "")
	f.Fuzz(func(t *testing.T, data []byte, boundary string) {
		sub, files, err := openSubmission(bytes.NewReader(data), boundary)
		for i := 0; err == nil && i < len(sub.Files); i++ {
			var from io.Reader
			if from, err = files.next(); err != nil {
				break
			}
			var n int64
			if n, err = io.Copy(io.Discard, from); err == nil && n != sub.Files[i].Length {
				t.Fatalf("file %d: %d bytes of %d", i, n, sub.Files[i].Length)
			}
		}
		if _, ok := errors.AsType[*control.Error](err); err != nil && !ok {
			t.Fatalf("not a refusal: %v", err)
		}
	})
}
