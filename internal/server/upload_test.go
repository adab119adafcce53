package server

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// The upload resource answers as tus 1.0.0 demands, and every answer says the version.
func TestTus(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.MaxAppend = 6 })
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	tus := func(method string, header map[string]string, body string) answered {
		a := r.do(call{method: method, path: url, header: header, body: []byte(body)})
		if a.header.Get(wire.HeaderTusResumable) != wire.TusVersion {
			t.Errorf("%s: no %s", a, wire.HeaderTusResumable)
		}
		return a
	}
	options := r.do(call{method: http.MethodOptions, path: url, token: "-"}).is(204)
	if options.header.Get(wire.HeaderTusVersion) != wire.TusVersion || options.header.Get(wire.HeaderTusMaxSize) == "" {
		t.Errorf("%v", options.header)
	}
	head := tus(http.MethodHead, tusHeader(0), "").is(200)
	if head.offset() != 0 || head.header.Get(wire.HeaderUploadLength) != "10" || head.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", head.header)
	}
	for _, version := range []string{"", "0.2.2", "1.0.1"} {
		a := tus(http.MethodPatch, tusHeader(0, wire.HeaderTusResumable, version), "01")
		a.refused(wire.CodeTusVersion)
		if a.header.Get(wire.HeaderTusVersion) != wire.TusVersion {
			t.Errorf("412 without %s", wire.HeaderTusVersion)
		}
		tus(http.MethodHead, tusHeader(0, wire.HeaderTusResumable, version), "").is(412)
	}
	tus(http.MethodPatch, tusHeader(0, "Content-Type", "application/octet-stream"), "01").refused(wire.CodeMediaType)
	tus(http.MethodPatch, tusHeader(0, "Content-Type", ""), "01").refused(wire.CodeMediaType)
	for _, offset := range []string{"", "-1", "x", "1e2", "0x1", "9223372036854775808", "1.5"} {
		tus(http.MethodPatch, tusHeader(0, wire.HeaderUploadOffset, offset), "01").refused(wire.CodeInvalid)
	}
	if got := tus(http.MethodPatch, tusHeader(0), "0123").is(204); got.offset() != 4 || len(got.body) != 0 {
		t.Errorf("%s at %d", got, got.offset())
	}
	for _, at := range []int64{0, 3, 5, 10, 1 << 40} {
		a := tus(http.MethodPatch, tusHeader(at), "xx")
		p := a.refused(wire.CodeOffsetMismatch)
		if a.offset() != 4 || *p.ExpectedOffset != 4 || *p.ProvidedOffset != at {
			t.Errorf("%s at %d: %+v", a, a.offset(), p)
		}
	}
	for _, body := range []string{"4567890", "456789x"} { // over the largest append; the other one is also over the length
		a := tus(http.MethodPatch, tusHeader(4), body)
		a.refused(wire.CodeAppendLimit)
		if a.offset() != 4 {
			t.Errorf("offset %d", a.offset())
		}
	}
	if got := tus(http.MethodPatch, tusHeader(4), "").is(204).offset(); got != 4 {
		t.Errorf("offset after an empty append %d", got)
	}
	over := r.do(call{method: http.MethodPost, path: url, header: tusHeader(4, wire.HeaderMethodOverride, "PATCH"), body: []byte("4567")}).is(204)
	if over.offset() != 8 {
		t.Errorf("offset %d", over.offset())
	}
	r.do(call{method: http.MethodPost, path: url, header: tusHeader(4, wire.HeaderMethodOverride, "HEAD")}).is(200)
	tus(http.MethodPatch, tusHeader(8), "89x").refused(wire.CodeAppendLimit)
	tus(http.MethodPatch, tusHeader(8), "89").is(204)
	tus(http.MethodPatch, tusHeader(8), "89").refused(wire.CodeOffsetMismatch)
	tus(http.MethodPatch, tusHeader(10), "").is(204)
	tus(http.MethodPatch, tusHeader(10), "x").refused(wire.CodeAppendLimit)
	r.do(call{method: http.MethodHead, path: upload.Path + strings.Repeat("0", 40), header: tusHeader(0)}).is(404)
	r.do(call{method: http.MethodPatch, path: upload.Path + "..%2F..%2Fserver.db", header: tusHeader(0), body: []byte("x")}).refused(wire.CodeNotFound)
	r.register(f).is(200)
}

// A body of unknown length that turns out too large is refused. Of one with a checksum nothing counts; of any other what was
// confirmed by then.
func TestStreamedExcess(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.MaxAppend, o.Limits.Confirm = 1<<20, 1<<20 })
	f := newFile(strings.Repeat("x", 3<<20))
	url := r.reserve(f).Upload.URL
	send := func(at int64, body []byte, more ...string) answered {
		stream := io.MultiReader(bytes.NewReader(body)) // chunked
		return r.do(call{method: http.MethodPatch, path: url, header: tusHeader(at, more...), reader: stream})
	}
	sum := checksum(f.bytes)
	for _, a := range []answered{send(0, f.bytes, wire.HeaderUploadChecksum, sum), r.do(call{method: http.MethodPatch, path: url,
		header: tusHeader(0, wire.HeaderUploadChecksum, sum), body: f.bytes})} {
		a.refused(wire.CodeAppendLimit)
		if a.offset() != 0 || r.head(url) != 0 {
			t.Fatalf("%d and %d bytes of a refused append count", a.offset(), r.head(url))
		}
	}
	part := f.bytes[:1<<20] // exactly as large as allowed
	send(0, part, wire.HeaderUploadChecksum, checksum(part)).is(204)
	a := send(1<<20, f.bytes)
	a.refused(wire.CodeAppendLimit)
	at := r.head(url)
	if a.offset() != at || at < 2<<20 || at > 3<<20 {
		t.Fatalf("at %d and %d", a.offset(), at)
	}
	send(at, f.bytes[at:]).is(204)
	r.register(f).is(200)
}

// checksum is the value of Upload-Checksum for a body.
func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256 " + base64.StdEncoding.EncodeToString(sum[:])
}

// An append with a checksum counts when it has it, and not at all when it has another one or does not reach its end.
func TestChecksum(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.Confirm = 1 })
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	patch := func(at int64, body, sum string) answered {
		return r.do(call{method: http.MethodPatch, path: url, header: tusHeader(at, wire.HeaderUploadChecksum, sum), body: []byte(body)})
	}
	for _, unknown := range []string{"md5 AAAA", "sha1", "sha-256 AAAA", "sha256 !", "x AAAA", "SHA1 AAAA"} {
		patch(0, "0123", unknown).refused(wire.CodeInvalid)
	}
	wrong := patch(0, "0124", checksum([]byte("0123")))
	wrong.refused(wire.CodeChecksum)
	if wrong.offset() != 0 {
		t.Errorf("%s at %d", wrong, wrong.offset())
	}
	patch(0, "", checksum([]byte("0123"))).refused(wire.CodeChecksum)
	patch(0, "0123", "sha1 HyP3S6xXo2xiSiX8PfEJ7QsNYZQ=").refused(wire.CodeChecksum)
	if got := r.head(url); got != 0 {
		t.Fatalf("%d bytes count", got)
	}
	sum := sha1.Sum([]byte("0123"))
	patch(0, "0123", "sha1 "+base64.StdEncoding.EncodeToString(sum[:])).is(204)
	body, done := r.movingWith(url, tusHeader(4, wire.HeaderUploadChecksum, checksum(f.bytes[4:])), 4, f.bytes[4:8])
	check(t, r.server.engine.Cut())
	if a := <-done; a.offset() != 4 {
		t.Errorf("%s at %d", a, a.offset())
	}
	check(t, body.feed.Close())
	r.restart()
	patch(4, "456789", checksum(f.bytes[4:])).is(204)
	patch(10, "", checksum(nil)).is(204)
	r.register(f).is(200)
}

// Files of no bytes need no append.
func TestEmptyFile(t *testing.T) {
	for _, how := range []string{"show", "register", "append"} {
		r := newRig(t)
		f := newFile("")
		url := r.reserve(f).Upload.URL
		switch how {
		case "show":
			if got := decode[wire.Attachment](r.show(f).is(200)); got.State != wire.StateVerified || *got.Length != 0 {
				t.Errorf("%+v", got)
			}
		case "append":
			r.patch(url, 0, nil).is(204)
		}
		r.register(f).is(200)
		if got := r.do(call{method: http.MethodGet, path: f.path() + "/content"}).is(200); len(got.body) != 0 {
			t.Errorf("content %q", got.body)
		}
		second := newFile("")
		if got := r.reserve(second); got.Upload != nil || got.State != wire.StateVerified {
			t.Errorf("%+v", got)
		}
		r.register(second).is(200)
	}
}

// Other bytes than declared are found out by the server itself; the session is void and a new generation delivers.
func TestDigestMismatch(t *testing.T) {
	r := newRig(t)
	f := newFile("the right bytes")
	first := r.reserve(f)
	a := r.patch(first.Upload.URL, 0, []byte("the wrong bytes"))
	a.refused(wire.CodeDigestMismatch)
	r.show(f).refused(wire.CodeDigestMismatch)
	r.register(f).refused(wire.CodeDigestMismatch)
	r.patch(first.Upload.URL, 0, f.bytes).refused(wire.CodeSessionGone)
	r.do(call{method: http.MethodHead, path: first.Upload.URL, header: tusHeader(0)}).is(410)
	if _, err := os.Stat(r.uploadFile(first.Upload.URL)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the wrong bytes stay: %v", err)
	}
	again := r.reserve(f)
	if again.Generation != 2 || again.Upload.Offset != 0 || again.Upload.URL == first.Upload.URL {
		t.Fatalf("%+v", again)
	}
	r.patch(again.Upload.URL, 0, f.bytes).is(204)
	r.patch(first.Upload.URL, 0, f.bytes).refused(wire.CodeSessionGone)
	r.register(f).is(200)
}

// The identity of an attachment is fixed; a second device of the account goes on where the first one stopped.
func TestIdentityAndTakeover(t *testing.T) {
	r := newRig(t)
	f := newFile("shared work")
	url := r.reserve(f).Upload.URL
	for name, change := range map[string]func(*wire.Reserve){
		"length": func(f *wire.Reserve) { f.Length++ },
		"digest": func(f *wire.Reserve) { f.SHA256 = strings.Repeat("0", 64) },
		"role":   func(f *wire.Reserve) { f.Role, f.Of = wire.RolePreview, newFile("").id },
	} {
		other := f
		change(&other.facts)
		t.Run(name, func(*testing.T) { r.put(other, "").refused(wire.CodeIdentityConflict) })
	}
	r.patch(url, 0, f.bytes[:6]).is(204)
	taken := decode[wire.Attachment](r.put(f, r.second).is(200))
	if taken.Upload.URL != url || taken.Upload.Offset != 6 {
		t.Fatalf("%+v", taken)
	}
	r.do(call{method: http.MethodPatch, path: url, token: r.second, header: tusHeader(6), body: f.bytes[6:]}).is(204)
	rec := decode[receipt.Receipt](r.do(call{method: http.MethodPost, path: f.path() + "/registration", token: r.second,
		header: jsonHeader, body: asJSON(t, wire.Register{Parent: f.facts.Parent})}).is(200))
	if rec.Takeover == nil || rec.Takeover.Device != "tablet-2" {
		t.Fatalf("%+v", rec)
	}
	other := f
	other.facts.Parent.LocalID = "insp-8"
	r.register(other).refused(wire.CodeParentPolicy)
	other = f
	other.facts.Parent.ServerID = "S-1"
	if got := decode[receipt.Receipt](r.register(other).is(200)); got.Parent.ServerID != "S-1" || got.RegisteredAt != rec.RegisteredAt {
		t.Fatalf("%+v", got)
	}
}

// Two attachments of the same bytes are one content and one media item with two receipts; once one is registered, the
// other needs no bytes.
func TestSameContentTwice(t *testing.T) {
	r := newRig(t)
	one, two, three := newFile("same"), newFile("same"), newFile("same")
	a, b := r.reserve(one), r.reserve(two)
	if a.MediaID != b.MediaID || b.Upload == nil {
		t.Fatalf("%+v and %+v", a, b)
	}
	r.patch(a.Upload.URL, 0, one.bytes).is(204)
	r.patch(b.Upload.URL, 0, two.bytes).is(204)
	r.register(one).is(200)
	c := r.reserve(three)
	if c.Upload != nil || c.State != wire.StateVerified || c.MediaID != a.MediaID {
		t.Fatalf("%+v", c)
	}
	for _, f := range []file{two, three} {
		if rec := decode[receipt.Receipt](r.register(f).is(200)); rec.AttachmentID != f.id || rec.MediaID != a.MediaID {
			t.Fatalf("%+v", rec)
		}
	}
	for _, url := range []string{a.Upload.URL, b.Upload.URL} {
		if _, err := os.Stat(r.uploadFile(url)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("an upload's file stays: %v", err)
		}
	}
}

// There is no room: nothing is reserved, and an append that fills the disk keeps what the disk took.
func TestServerFull(t *testing.T) {
	room := int64(64<<20 + 100)
	full := false
	var mu sync.Mutex
	hook := func(c durable.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if full && c.Op == durable.OpWrite && strings.Contains(c.Path, "uploads") {
			return &durable.ShortWrite{N: 3, Err: unix.ENOSPC}
		}
		return nil
	}
	r := newRig(t, hooked(hook), func(o *Options) { o.Room = func() (int64, error) { return room, nil } })
	r.put(newFile(strings.Repeat("x", 101)), "").refused(wire.CodeServerFull)
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	mu.Lock()
	full = true
	mu.Unlock()
	a := r.patch(url, 0, f.bytes)
	a.refused(wire.CodeServerFull)
	if a.offset() != 3 || r.head(url) != 3 {
		t.Fatalf("offsets %d and %d", a.offset(), r.head(url))
	}
	mu.Lock()
	full = false
	mu.Unlock()
	r.patch(url, 3, f.bytes[3:]).is(204)
	r.register(f).is(200)
}

// A failed fsync is final: nothing is confirmed, the session is gone, and the next generation delivers.
func TestFailedSync(t *testing.T) {
	fail := false
	var mu sync.Mutex
	r := newRig(t, hooked(func(c durable.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if fail && c.Op == durable.OpSync && strings.Contains(c.Path, "uploads") {
			fail = false
			return unix.EIO
		}
		return nil
	}))
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	r.patch(url, 0, f.bytes[:4]).is(204)
	mu.Lock()
	fail = true
	mu.Unlock()
	r.patch(url, 4, f.bytes[4:8]).refused(wire.CodeSessionGone)
	r.show(f).refused(wire.CodeSessionGone)
	r.register(f).refused(wire.CodeSessionGone)
	if again := r.reserve(f); again.Generation != 2 || again.Upload.Offset != 0 {
		t.Fatalf("%+v", again)
	}
	r.deliver(f)
}

// Sessions per account are bounded, and one that ends makes room.
func TestTooManySessions(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.SessionsPerAccount = 2 })
	one, two, three := newFile("one"), newFile("two"), newFile("three")
	r.reserve(one)
	r.reserve(two)
	if a := r.put(three, ""); a.header.Get("Retry-After") == "" {
		t.Errorf("%s without Retry-After", a)
	} else {
		a.refused(wire.CodeTooMany)
	}
	r.put(three, r.stranger).is(201)
	r.put(one, "").is(200)
	r.deliver(one)
	r.put(three, "").is(201)
}

// However many devices reserve one ID and send its bytes at once, there is one session, one media item, one registration,
// and the content is whole.
func TestConcurrentDelivery(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.AppendsPerDevice = 100 })
	f := newFile(strings.Repeat("0123456789", 5000))
	const callers = 64
	reserved := make([]wire.Attachment, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			a := r.put(f, []string{r.token, r.second}[i%2])
			if a.status != 200 && a.status != 201 {
				t.Errorf("%s", a)
				return
			}
			reserved[i] = decode[wire.Attachment](a)
		})
	}
	group.Wait()
	for _, a := range reserved {
		if a.Upload == nil || a.Upload.URL != reserved[0].Upload.URL || a.MediaID != reserved[0].MediaID {
			t.Fatalf("%+v and %+v", a, reserved[0])
		}
	}
	url := reserved[0].Upload.URL
	for range 8 {
		group.Go(func() {
			at := int64(0)
			for at < f.facts.Length {
				a := r.patch(url, at, f.bytes[at:min(at+7000, f.facts.Length)])
				switch a.status {
				case 204, 409:
					at = a.offset()
				case 423:
					at = r.head(url)
				default:
					t.Errorf("%s", a)
					return
				}
			}
		})
	}
	group.Wait()
	receipts := make([]string, 16)
	for i := range receipts {
		group.Go(func() { receipts[i] = string(r.register(f).is(200).body) })
	}
	group.Wait()
	for _, got := range receipts {
		if got != receipts[0] {
			t.Fatalf("two receipts:\n%s\n%s", got, receipts[0])
		}
	}
	if got := r.do(call{method: http.MethodGet, path: f.path() + "/content"}); !bytes.Equal(got.body, f.bytes) {
		t.Fatal("content differs")
	}
}

// slowBody is a request body that a test feeds.
type slowBody struct {
	*io.PipeReader
	feed *io.PipeWriter
}

func newSlowBody() slowBody {
	r, w := io.Pipe()
	return slowBody{r, w}
}

// moving starts an append that has sent the first bytes and stands still, and waits until the server has them.
func (r *rig) moving(url string, at int64, first []byte) (slowBody, <-chan answered) {
	r.t.Helper()
	return r.movingWith(url, tusHeader(at), at, first)
}

func (r *rig) movingWith(url string, header map[string]string, at int64, first []byte) (slowBody, <-chan answered) {
	r.t.Helper()
	body := newSlowBody()
	done := make(chan answered, 1)
	go func() {
		a, err := r.try(call{method: http.MethodPatch, path: url, header: header, reader: body})
		if err == nil {
			done <- a
		}
		close(done)
	}()
	if _, err := body.feed.Write(first); err != nil {
		r.t.Fatal(err)
	}
	for info, err := os.Stat(r.uploadFile(url)); err != nil || info.Size() < at+int64(len(first)); {
		if err := r.t.Context().Err(); err != nil {
			r.t.Fatal(err)
		}
		info, err = os.Stat(r.uploadFile(url))
	}
	return body, done
}

// While one append moves, another of the same session is told to wait, HEAD tells what is confirmed, and other sessions
// of the device are free up to its limit.
func TestOneAppendAtATime(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.AppendsPerDevice = 1 })
	f, other := newFile("0123456789"), newFile("another")
	url, otherURL := r.reserve(f).Upload.URL, r.reserve(other).Upload.URL
	body, done := r.moving(url, 0, f.bytes[:4])
	second := call{method: http.MethodPatch, path: url, token: r.second, header: tusHeader(0), body: f.bytes}
	busy := r.do(second)
	busy.refused(wire.CodeBusy)
	if busy.header.Get("Retry-After") == "" {
		t.Error("423 without Retry-After")
	}
	if got := r.head(url); got != 0 && got != 4 { // a second may have passed
		t.Errorf("%d bytes are confirmed", got)
	}
	r.patch(otherURL, 0, other.bytes).refused(wire.CodeTooMany)
	r.do(call{method: http.MethodPatch, path: otherURL, token: r.second, header: tusHeader(0), body: other.bytes}).is(204)
	if _, err := body.feed.Write(f.bytes[4:]); err != nil {
		t.Fatal(err)
	}
	if err := body.feed.Close(); err != nil {
		t.Fatal(err)
	}
	if a := (<-done).is(204); a.offset() != f.facts.Length {
		t.Fatalf("offset %d", a.offset())
	}
	r.register(f).is(200)
}

// A client that vanishes in an append leaves its prefix confirmed and the session free.
func TestCutAppendKeepsPrefix(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	conn, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	request := "PATCH " + url + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.token + "\r\nTus-Resumable: 1.0.0\r\n" +
		"Upload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\nContent-Length: 10\r\n\r\n012345"
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.Contains(answer, []byte("400 Bad Request")) || !bytes.Contains(answer, []byte("Upload-Offset: 6")) {
		t.Errorf("%s, %v", answer, err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if got := r.head(url); got != 6 {
		t.Fatalf("%d bytes confirmed", got)
	}
	r.patch(url, 6, f.bytes[6:]).is(204)
	r.register(f).is(200)
}

// An append in which nothing arrives ends by itself, with its prefix confirmed.
func TestIdleAppendEnds(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.Idle = 1 }) // 1 ns: every wait is too long
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	body := newSlowBody()
	defer func() { _ = body.feed.Close() }()
	a := r.do(call{method: http.MethodPatch, path: url, header: tusHeader(0), reader: body})
	a.refused(wire.CodeTimeout)
	if a.offset() != 0 {
		t.Errorf("offset %d", a.offset())
	}
	r.patch(url, 0, nil).is(204) // the session is free, and an empty body does not wait
}

// A server that stops answers the append it cuts, keeps the prefix, and a new start goes on behind it.
func TestStopCutsAppends(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	body, done := r.moving(url, 0, f.bytes[:6])
	defer func() { _ = body.feed.Close() }()
	if err := r.server.engine.Cut(); err != nil {
		t.Fatal(err)
	}
	a := <-done
	a.refused(wire.CodeShuttingDown)
	if a.offset() != 6 || a.header.Get("Retry-After") == "" {
		t.Errorf("%s at %d", a, a.offset())
	}
	r.restart()
	if got := r.head(url); got != 6 {
		t.Fatalf("%d bytes confirmed", got)
	}
	r.patch(url, 6, f.bytes[6:]).is(204)
	r.register(f).is(200)
}

// Run serves until it is told to stop, gives appends their time, and tells the service manager.
func TestRun(t *testing.T) {
	var states []string
	r := newRig(t, func(o *Options) {
		o.Notify = func(s string) { states = append(states, s) }
		o.Limits.Drain = 1 // 1 ns: what moves is cut at once
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.server.Run(ctx, ln) }()
	r.http.Config.Handler = http.NotFoundHandler()
	r.http.URL = "http://" + ln.Addr().String()
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	body, done := r.moving(url, 0, f.bytes[:6])
	defer func() { _ = body.feed.Close() }()
	stop()
	if a, ok := <-done; ok {
		a.refused(wire.CodeShuttingDown)
	}
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	if strings.Join(states, " ") != "READY=1 STOPPING=1" {
		t.Errorf("notified %q", states)
	}
	r.restart()
	if got := r.head(url); got != 6 {
		t.Fatalf("%s bytes confirmed", strconv.FormatInt(got, 10))
	}
}

// A server that starts finishes by itself what a client created and sent whole before, and goes on to look after what is open.
func TestRunTidies(t *testing.T) {
	r := newRig(t, hooked(putOff), func(o *Options) { o.Limits.Expire = 1 }) // 1 ns: whatever waits for bytes has waited too long
	whole := newCreated("0123456789", undeclared)
	r.patch(r.create(whole).location(), 0, whole.bytes).refused(wire.CodeInternal)
	left := r.create(newCreated("left alone", undeclared)).location()
	r.reopen(func(o *Options) { o.FS = nil })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.server.Run(ctx, ln) }()
	for r.headed(left).status != http.StatusGone || !slices.Contains(r.listed(), whole.id) {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	check(t, <-ended)
}

// failed is a record store whose last commit has an unknown outcome.
type failed struct{ store.Store }

func (failed) Failed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// When the record store fails the server ends at once and says why: only a restart can tell what is true.
func TestRunEndsWhenTheStoreFails(t *testing.T) {
	r := newRig(t)
	r.server.records = failed{r.server.records}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	if err := r.server.Run(t.Context(), ln); !errors.Is(err, ErrStoreFailed) {
		t.Errorf("run: %v", err)
	}
}
