package tus_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/tus"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

// device delivers one attachment to one server, in a bubble.
type device struct {
	s       *server
	up      *uplink.Uplink
	m       *attachment.Manifest
	content []byte
	payload *uplinktest.Payload
	rec     *uplinktest.Recorder
}

func newDevice(t *testing.T, s *server) *device { return newDeviceOf(t, s, 4*chunk, chunk) }

func newDeviceOf(t *testing.T, s *server, size int, largest int64) *device {
	t.Helper()
	network := &uplinktest.Network{}
	web := &http.Server{Handler: s, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	ended, l := make(chan error, 1), network.Listener()
	go func() { ended <- web.Serve(l) }()
	client, err := remote.New(remote.Options{
		Endpoint: "http://127.0.0.1/files/", Logger: slog.New(slog.DiscardHandler), Protocol: tus.Protocol(), Dial: network.Dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.CloseIdle()
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	up, err := uplink.New(uplink.Options{
		Driver: tus.New(tus.Options{Client: client, Anonymous: true}), ChunkMax: largest, ChunkFloor: largest / 8, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	content := uplinktest.Content(3, size)
	m := uplinktest.NewManifest(t, content)
	return &device{s: s, up: up, m: m, content: content, payload: uplinktest.NewPayload(t, content), rec: uplinktest.NewRecorder(m)}
}

// deliver is one delivery from what is recorded.
func (d *device) deliver(t *testing.T, failures int) *remote.Error {
	t.Helper()
	m, confirmed := d.rec.Manifest(d.m)
	m.Delivery.Failures = failures
	err := d.up.Deliver(t.Context(), m, confirmed, d.payload, &uplinktest.Gate{}, d.rec)
	for _, broken := range uplinktest.Broken(d.rec, d.payload) {
		t.Error(broken)
	}
	e, ok := errors.AsType[*remote.Error](err)
	if err != nil && !ok {
		t.Fatalf("not judged: %v", err)
	}
	return e
}

// on meddles with the n-th request of a method.
func on(method string, n int, act func(s *server, w http.ResponseWriter, r *http.Request) bool) func(*server, int, http.ResponseWriter, *http.Request) bool {
	return func(s *server, i int, w http.ResponseWriter, r *http.Request) bool {
		return r.Method == method && i == n && act(s, w, r)
	}
}

// says answers in the protocol.
func says(status int, body string, pairs ...string) func(*server, http.ResponseWriter, *http.Request) bool {
	return func(_ *server, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Tus-Resumable", "1.0.0")
		for i := 0; i+1 < len(pairs); i += 2 {
			w.Header().Set(pairs[i], pairs[i+1])
		}
		w.WriteHeader(status)
		reply(w, []byte(body))
		return true
	}
}

// before lets something happen to the server's uploads, and the request go on.
func before(f func(u *upload)) func(*server, http.ResponseWriter, *http.Request) bool {
	return func(s *server, _ http.ResponseWriter, _ *http.Request) bool {
		s.change(f)
		return false
	}
}

func forget(s *server, _ http.ResponseWriter, _ *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.uploads)
	return false
}

// What goes wrong with a session is got over in one delivery, or in as many as stated, and no more is sent again than that takes.
func TestResumeLadder(t *testing.T) {
	const patch, head, get = http.MethodPatch, http.MethodHead, http.MethodGet
	for name, c := range map[string]struct {
		meddle     func(*server, int, http.ResponseWriter, *http.Request) bool
		deliveries int // that fail before
		losses     int
		again      int64 // bytes sent once more, at most
		grade      receipt.Grade
	}{
		"nothing":                        {},
		"409 without offset":             {meddle: on(patch, 2, says(409, "ERR_MISMATCHED_OFFSET: mismatched offset"))},
		"locked":                         {meddle: on(patch, 2, says(423, "ERR_UPLOAD_LOCKED: file currently locked"))},
		"lock not had in time":           {meddle: on(head, 1, says(500, "")), deliveries: 1},
		"interrupted by another request": {meddle: on(patch, 2, says(400, "ERR_UPLOAD_INTERRUPTED: upload has been interrupted"))},
		"lock timeout":                   {meddle: on(patch, 2, says(500, "ERR_LOCK_TIMEOUT: failed to acquire lock"))},
		"aborted for another request":    {meddle: on(patch, 2, says(400, "Request aborted due to lock acquired"))},
		"wrong content type, it says":    {meddle: on(patch, 2, says(400, "ERR_INVALID_CONTENT_TYPE"))},
		"checksum mismatch":              {meddle: on(patch, 2, says(460, `{"error":{"code":"ChecksumMismatch"}}`))},
		"no offset in the answer":        {meddle: on(patch, 2, says(204, "")), again: 0},
		"offset beyond what was sent":    {meddle: on(patch, 2, says(204, "", "Upload-Offset", strconv.Itoa(4*chunk))), again: 0},
		"offset that is no number":       {meddle: on(patch, 2, says(204, "", "Upload-Offset", "+5"))},
		"the answer is 200":              {meddle: on(patch, 4, answer200), again: 0},
		"session gone in between":        {meddle: on(patch, 3, forget), losses: 1, again: 2 * chunk},
		"session gone at the end":        {meddle: on(head, 1, forget), losses: 1, again: 4 * chunk},
		"gone by 410":                    {meddle: gone410, losses: 1, again: 2 * chunk},
		"bytes lost": {
			meddle: on(patch, 3, before(func(u *upload) { u.data = u.data[:min(len(u.data), chunk)] })), losses: 1, again: 2 * chunk},
		"a byte changed": {
			meddle: on(get, 1, before(func(u *upload) { u.data[7] ^= 1 })), losses: 1, again: 4 * chunk},
		"download refused once": {meddle: on(get, 1, says(404, ""))},
		"download always refused": {meddle: func(_ *server, _ int, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == get {
				w.WriteHeader(http.StatusNotFound)
			}
			return r.Method == get
		}, grade: receipt.LengthOnly},
		"a portal for the download": {meddle: on(get, 1, func(_ *server, w http.ResponseWriter, _ *http.Request) bool {
			reply(w, []byte("<html>Welcome to the hotel</html>"))
			return true
		}), deliveries: 1},
		"a download broken twice":             {meddle: brokenDownload(func(*http.Request) {})},
		"a download broken, no parts given":   {meddle: brokenDownload(func(r *http.Request) { r.Header.Del("Range") })},
		"a download broken, other part given": {meddle: brokenDownload(func(r *http.Request) { r.Header.Set("Range", "bytes=-100") })},
		"an endless download": {meddle: on(get, 1, func(_ *server, w http.ResponseWriter, _ *http.Request) bool {
			reply(w, make([]byte, 5*chunk))
			return true
		}), deliveries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.meddle = c.meddle
				d := newDevice(t, s)
				for i := range c.deliveries {
					if e := d.deliver(t, i); e == nil || e.Class == remote.ItemPermanent {
						t.Fatalf("delivery %d: %v", i+1, e)
					}
					<-time.After(time.Minute)
				}
				if e := d.deliver(t, c.deliveries); e != nil {
					t.Fatalf("not delivered: %v", e)
				}
				seen := d.rec.Seen()
				if seen.Losses != c.losses {
					t.Errorf("%d sessions were given up, want %d", seen.Losses, c.losses)
				}
				if again := s.sent - int64(len(d.content)); again > c.again {
					t.Errorf("%d bytes were sent again, at most %d are needed", again, c.again)
				}
				if !bytes.Equal(s.stored(d.m), d.content) {
					t.Error("the server stored other bytes")
				}
				if moved := int64(2 * len(d.content)); seen.Receipt.Grade == receipt.VerifiedDigest && seen.Moved < moved {
					t.Errorf("%d bytes were heard of, want those that are read back too: %d", seen.Moved, moved)
				}
				if want := c.grade; want == "" && seen.Receipt.Grade != receipt.VerifiedDigest || want != "" && seen.Receipt.Grade != want {
					t.Errorf("the receipt is worth %s", seen.Receipt.Grade)
				}
			})
		})
	}
}

// brokenDownload breaks the first two downloads on the way; ask changes what is asked of the server.
func brokenDownload(ask func(r *http.Request)) func(*server, int, http.ResponseWriter, *http.Request) bool {
	return func(s *server, n int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || n > 2 {
			return false
		}
		if r.Header.Get("Range") != "" {
			ask(r)
		}
		s.serve(&breaking{w, n * chunk}, r)
		panic(http.ErrAbortHandler)
	}
}

// breaking takes so many bytes and drops the rest.
type breaking struct {
	http.ResponseWriter
	left int
}

// Write implements io.Writer.
func (b *breaking) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, http.NewResponseController(b.ResponseWriter).Flush()
	}
	return b.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (b *breaking) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// answer200 takes the last append as @uploadx/core does.
func answer200(s *server, w http.ResponseWriter, r *http.Request) bool {
	s.ServeHTTP(&status200{w}, r)
	return true
}

type status200 struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (s *status200) WriteHeader(int) { s.ResponseWriter.WriteHeader(http.StatusOK) }

// gone410 is a server that remembers what it forgot.
func gone410(s *server, n int, w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodPatch && n == 3 {
		s.change(func(u *upload) { u.length = -1 })
	}
	s.mu.Lock()
	u := s.uploads[strings.TrimPrefix(r.URL.Path, "/files/")]
	expired := u != nil && u.length == -1
	s.mu.Unlock()
	return expired && says(410, "The file for this url no longer exists")(s, w, r)
}

// Where much was sent, a session that seems gone is given up only after several deliveries found it so.
func TestLargeOffsetNeedsProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, large = 10 << 20, 1 << 20
		s := newServer()
		s.meddle = on(http.MethodPatch, 10, forget)
		d := newDeviceOf(t, s, size, large)
		for failures := range 2 {
			if e := d.deliver(t, failures); e == nil || !e.Gone() || e.Class != remote.ItemTransient || d.rec.Seen().Losses != 0 {
				t.Fatalf("delivery %d: %v, %d losses", failures+1, e, d.rec.Seen().Losses)
			}
		}
		if e := d.deliver(t, 2); e != nil {
			t.Fatal(e)
		}
		if seen := d.rec.Seen(); seen.Losses != 1 || !bytes.Equal(s.stored(d.m), d.content) {
			t.Errorf("%d losses", seen.Losses)
		}
	})
}
