package server

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// partial is the header of an append in the IETF dialect.
func partial(offset int64, complete bool, more ...string) map[string]string {
	h := map[string]string{
		wire.HeaderUploadOffset: strconv.FormatInt(offset, 10), wire.HeaderUploadComplete: wire.FormatBoolean(complete),
		"Content-Type": wire.ContentTypePartial,
	}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

func opening(complete bool, more ...string) map[string]string {
	h := partial(0, complete, append([]string{"Content-Type", "image/jpeg"}, more...)...)
	delete(h, wire.HeaderUploadOffset)
	return h
}

func (r *rig) part(url string, at int64, complete bool, body string, more ...string) answered {
	r.t.Helper()
	return r.do(call{method: http.MethodPatch, path: url, header: partial(at, complete, more...), body: []byte(body)})
}

func (r *rig) opens(complete bool, body string, more ...string) answered {
	r.t.Helper()
	return r.do(call{method: http.MethodPost, path: uploads, header: opening(complete, more...), body: []byte(body)})
}

// stands fails the test unless the upload stands so; length -1 is one that nobody has told.
func (r *rig) stands(url string, offset, length int64, complete bool) {
	r.t.Helper()
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		a := r.do(call{method: method, path: url}).is(204)
		h := a.header
		if a.offset() != offset || h.Get(wire.HeaderUploadComplete) != wire.FormatBoolean(complete) ||
			(length >= 0) != (h.Get(wire.HeaderUploadLength) == strconv.FormatInt(length, 10)) ||
			!strings.HasPrefix(h.Get(wire.HeaderUploadLimit), "max-size=") || h.Get("Cache-Control") != "no-store" {
			r.t.Errorf("%s: %v, want %d of %d, complete %v", method, h, offset, length, complete)
		}
	}
}

// unfinished fails the test unless an answer says that the upload is not complete.
func (a answered) unfinished() answered {
	a.t.Helper()
	if got := a.header.Get(wire.HeaderUploadComplete); got != "?0" {
		a.t.Errorf("%s: Upload-Complete is %q", a, got)
	}
	return a
}

// finished fails the test unless the answer is that of a complete upload; it returns the receipt.
func (a answered) finished(f file) receipt.Receipt {
	a.t.Helper()
	rec := decode[receipt.Receipt](a.is(200))
	if got := a.header.Get(wire.HeaderUploadComplete); got != "?1" || rec.SHA256 != f.facts.SHA256 || rec.Length != f.facts.Length {
		a.t.Errorf("%s: Upload-Complete is %q", a, got)
	}
	return rec
}

func reprDigest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return wire.FormatDigest("sha-256", sum[:])
}

// A client of the draft finds the limits, uploads in one request or in parts, with or without knowing the length, and is
// given the same answer whenever it asks for the result again.
func TestDraftUpload(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	for _, path := range []string{uploads, upload.Path + "x"} {
		a := r.do(call{method: http.MethodOptions, path: path, token: "-"}).is(204)
		if got := a.header.Get(wire.HeaderUploadLimit); !strings.HasPrefix(got, "max-size=1099511627776, max-age=") {
			t.Errorf("%s: limits %q", path, got)
		}
	}
	whole := r.opens(true, "0123456789", "Content-Disposition", `inline; filename="../boiler.jpg"; filename*=UTF-8''..%2FKessel%20gro%C3%9F.jpg`)
	rec := whole.finished(f)
	url := whole.header.Get("Location")
	r.stands(url, 10, 10, true)
	if again := r.part(url, 10, true, "").finished(f); again.AttachmentID != rec.AttachmentID {
		t.Errorf("%+v and %+v", rec, again)
	}
	r.part(url, 3, true, "").refused(wire.CodeOffsetMismatch)
	r.part(url, 10, false, "").unfinished().refused(wire.CodeInvalid)
	r.part(url, 10, true, "x").unfinished().refused(wire.CodeLength)
	r.stands(url, 10, 10, true)
	got := r.do(call{method: http.MethodGet, path: "/v1/attachments/" + rec.AttachmentID + "/content"}).is(200)
	if d := got.header.Get("Content-Disposition"); string(got.body) != "0123456789" || !strings.HasSuffix(d, "Kessel%20gro%C3%9F.jpg") ||
		strings.Contains(d, "..") || got.header.Get("Content-Type") != "image/jpeg" {
		t.Errorf("%s: %v", got, got.header)
	}
	for _, length := range []int64{-1, 10} {
		var told []string
		if length >= 0 {
			told = []string{wire.HeaderUploadLength, "10"}
		}
		part := r.opens(false, "0123", told...).unfinished().is(201)
		url := part.header.Get("Location")
		r.stands(url, 4, length, false)
		if got := r.part(url, 4, false, "456789").unfinished().is(204).offset(); got != 10 {
			t.Errorf("offset %d", got)
		}
		r.stands(url, 10, length, false) // every byte, and nobody has said that this is all
		r.part(url, 10, true, "").finished(f)
		r.stands(url, 10, 10, true)
	}
	url = r.opens(false, "").unfinished().is(201).header.Get("Location")
	streamed := call{method: http.MethodPatch, path: url, header: partial(0, true), reader: io.MultiReader(bytes.NewReader(f.bytes))}
	r.do(streamed).finished(f) // whose length only its end tells
	r.stands(url, 10, 10, true)
	r.opens(true, "").finished(newFile(""))
}

// What does not start at the confirmed offset, has no offset, or speaks of another length is refused as the draft says.
func TestDraftRefusals(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.MaxLength, o.Limits.MaxAppend = 100, 8 })
	url := r.opens(false, "0123", wire.HeaderUploadLength, "10").is(201).header.Get("Location")
	for _, at := range []int64{0, 5, 10} {
		a := r.part(url, at, false, "xx").unfinished()
		p := a.refused(wire.CodeOffsetMismatch)
		if a.offset() != 4 || p.Type != wire.TypeUploadOffset || *p.ExpectedOffset != 4 || *p.ProvidedOffset != at {
			t.Errorf("%s: %+v", a, p)
		}
	}
	for _, offset := range []string{"", "-1", "x", "1.0", `"4"`, "4, 4", "9999999999999999"} {
		r.part(url, 4, false, "xx", wire.HeaderUploadOffset, offset).unfinished().refused(wire.CodeInvalid)
	}
	for _, complete := range []string{"", "?2", "1", "true", "?0, ?1"} {
		r.part(url, 4, false, "xx", wire.HeaderUploadComplete, complete).unfinished().refused(wire.CodeInvalid)
		r.opens(false, "xx", wire.HeaderUploadComplete, complete).unfinished().refused(wire.CodeInvalid)
	}
	a := r.part(url, 4, false, "xx", "Content-Type", "application/octet-stream").unfinished()
	if a.refused(wire.CodeMediaType); a.header.Get("Accept-Patch") == "" {
		t.Error("415 without Accept-Patch")
	}
	short := call{method: http.MethodPatch, path: url, header: partial(4, true), reader: io.MultiReader(strings.NewReader("4567"))}
	for _, a := range []answered{
		r.part(url, 4, true, "45678"), r.part(url, 4, false, "4", wire.HeaderUploadLength, "11"),
		r.part(url, 4, true, "456789", wire.HeaderUploadLength, "11"), r.part(url, 4, true, ""),
		r.opens(true, "0123", wire.HeaderUploadLength, "5"), r.opens(false, "0123", wire.HeaderUploadLength, "3"), r.do(short),
	} {
		if p := a.unfinished().refused(wire.CodeLength); p.Type != wire.TypeUploadLength {
			t.Errorf("%+v", p)
		}
	}
	r.stands(url, 8, 10, false)                                       // what streamed in counts, though it was not all
	r.part(url, 8, false, "8;", wire.HeaderUploadLength, "x").is(204) // a header that is none
	for _, a := range []answered{r.opens(false, "", wire.HeaderUploadLength, "101"), r.opens(true, strings.Repeat("x", 101))} {
		if a.refused(wire.CodeSizeLimit); a.header.Get(wire.HeaderUploadLimit) != "max-size=100" {
			t.Errorf("413 with %q", a.header.Get(wire.HeaderUploadLimit))
		}
	}
	r.opens(false, "", "Content-Encoding", "gzip").refused(wire.CodeMediaType)
	unknown := upload.Path + strings.Repeat("0", 40)
	r.part(unknown, 0, true, "x").refused(wire.CodeNotFound)
	r.do(call{method: http.MethodHead, path: unknown}).is(404)
	r.do(call{method: http.MethodHead, path: url, token: r.stranger}).is(404)
}

// An append beyond the length ends the upload, however it comes, and so does cancelling it. What is complete stays.
func TestDraftEnds(t *testing.T) {
	r := newRig(t)
	for _, how := range []string{"length", "stream", "cancelled"} {
		url := r.opens(false, "0123", wire.HeaderUploadLength, "6").is(201).header.Get("Location")
		switch how {
		case "length":
			r.part(url, 4, false, "45x").unfinished().refused(wire.CodeLength)
		case "stream":
			c := call{method: http.MethodPatch, path: url, header: partial(4, true), reader: io.MultiReader(strings.NewReader("45x"))}
			r.do(c).unfinished().refused(wire.CodeLength)
		default:
			r.do(call{method: http.MethodDelete, path: url}).is(204)
		}
		r.do(call{method: http.MethodHead, path: url}).is(410)
		r.part(url, 4, true, "45").unfinished().refused(wire.CodeSessionGone)
		r.nothingUnderWay()
	}
	url := r.opens(true, "whole").header.Get("Location")
	r.do(call{method: http.MethodDelete, path: url}).refused(wire.CodeMethod)
	r.stands(url, 5, 5, true)
}

// Digests: of one request, which counts when it has it; of the whole file, which fails the upload; and the server's own,
// for who wants it.
func TestDraftDigests(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.MaxAppend = 8 })
	f := newFile("0123456789")
	url := r.opens(false, "0123", wire.HeaderContentDigest, reprDigest("0123"), wire.HeaderWantReprDigest, "sha-512=3, sha-256=10").
		is(201).header.Get("Location")
	for _, body := range []string{"4567", ""} {
		a := r.part(url, 4, false, body, wire.HeaderContentDigest, reprDigest("other")).unfinished()
		if a.refused(wire.CodeDigestField); a.offset() != 4 {
			t.Errorf("%s at %d", a, a.offset())
		}
	}
	r.part(url, 4, false, "x", wire.HeaderContentDigest, "sha-256=:!:").refused(wire.CodeInvalid)
	r.part(url, 4, false, "x", wire.HeaderContentDigest, "sha-256=1").refused(wire.CodeInvalid)
	large := r.opens(false, "012345678", wire.HeaderContentDigest, reprDigest("012345678"))
	if large.refused(wire.CodeAppendLimit); !strings.Contains(large.header.Get(wire.HeaderUploadLimit), "max-append-size=8") {
		t.Errorf("413 with %q", large.header.Get(wire.HeaderUploadLimit))
	}
	r.restart()
	r.stands(url, 4, -1, false)
	last := r.part(url, 4, true, "456789", wire.HeaderContentDigest, "md5=:AAAA:, "+reprDigest("456789"))
	if last.finished(f); last.header.Get(wire.HeaderReprDigest) != reprDigest("0123456789") {
		t.Errorf("Repr-Digest is %q", last.header.Get(wire.HeaderReprDigest))
	}
	right := r.opens(true, "0123456789", wire.HeaderReprDigest, reprDigest("0123456789"))
	if right.finished(f); right.header.Get(wire.HeaderReprDigest) != "" {
		t.Error("a digest that nobody wants")
	}
	wrong := r.opens(true, "0123456789", wire.HeaderReprDigest, reprDigest("others"))
	if wrong.refused(wire.CodeDigestField); wrong.header.Get(wire.HeaderUploadComplete) != "?1" {
		t.Errorf("%s: %v", wrong, wrong.header)
	}
	r.do(call{method: http.MethodHead, path: wrong.header.Get("Location")}).is(410)
	r.opens(true, "x", wire.HeaderReprDigest, "sha-256=:AAAA:").refused(wire.CodeInvalid)
}

// Both dialects see one and the same upload: what a device reserved goes on in either, and so does what a client created.
func TestDialectsShareUploads(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	r.part(url, 0, false, "012").is(204)
	if got := r.patch(url, 3, f.bytes[3:6]).is(204).offset(); got != 6 {
		t.Fatalf("offset %d", got)
	}
	r.stands(url, 6, 10, false)
	r.part(url, 6, false, "6789").is(204)
	r.stands(url, 10, 10, false)
	if a := r.part(url, 10, true, "").is(204); a.header.Get(wire.HeaderUploadComplete) != "?1" {
		t.Errorf("%v", a.header)
	}
	r.stands(url, 10, 10, true)
	r.register(f).is(200)
	bad := newFile("as declared")
	url = r.reserve(bad).Upload.URL
	if a := r.part(url, 0, true, "not as said"); a.header.Get(wire.HeaderUploadComplete) != "?1" {
		t.Errorf("%v", a.header)
	} else {
		a.refused(wire.CodeDigestMismatch)
	}
	url = r.opens(false, "01234", wire.HeaderUploadLength, "10", "Content-Disposition", `inline; filename="a.jpg"`).is(201).header.Get("Location")
	head := r.headed(url).is(200)
	if head.offset() != 5 || head.header.Get(wire.HeaderUploadMetadata) != pairs("filename", "a.jpg", "filetype", "image/jpeg") {
		t.Errorf("%v", head.header)
	}
	r.patch(url, 5, []byte("56789")).is(204)
	r.stands(url, 10, 10, true)
}

// stream sends a body in pieces, each when a 104 has confirmed the one before it or patience is at its end, and returns what
// 104s brought. Each confirmed offset is passed to confirmed, if that is set.
func (r *rig) stream(c call, patience time.Duration, confirmed func(offset int64), pieces ...string) ([]textproto.MIMEHeader, answered, error) {
	r.t.Helper()
	told, done, all := make(chan int64, 100), make(chan struct{}), []textproto.MIMEHeader{}
	c.trace = &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code == wire.StatusResumption {
			all = append(all, h)
		}
		if offset, err := strconv.ParseInt(h.Get(wire.HeaderUploadOffset), 10, 64); err == nil {
			told <- offset
		}
		return nil
	}}
	body := newSlowBody()
	c.reader = body
	var feeding sync.WaitGroup
	feeding.Go(func() {
		defer func() { _ = body.feed.Close() }()
		for i, piece := range pieces {
			if i > 0 {
				select {
				case offset := <-told:
					if confirmed != nil {
						confirmed(offset)
					}
				case <-time.After(patience): // refused, and the server wants to see the end of it before it says so
				case <-done:
					return
				}
			}
			if _, err := io.WriteString(body.feed, piece); err != nil {
				return
			}
		}
	})
	a, err := r.try(c)
	close(done)
	feeding.Wait()
	return all, a, err
}

// While an append lasts its client is told what is confirmed, which a crash does not take back, and first where the upload
// is. Who does not ask for the draft's version is told nothing before the answer.
func TestInterimAnswers(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.Confirm = 3 })
	f := newFile("0123456789")
	post := call{method: http.MethodPost, path: uploads, header: opening(true, wire.HeaderInteropVersion, "8")}
	all, a, err := r.stream(post, time.Minute, nil, "012", "345", "6789")
	check(t, err)
	a.finished(f)
	url := a.header.Get("Location")
	if len(all) < 3 || all[0].Get("Location") != url || all[0].Get(wire.HeaderUploadLimit) != a.header.Get(wire.HeaderUploadLimit) {
		t.Fatalf("%v, %v", all, a.header)
	}
	for i, h := range all {
		if h.Get(wire.HeaderInteropVersion) != "8" || i > 0 && (len(h) != 2 || h.Get(wire.HeaderUploadOffset) != strconv.Itoa(3*i) && i < 3) {
			t.Errorf("%d: %v", i, h)
		}
	}
	url = r.opens(false, "").header.Get("Location")
	all, a, err = r.stream(call{method: http.MethodPatch, path: url, header: partial(0, true, wire.HeaderInteropVersion, "8")}, time.Minute, nil,
		"012", "345", "6789")
	check(t, err)
	if a.finished(f); len(all) < 2 || all[0].Get(wire.HeaderUploadOffset) != "3" || all[0].Get("Location") != "" {
		t.Errorf("%v", all)
	}
	for _, version := range []string{"", "7", "x"} {
		post.header = opening(true, wire.HeaderInteropVersion, version)
		all, a, err := r.stream(post, time.Minute, nil, "0123456789")
		check(t, err)
		if a.finished(f); len(all) != 0 {
			t.Errorf("version %q is sent %v", version, all)
		}
	}
}

// A newer request of the draft takes an upload over from one that moves, whose connection ends without an answer and whose
// prefix counts. In tus the newer one is told to wait.
func TestDraftTakesOver(t *testing.T) {
	r := newRig(t)
	for _, method := range []string{http.MethodHead, http.MethodPatch, http.MethodDelete} {
		url := r.opens(false, "", wire.HeaderUploadLength, "10").header.Get("Location")
		body, done := r.movingWith(url, partial(0, true), 0, []byte("0123"))
		r.patch(url, 0, []byte("x")).refused(wire.CodeBusy)
		switch method {
		case http.MethodHead:
			r.stands(url, 4, 10, false)
		case http.MethodPatch:
			if a := r.part(url, 0, true, "0123456789"); a.offset() != 4 {
				t.Errorf("%s at %d", a, a.offset())
			}
		default:
			r.do(call{method: method, path: url}).is(204)
			r.do(call{method: http.MethodHead, path: url}).is(410)
		}
		check(t, body.feed.Close()) // for the client, which does not look at its connection before
		if a, ok := <-done; ok {
			t.Errorf("%s: the older request is answered %s", method, a)
		}
	}
	r.restart()
}
