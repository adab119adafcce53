package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/logging/loggingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub is a backend whose methods are set one by one; the others answer with nothing. The fake daemon of controltest cannot
// be used inside this package: it imports it.
type stub struct {
	status    func() (control.Status, error)
	list      func(control.ListQuery) (control.Page[control.Item], error)
	ids       []attachment.ID
	subscribe func(context.Context) <-chan control.Transition
	submit    func(context.Context, control.Submission, func() (io.Reader, error)) (control.SubmissionResult, error)

	mu      sync.Mutex
	by      []Caller
	actions []control.Action
	channel []control.ChannelAction
}

func (b *stub) Status(context.Context) (control.Status, error) {
	if b.status == nil {
		return control.Status{}, nil
	}
	return b.status()
}

func (b *stub) List(_ context.Context, q control.ListQuery) (control.Page[control.Item], error) {
	if b.list == nil {
		return control.Page[control.Item]{}, nil
	}
	return b.list(q)
}

func (b *stub) Check(context.Context, Caller, control.CheckRequest) (control.CheckReport, error) {
	return control.CheckReport{}, nil
}

func (b *stub) Get(_ context.Context, id attachment.ID) (d control.ItemDetail, err error) {
	for _, known := range b.ids {
		if known == id {
			d.ID = id
			return d, nil
		}
	}
	return d, control.Refuse(control.CodeNoSuchItem, "")
}

func (b *stub) Resolve(_ context.Context, ref string) (found []attachment.ID, err error) {
	for _, id := range b.ids {
		if control.Refers(ref, id) {
			found = append(found, id)
		}
	}
	return found, nil
}

func (b *stub) NotTaken(context.Context, string, int) (p control.Page[control.NotTaken], err error) {
	return p, nil
}

func (b *stub) Records(context.Context, control.RecordQuery) (p control.Page[control.Record], err error) {
	return p, nil
}

func (b *stub) act(by Caller, a control.Action) (out control.Outcome, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.by = append(b.by, by)
	b.actions = append(b.actions, a)
	for _, id := range a.IDs {
		out.Add(control.ActionResult{ID: id, Done: true})
	}
	return out, nil
}

func (b *stub) Retry(_ context.Context, by Caller, a control.Action) (control.Outcome, error) {
	return b.act(by, a)
}
func (b *stub) Prioritize(_ context.Context, by Caller, a control.Action) (control.Outcome, error) {
	return b.act(by, a)
}
func (b *stub) Pause(_ context.Context, by Caller, a control.Action) (control.Outcome, error) {
	return b.act(by, a)
}
func (b *stub) Resume(_ context.Context, by Caller, a control.Action) (control.Outcome, error) {
	return b.act(by, a)
}

func (b *stub) PauseChannel(_ context.Context, by Caller, a control.ChannelAction) (control.ActionResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.by = append(b.by, by)
	b.channel = append(b.channel, a)
	return control.ActionResult{Done: true}, nil
}

func (b *stub) ResumeChannel(ctx context.Context, by Caller, a control.ChannelAction) (control.ActionResult, error) {
	return b.PauseChannel(ctx, by, a)
}

func (b *stub) Submit(ctx context.Context, by Caller, sub control.Submission, next func() (io.Reader, error)) (control.SubmissionResult, error) {
	b.mu.Lock()
	b.by = append(b.by, by)
	b.mu.Unlock()
	return b.submit(ctx, sub, next)
}

func (b *stub) Subscribe(ctx context.Context) <-chan control.Transition { return b.subscribe(ctx) }

// served is a server on a real socket.
type served struct {
	socket string
	http   *http.Client
	stop   func() error // stops and returns what Run returned; may be called more than once
	log    *loggingtest.Buffer
}

func serve(t *testing.T, b Backend, adjust func(*timing)) *served {
	t.Helper()
	v := &served{socket: filepath.Join(t.TempDir(), "s"), log: &loggingtest.Buffer{}}
	l, err := Listen(v.socket, "")
	if err != nil {
		t.Fatal(err)
	}
	s := New(b, Options{Logger: slog.New(slog.NewTextHandler(v.log, nil))})
	if adjust != nil {
		adjust(&s.timing)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx, l) }()
	v.stop = sync.OnceValue(func() error { cancel(); return <-result })
	v.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", v.socket)
		},
	}}
	t.Cleanup(func() {
		v.http.CloseIdleConnections()
		if err := v.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return v
}

// ask sends a request and returns status and body.
func (v *served) ask(t *testing.T, method, target, mediaType string, body io.Reader) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://fieldgwd"+target, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", mediaType)
	response, err := v.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK && response.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s %s: %d with type %q", method, target, response.StatusCode, response.Header.Get("Content-Type"))
	}
	return response.StatusCode, data
}

// refused asks and expects a problem.
func (v *served) refused(t *testing.T, code control.Code, method, target, mediaType string, body io.Reader) *control.Error {
	t.Helper()
	status, data := v.ask(t, method, target, mediaType, body)
	problem := new(control.Error)
	if err := json.Unmarshal(data, problem); err != nil {
		t.Fatalf("%s %s: %v in %.200s", method, target, err, data)
	}
	if problem.Code != code || problem.Status != status || problem.Schema != control.SchemaError || problem.Title == "" {
		t.Errorf("%s %s: status %d, %+v, want %s", method, target, status, problem, code)
	}
	return problem
}

func post(t *testing.T, v *served, target, body string) control.Outcome {
	t.Helper()
	status, data := v.ask(t, http.MethodPost, target, "application/json", strings.NewReader(body))
	var out control.Outcome
	if err := json.Unmarshal(data, &out); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d, %v, %.200s", target, status, err, data)
	}
	return out
}

// receive waits for a value; a test that waits in vain is ended by the test binary's own limit.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func own() Caller {
	return Caller{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())}
}
