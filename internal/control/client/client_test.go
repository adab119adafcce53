package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/internal/control/controltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t testing.TB, socket string) *client.Client {
	t.Helper()
	c := client.New(socket)
	t.Cleanup(c.Close)
	return c
}

func newID(t testing.TB) attachment.ID {
	t.Helper()
	id, err := attachment.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// start serves a fake daemon with n attachments of record INS-1, in state ready.
func start(t testing.TB, n int) (*controltest.Backend, *client.Client, []attachment.ID) {
	t.Helper()
	b := controltest.New(time.Now)
	var ids []attachment.ID
	for i := range n {
		id := newID(t)
		ids = append(ids, id)
		b.Add(controltest.Entry{Copy: control.CopySpool, Manifest: attachment.Manifest{
			ID: id, State: attachment.Ready, Filename: attachment.NameOf(fmt.Sprintf("%d.jpg", i)), Length: 10,
			Parent: attachment.Parent{LocalID: attachment.NameOf("INS-1\xff")}, AdoptedAt: time.Now().Add(-time.Hour),
		}})
	}
	socket := controltest.Socket(t)
	controltest.Serve(t, socket, b)
	return b, dial(t, socket), ids
}

// Lists are followed to their end page by page; filters, also with bytes that are not text, select.
func TestList(t *testing.T) {
	b, c, ids := start(t, 7)
	if err := b.Happen(ids[3], attachment.EventAttention); err != nil {
		t.Fatal(err)
	}
	read := func(q control.ListQuery) (got []attachment.ID) {
		q.Limit = 2
		for page, err := range client.Pages(func(cursor string) (control.Page[control.Item], error) {
			q.Cursor = cursor
			return c.List(t.Context(), q)
		}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range page.Items {
				got = append(got, i.ID)
			}
		}
		return got
	}
	if got := read(control.ListQuery{}); fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("all: %v", got)
	}
	if got := read(control.ListQuery{Conditions: []attachment.Condition{attachment.ShownAttention}, Parent: attachment.NameOf("INS-1\xff")}); len(got) != 1 || got[0] != ids[3] {
		t.Errorf("attention: %v", got)
	}
	if got := read(control.ListQuery{Parent: attachment.NameOf("INS-1")}); len(got) != 0 {
		t.Errorf("another record: %v", got)
	}
	if got := read(control.ListQuery{AdoptedBefore: time.Now().Add(-2 * time.Hour)}); len(got) != 0 {
		t.Errorf("older: %v", got)
	}
	records, err := c.Records(t.Context(), control.RecordQuery{Parent: attachment.NameOf("INS-1\xff")})
	if err != nil || len(records.Items) != 1 || records.Items[0].Unreconciled.Items != 7 || records.Items[0].NeedsAttention != 1 {
		t.Errorf("records: %+v, %v", records, err)
	}
	if paths, err := c.NotTaken(t.Context(), "", 5); err != nil || len(paths.Items) != 0 {
		t.Errorf("not taken: %+v, %v", paths, err)
	}
}

// A cursor that does not move ends the list with an error instead of going on for ever.
func TestPagesNeedProgress(t *testing.T) {
	n := 0
	for _, err := range client.Pages(func(string) (control.Page[int], error) {
		n++
		return control.Page[int]{NextCursor: "same"}, nil
	}) {
		if n == 2 && !errors.Is(err, client.ErrBadAnswer) || n > 2 {
			t.Fatalf("page %d: %v", n, err)
		}
	}
}

// Decisions take effect and are answered item by item; a refusal of the daemon is a *control.Error.
func TestAct(t *testing.T) {
	b, c, ids := start(t, 2)
	out, err := c.Act(t.Context(), client.Pause, control.Action{IDs: []attachment.ID{ids[0], newID(t)}, Reason: "rain"})
	if err != nil || out.Done != 1 || out.Refused != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	d, err := c.Get(t.Context(), control.ShortID(ids[0]))
	if err != nil || !d.Paused || len(d.Journal) != 1 || d.Journal[0].Reason != "rain" || d.Journal[0].By == "" {
		t.Errorf("%+v, %v", d, err)
	}
	if out, err := c.ActOnChannel(t.Context(), client.Pause, control.ChannelAction{}); err != nil || out.Done != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if st, err := c.Status(t.Context()); err != nil || !st.Sending.Paused || len(b.Callers()) != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	_, err = c.Act(t.Context(), client.Retry, control.Action{})
	if problem, ok := errors.AsType[*control.Error](err); !ok || problem.Code != control.CodeInvalid {
		t.Errorf("nothing selected: %v", err)
	}
}

// Nobody at the socket is ErrNotRunning, whether the file is missing or left by a dead process; a refusal by the kernel is
// ErrNotPermitted, and something that is no socket is ErrNotSocket.
func TestConnectErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "s")
	dead := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{missing, dead, missing + "/below"} {
		if _, err := dial(t, socket).Status(t.Context()); !errors.Is(err, client.ErrNotRunning) {
			t.Errorf("%s: %v", socket, err)
		}
	}
	plain := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, what := range map[string]string{plain: "is a file, not a socket", filepath.Dir(plain): "is a directory, not a socket"} {
		_, err := dial(t, path).Status(t.Context())
		if !errors.Is(err, client.ErrNotSocket) || errors.Is(err, client.ErrNotRunning) || !strings.Contains(err.Error(), path+" "+what) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, errno := range []syscall.Errno{unix.EACCES, unix.EPERM} {
		if err := client.DialError(missing, &net.OpError{Op: "dial", Err: errno}); !errors.Is(err, client.ErrNotPermitted) || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := client.DialError(missing, unix.ENFILE); errors.Is(err, client.ErrNotPermitted) || errors.Is(err, client.ErrNotRunning) {
		t.Errorf("another error: %v", err)
	}
}

// raw serves a handler that is no fieldgwd at a socket of its own.
func raw(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	socket := controltest.Socket(t)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return dial(t, socket)
}

// A connection that breaks before the answer is tried once more, and only once.
func TestOneRetry(t *testing.T) {
	var calls atomic.Int32
	c := raw(t, func(w http.ResponseWriter, r *http.Request) {
		if n := calls.Add(1); n%2 == 1 || r.URL.Path == "/v1/records" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"version":"1"}`)
	})
	if st, err := c.Status(t.Context()); err != nil || st.Version != "1" || calls.Load() != 2 {
		t.Errorf("%+v, %v after %d calls", st, err, calls.Load())
	}
	if out, err := c.Act(t.Context(), client.Retry, control.Action{All: true}); err != nil || calls.Load() != 4 {
		t.Errorf("%+v, %v after %d calls", out, err, calls.Load())
	}
	if _, err := c.Records(t.Context(), control.RecordQuery{}); err == nil {
		t.Error("no error")
	}
}

// What is not the control API is ErrBadAnswer, also when it is endless; members of a newer daemon are ignored.
func TestAnswers(t *testing.T) {
	var answer func(w http.ResponseWriter)
	c := raw(t, func(w http.ResponseWriter, _ *http.Request) { answer(w) })
	for name, bad := range map[string]func(w http.ResponseWriter){
		"no JSON":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") },
		"no problem": func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) },
		"endless": func(w http.ResponseWriter) {
			for range control.MaxAnswer>>20 + 1 {
				_, _ = w.Write(bytes.Repeat([]byte(" "), 1<<20))
			}
		},
	} {
		answer = bad
		if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrBadAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	answer = func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"version":"9","moon":"full","sending":{"satellite":1}}`)
	}
	if st, err := c.Status(t.Context()); err != nil || st.Version != "9" {
		t.Errorf("%+v, %v", st, err)
	}
}

// zeros is a file of n bytes that are made as they are read.
type zeros struct{ n int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.n == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.n)
	clear(p[:n])
	z.n -= n
	return int(n), nil
}

func (z *zeros) Close() error { return nil }

func submission(t testing.TB, lengths ...int64) control.Submission {
	sub := control.Submission{SubmissionID: "6b1f2f0e-36a5-4c6f-9a57-1f0a3b0a7c11", Record: attachment.NameOf("INS-1")}
	for i, n := range lengths {
		sub.Files = append(sub.Files, control.SubmissionFile{Name: attachment.NameOf(fmt.Sprintf("%d.bin", i)), Length: n})
	}
	return sub
}

// 64 MiB go through client and server without being held by either: both together allocate a small part of it.
func TestSubmitStreams(t *testing.T) {
	const length = 64 << 20
	_, c, _ := start(t, 0)
	if _, err := c.Status(t.Context()); err != nil { // the connection and its buffers exist
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result, err := c.Submit(t.Context(), submission(t, length), func(int) (io.ReadCloser, error) { return &zeros{length}, nil })
	runtime.ReadMemStats(&after)
	if err != nil || len(result.Items) != 1 || result.Items[0].Length != length {
		t.Fatalf("%+v, %v", result, err)
	}
	const zerosSHA256 = "3b6a07d0d404fab4e23b6d34bc6696a6a312dd92821332385e5af7c01c421351"
	if got := result.Items[0].SHA256.String(); got != zerosSHA256 {
		t.Errorf("sha256 %s", got)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > length/8 {
		t.Errorf("%d bytes allocated for %d", allocated, length)
	}
}

// A submission sent twice is taken once, and the second answer names the same attachments.
func TestSubmitTwice(t *testing.T) {
	_, c, _ := start(t, 0)
	open := func(int) (io.ReadCloser, error) { return &zeros{1 << 20}, nil }
	first, err := c.Submit(t.Context(), submission(t, 1<<20), open)
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Submit(t.Context(), submission(t, 1<<20), open)
	if err != nil || second.Items[0].ID != first.Items[0].ID {
		t.Errorf("%+v, %v", second, err)
	}
	if page, err := c.List(t.Context(), control.ListQuery{}); err != nil || len(page.Items) != 1 {
		t.Errorf("%d attachments, %v", len(page.Items), err)
	}
}

// A file that grew, shrank or cannot be opened stops the submission with its own reason, and nothing is taken.
func TestSubmitBadFiles(t *testing.T) {
	_, c, _ := start(t, 0)
	missing := errors.New("card removed")
	for name, open := range map[string]func(int) (io.ReadCloser, error){
		"grew":    func(i int) (io.ReadCloser, error) { return &zeros{10 + int64(i)}, nil },
		"shrank":  func(i int) (io.ReadCloser, error) { return &zeros{10 - int64(i)}, nil },
		"missing": func(i int) (io.ReadCloser, error) { return &zeros{10}, map[int]error{1: missing}[i] },
	} {
		_, err := c.Submit(t.Context(), submission(t, 10, 10), open)
		want := map[bool]error{true: missing, false: client.ErrFileChanged}[name == "missing"]
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if page, err := c.List(t.Context(), control.ListQuery{}); err != nil || len(page.Items) != 0 {
		t.Errorf("%d attachments, %v", len(page.Items), err)
	}
}

// The daemon's refusal is what the caller hears even when most of the files is unsent.
func TestSubmitRefused(t *testing.T) {
	b, c, _ := start(t, 0)
	b.Fail(control.Refuse(control.CodeStorageFull, "no room"))
	_, err := c.Submit(t.Context(), submission(t, 64<<20), func(int) (io.ReadCloser, error) { return &zeros{64 << 20}, nil })
	if problem, ok := errors.AsType[*control.Error](err); !ok || problem.Code != control.CodeStorageFull {
		t.Errorf("%v", err)
	}
}

// A subscription tells what happens after it stands, ends with its context, and says so when the daemon ends it.
func TestEvents(t *testing.T) {
	b, c, ids := start(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := c.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Happen(ids[0], attachment.EventSessionOpened, attachment.EventVerified); err != nil {
		t.Fatal(err)
	}
	for _, want := range []attachment.Condition{attachment.ShownUploading, attachment.ShownUploaded} {
		e, err := events.Next()
		if err != nil || e.Gap || e.Transition.ID != ids[0] || e.Transition.Condition != want {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	cancel()
	if _, err := events.Next(); err == nil {
		t.Error("an event after the end of the context")
	}
	if err := events.Close(); err != nil {
		t.Errorf("close: %v", err)
	}

	events, err = c.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.EndSubscriptions()
	if e, err := events.Next(); err != nil || !e.Gap {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := events.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	if err := events.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// Whatever a socket sends as events, reading ends with events, io.EOF or ErrBadAnswer, within bounded memory.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(": subscribed\n\nid: 7\nevent: transition\ndata: {\"seq\":7}\n\nevent: gap\ndata: {}\n\n"))
	f.Add([]byte("event: transition\ndata: {\ndata: }\n\n"))
	f.Add([]byte("event: later\n\n\r\n"))
	f.Add([]byte(strings.Repeat("data: x\n", 1000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		events := client.NewEvents(io.NopCloser(bytes.NewReader(data)))
		for {
			_, err := events.Next()
			if errors.Is(err, io.EOF) || errors.Is(err, client.ErrBadAnswer) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
