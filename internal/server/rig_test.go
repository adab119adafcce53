package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server under test with the tokens of three devices in two accounts, reached over a real connection.
type rig struct {
	t      *testing.T
	dir    string
	opts   Options
	server *Server
	http   *httptest.Server
	// token is that of account acme, device tablet-1; second is tablet-2 of the same account; stranger is another account.
	token, second, stranger string
	// receipts are those that attempt was given, as they were answered first.
	receipts map[string]string
}

// newRig starts a server on an empty directory.
func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "data"), receipts: map[string]string{}}
	r.opts = Options{Dir: r.dir, Logger: slog.New(slog.DiscardHandler), Room: func() (int64, error) { return 1 << 40, nil }}
	for _, c := range change {
		c(&r.opts)
	}
	r.open()
	r.token = r.newToken("acme", "tablet-1")
	r.second = r.newToken("acme", "tablet-2")
	r.stranger = r.newToken("zeta", "tablet-1")
	t.Cleanup(r.close)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	check(r.t, r.tryOpen())
}

func (r *rig) tryOpen() error {
	s, err := New(r.t.Context(), r.opts)
	if err == nil {
		r.server, r.http = s, httptest.NewServer(s.Handler())
	}
	return err
}

func (r *rig) close() {
	r.t.Helper()
	if r.server == nil {
		return
	}
	err := r.server.Close()
	r.http.Close()
	http.DefaultClient.CloseIdleConnections()
	r.server = nil
	if err != nil {
		r.t.Error(err)
	}
}

// restart ends the server and starts it on the same directory.
func (r *rig) restart() {
	r.t.Helper()
	r.close()
	r.open()
}

// reopen restarts the server with other options.
func (r *rig) reopen(change func(*Options)) {
	r.t.Helper()
	r.close()
	change(&r.opts)
	r.open()
}

func (r *rig) newToken(account, device string) string {
	r.t.Helper()
	token, err := r.server.Admin().CreateToken(context.WithoutCancel(r.t.Context()), admin.TokenRequest{Account: account, Device: device})
	if err != nil {
		r.t.Fatal(err)
	}
	return token.Text
}

// call is one request; only what differs from the usual is set.
type call struct {
	method, path string
	token        string // default: r.token; "-": none
	header       map[string]string
	body         []byte
	reader       io.Reader // in place of body
	trace        *httptrace.ClientTrace
}

// reply is one answer, read whole.
type answered struct {
	t      *testing.T
	call   call
	status int
	header http.Header
	body   []byte
}

// do sends a request and checks what every answer must have.
func (r *rig) do(c call) answered {
	r.t.Helper()
	a, err := r.try(c)
	if err != nil {
		r.t.Fatalf("%s %s: %v", c.method, c.path, err)
	}
	return a
}

func (r *rig) try(c call) (answered, error) {
	r.t.Helper()
	reader := c.reader
	if reader == nil {
		reader = bytes.NewReader(c.body)
	}
	ctx := r.t.Context()
	if c.trace != nil {
		ctx = httptrace.WithClientTrace(ctx, c.trace)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, r.http.URL+c.path, reader)
	if err != nil {
		return answered{}, err
	}
	if c.token == "" {
		c.token = r.token
	}
	if c.token != "-" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for k, v := range c.header {
		if v == "" {
			req.Header.Del(k)
			continue
		}
		req.Header.Set(k, v)
	}
	resp, err := r.http.Client().Do(req)
	if err != nil {
		return answered{}, err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return answered{}, err
	}
	a := answered{t: r.t, call: c, status: resp.StatusCode, header: resp.Header, body: body}
	if got := resp.Header.Get(wire.HeaderProtocol); got != "1" {
		r.t.Errorf("%s: %s is %q", a, wire.HeaderProtocol, got)
	}
	if a.status >= 400 && c.method != http.MethodHead && a.problem().Status != a.status {
		r.t.Errorf("%s: the problem says %+v", a, a.problem())
	}
	return a, nil
}

func (a answered) String() string {
	return fmt.Sprintf("%s %s → %d %s", a.call.method, a.call.path, a.status, bytes.TrimSpace(a.body[:min(len(a.body), 300)]))
}

// problem decodes a refusal.
func (a answered) problem() wire.Problem {
	a.t.Helper()
	var p wire.Problem
	if kind := a.header.Get("Content-Type"); kind != wire.ContentTypeProblem {
		a.t.Errorf("%s: content type %q", a, kind)
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		a.t.Errorf("%s: %v", a, err)
	}
	if p.Code.Status() != p.Status || p.Title == "" {
		a.t.Errorf("%s: code and status do not belong together", a)
	}
	return p
}

// refused fails the test unless the answer is a problem of this code.
func (a answered) refused(code wire.Code) wire.Problem {
	a.t.Helper()
	if a.status != code.Status() {
		a.t.Fatalf("%s: want %s", a, code)
	}
	p := a.problem()
	if p.Code != code {
		a.t.Fatalf("%s: want %s", a, code)
	}
	return p
}

// is fails the test unless the answer has this status.
func (a answered) is(status int) answered {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: want %d", a, status)
	}
	return a
}

func decode[T any](a answered) T {
	a.t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		a.t.Fatalf("%s: %v", a, err)
	}
	return v
}

// file is an attachment to deliver.
type file struct {
	id    string
	bytes []byte
	facts wire.Reserve
	as    dialect
}

// dialect is how a client delivers a file.
type dialect string

const (
	reserved   dialect = ""           // as a device does
	declared   dialect = "declared"   // by a creation with its digest
	undeclared dialect = "undeclared" // by a creation that leaves the digest to the server
)

func newFile(content string) file {
	sum := sha256.Sum256([]byte(content))
	return file{
		id: uuid.Must(uuid.NewV7()).String(), bytes: []byte(content),
		facts: wire.Reserve{
			Length: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Role: wire.RoleOriginal, MediaType: "image/jpeg",
			Filename: "boiler room.jpg", CapturedAt: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
			Parent: receipt.Parent{LocalID: "insp-7"},
		},
	}
}

func (f file) path() string { return "/v1/attachments/" + f.id }

var jsonHeader = map[string]string{"Content-Type": "application/json"}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (r *rig) put(f file, token string) answered {
	r.t.Helper()
	return r.do(call{method: http.MethodPut, path: f.path(), token: token, header: jsonHeader, body: asJSON(r.t, f.facts)})
}

// reserve reserves and returns the answer, which must be a success.
func (r *rig) reserve(f file) wire.Attachment {
	r.t.Helper()
	a := r.put(f, "")
	if a.status != http.StatusCreated && a.status != http.StatusOK {
		r.t.Fatal(a)
	}
	return decode[wire.Attachment](a)
}

func tusHeader(offset int64, more ...string) map[string]string {
	h := map[string]string{
		wire.HeaderTusResumable: wire.TusVersion, wire.HeaderUploadOffset: strconv.FormatInt(offset, 10),
		"Content-Type": wire.ContentTypeOffset,
	}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

func (r *rig) patch(url string, offset int64, body []byte) answered {
	r.t.Helper()
	return r.do(call{method: http.MethodPatch, path: url, header: tusHeader(offset), body: body})
}

// head returns the confirmed offset of an upload.
func (r *rig) head(url string) int64 {
	r.t.Helper()
	a := r.do(call{method: http.MethodHead, path: url, header: map[string]string{wire.HeaderTusResumable: wire.TusVersion}}).is(200)
	return a.offset()
}

func (a answered) offset() int64 {
	a.t.Helper()
	n, err := strconv.ParseInt(a.header.Get(wire.HeaderUploadOffset), 10, 64)
	if err != nil {
		a.t.Fatalf("%s: %s: %v", a, wire.HeaderUploadOffset, err)
	}
	return n
}

func (r *rig) show(f file) answered {
	r.t.Helper()
	return r.do(call{method: http.MethodGet, path: f.path()})
}

func (r *rig) register(f file) answered {
	r.t.Helper()
	return r.do(call{method: http.MethodPost, path: f.path() + "/registration", header: jsonHeader,
		body: asJSON(r.t, wire.Register{Parent: f.facts.Parent})})
}

// deliver takes a file through all four steps and returns its receipt.
func (r *rig) deliver(f file) receipt.Receipt {
	r.t.Helper()
	a := r.reserve(f)
	if a.Upload != nil {
		for at := a.Upload.Offset; at < f.facts.Length; {
			end := min(at+max(1, f.facts.Length/3), f.facts.Length)
			at = r.patch(a.Upload.URL, at, f.bytes[at:end]).is(204).offset()
		}
	}
	rec := decode[receipt.Receipt](r.register(f).is(200))
	if err := receipt.Check(rec, receipt.Facts{
		AttachmentID: f.id, Length: f.facts.Length, SHA256: f.facts.SHA256, Parent: f.facts.Parent,
	}); err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// uploadFile is the data file of an upload.
func (r *rig) uploadFile(url string) string {
	return filepath.Join(r.dir, "accounts", "acme", "uploads", strings.TrimPrefix(url, upload.Path))
}

func (r *rig) contentFile(f file) string {
	return filepath.Join(r.dir, "accounts", "acme", "blobs", f.facts.SHA256[:2], f.facts.SHA256)
}

// hooked makes the server use a file system with a hook.
func hooked(h durable.Hook) func(*Options) { return func(o *Options) { o.FS = durable.Hooked(h) } }
