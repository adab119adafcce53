package server

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

const uploads = "/v1/uploads"

// pairs is an Upload-Metadata of keys and values.
func pairs(kv ...string) string {
	var out []string
	for i := 0; i+1 < len(kv); i += 2 {
		out = append(out, kv[i]+" "+base64.StdEncoding.EncodeToString([]byte(kv[i+1])))
	}
	return strings.Join(out, ",")
}

// described is what a client says of a file when it creates its upload.
func (f file) described() string {
	kv := []string{
		"filename", f.facts.Filename, "filetype", f.facts.MediaType, "parent", f.facts.Parent.LocalID, "attachment_id", f.id,
	}
	if f.as == declared {
		kv = append(kv, "sha256", f.facts.SHA256)
	}
	return pairs(kv...)
}

// post creates an upload; header is name and value in turn.
func (r *rig) post(body string, header ...string) answered {
	r.t.Helper()
	h := map[string]string{wire.HeaderTusResumable: wire.TusVersion}
	if body != "" {
		h["Content-Type"] = wire.ContentTypeOffset
	}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return r.do(call{method: http.MethodPost, path: uploads, header: h, body: []byte(body)})
}

// create creates the upload of a file, without bytes.
func (r *rig) create(f file) answered {
	r.t.Helper()
	return r.post("", wire.HeaderUploadLength, strconv.FormatInt(f.facts.Length, 10), wire.HeaderUploadMetadata, f.described())
}

func (a answered) location() string {
	a.t.Helper()
	url := a.is(http.StatusCreated).header.Get("Location")
	if !store.IsSessionID(strings.TrimPrefix(url, upload.Path)) {
		a.t.Fatalf("%s: Location %q", a, url)
	}
	return url
}

func (r *rig) headed(url string) answered {
	r.t.Helper()
	return r.do(call{method: http.MethodHead, path: url, header: tusHeader(0)})
}

func (r *rig) delete(url string) answered {
	r.t.Helper()
	return r.do(call{method: http.MethodDelete, path: url, header: tusHeader(0)})
}

// attemptCreated delivers a file as a client does that creates its upload, from wherever it stands; see attempt.
func (r *rig) attemptCreated(f file) string {
	r.t.Helper()
	for range 10 {
		a := r.create(f)
		if a.status != http.StatusCreated {
			continue
		}
		url, at := a.location(), a.offset()
		for at < f.facts.Length {
			if a = r.patch(url, at, f.bytes[at:min(at+4, f.facts.Length)]); a.status != http.StatusNoContent {
				break
			}
			at = a.offset()
		}
		if at < f.facts.Length || a.status >= 400 {
			continue
		}
		if a = r.show(f); a.status == http.StatusOK {
			rec := decode[wire.Attachment](a).Receipt
			if rec == nil {
				r.t.Errorf("complete and not registered: %s", a)
				return ""
			}
			return r.same(f, string(asJSON(r.t, rec)))
		}
	}
	return ""
}

// invisible fails the test when anything of a file can be seen that is not registered.
func (r *rig) invisible(id string) {
	r.t.Helper()
	r.do(call{method: http.MethodGet, path: "/v1/attachments/" + id + "/content"}).refused(wire.CodeNotFound)
	if slices.Contains(r.listed(), id) {
		r.t.Errorf("%s is listed", id)
	}
}

// A client that knows nothing but tus delivers a file, with and without a digest of its own; it is visible when it is
// registered, not before.
func TestCreation(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	r := newRig(t, func(o *Options) { o.Now, o.Limits.MaxAppend = func() time.Time { return now }, 4 })
	for _, as := range []dialect{declared, undeclared} {
		f := newFile("bytes of " + string(as))
		f.as = as
		a := r.create(f)
		url := a.location()
		ends := now.Add(7 * 24 * time.Hour).Format(http.TimeFormat)
		if a.offset() != 0 || a.header.Get(wire.HeaderAttachment) != f.id || a.header.Get(wire.HeaderUploadExpires) != ends {
			t.Fatalf("%s: %v", a, a.header)
		}
		head := r.headed(url).is(200).header
		if head.Get(wire.HeaderUploadMetadata) != f.described() || head.Get(wire.HeaderUploadExpires) != ends ||
			head.Get(wire.HeaderUploadLength) != strconv.Itoa(len(f.bytes)) || head.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", head)
		}
		r.invisible(f.id)
		// More than the largest append of a device, which such a client cannot know.
		a = r.patch(url, 0, f.bytes[:6]).is(204)
		if a.offset() != 6 || a.header.Get(wire.HeaderUploadExpires) != ends {
			t.Errorf("%s: %v", a, a.header)
		}
		r.invisible(f.id)
		a = r.patch(url, 6, f.bytes[6:]).is(204)
		if got := a.header.Get(wire.HeaderUploadExpires); got != "" {
			t.Errorf("a complete upload expires: %s", got)
		}
		rec := decode[wire.Attachment](r.show(f).is(200)).Receipt
		if err := receipt.Check(*rec, receipt.Facts{
			AttachmentID: f.id, Length: f.facts.Length, SHA256: f.facts.SHA256, Parent: f.facts.Parent,
		}); err != nil || rec.Grade != receipt.RegisteredDurable || !rec.RegisteredAt.Equal(now) {
			t.Errorf("receipt %+v, %v", rec, err)
		}
		if got := r.get(f); !strings.Contains(got.header.Get("Content-Disposition"), f.facts.Filename) {
			t.Errorf("%v", got.header)
		}
		if a = r.headed(url).is(200); a.offset() != f.facts.Length || a.header.Get(wire.HeaderUploadExpires) != "" {
			t.Errorf("%s: %v", a, a.header)
		}
		want := tusHeader(0)
		want[wire.HeaderWantReprDigest] = "sha-256=10"
		a = r.do(call{method: http.MethodHead, path: url, header: want}).is(200)
		digests, err := wire.ParseDigests(a.header.Values(wire.HeaderReprDigest))
		if got := hex.EncodeToString(digests["sha-256"]); err != nil || got != f.facts.SHA256 {
			t.Errorf("the digest is told as %s, %v", got, err)
		}
	}
	if got := r.listed(); len(got) != 2 {
		t.Errorf("listed are %v", got)
	}
}

// The first bytes may come with the creation, the length after it, and a file of no bytes is complete at once. Nothing
// need be said of a file.
func TestCreationForms(t *testing.T) {
	r := newRig(t)
	find := func(a answered, content string) {
		t.Helper()
		id := a.header.Get(wire.HeaderAttachment)
		if u, err := uuid.Parse(id); err != nil || u.Version() != 7 {
			t.Fatalf("attachment %q", id)
		}
		got := r.do(call{method: http.MethodGet, path: "/v1/attachments/" + id + "/content"}).is(200)
		if string(got.body) != content || got.header.Get("Content-Disposition") != "attachment" ||
			got.header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s: %v", got, got.header)
		}
	}
	a := r.post("all of it", wire.HeaderUploadLength, "9")
	if a.location(); a.offset() != 9 {
		t.Errorf("offset %d", a.offset())
	}
	find(a, "all of it")
	a = r.post("be", wire.HeaderUploadLength, "5")
	r.patch(a.location(), a.offset(), []byte("gun")).is(204)
	find(a, "begun")
	a = r.post("", wire.HeaderUploadLength, "0")
	find(a, "")
	if got := r.headed(a.location()).is(200); got.offset() != 0 || got.header.Get(wire.HeaderUploadMetadata) != "" {
		t.Errorf("%s: %v", got, got.header)
	}

	a = r.post("st", wire.HeaderUploadDefer, "1")
	url := a.location()
	if h := r.headed(url).is(200).header; h.Get(wire.HeaderUploadDefer) != "1" || h.Get(wire.HeaderUploadLength) != "" {
		t.Errorf("%v", h)
	}
	r.patch(url, 2, []byte("re")).is(204)
	r.restart()
	patch := func(at int64, length, body string) answered {
		return r.do(call{
			method: http.MethodPatch, path: url, body: []byte(body), header: tusHeader(at, wire.HeaderUploadLength, length),
		})
	}
	patch(4, "x", "am").refused(wire.CodeInvalid)
	patch(4, "3", "am").refused(wire.CodeIdentityConflict)
	patch(4, strconv.Itoa(wire.MaxLength+1), "am").refused(wire.CodeSizeLimit)
	patch(4, "8", "am").is(204)
	patch(6, "9", "ed").refused(wire.CodeIdentityConflict)
	if h := r.headed(url).is(200).header; h.Get(wire.HeaderUploadLength) != "8" || h.Get(wire.HeaderUploadDefer) != "" {
		t.Errorf("%v", h)
	}
	r.invisible(a.header.Get(wire.HeaderAttachment))
	patch(6, "8", "ed").is(204)
	find(a, "streamed")

	a = r.post("ended", wire.HeaderUploadDefer, "1") // by an append of no bytes
	url = a.location()
	patch(5, "5", "").is(204)
	find(a, "ended")
}

// A length that is told while an append moves, which knows nothing of it yet, is where the file ends: what the append brings
// beyond it neither counts nor gets into the content.
func TestLengthToldInMidAppend(t *testing.T) {
	r := newRig(t)
	f := newFile("0123")
	f.as = undeclared
	deferred := []string{wire.HeaderUploadDefer, "1", wire.HeaderUploadMetadata, f.described()}
	url := r.post("0123", deferred...).location()
	body, done := r.moving(url, 4, nil)
	finished := make(chan answered, 1)
	go func() {
		a, err := r.try(call{method: http.MethodPost, path: uploads, header: map[string]string{
			wire.HeaderTusResumable: wire.TusVersion, wire.HeaderUploadLength: "4", wire.HeaderUploadMetadata: f.described(),
		}})
		if err == nil {
			finished <- a
		}
		close(finished)
	}()
	for { // until the length is told
		s, err := r.server.records.Session(t.Context(), "acme", strings.TrimPrefix(url, upload.Path))
		check(t, err)
		if s.Length == 4 {
			break
		}
	}
	_, err := body.feed.Write([]byte("beyond"))
	check(t, errors.Join(err, body.feed.Close()))
	if a := <-done; a.status < 400 {
		t.Errorf("%s", a)
	}
	if a := <-finished; a.location() != url || a.offset() != 4 {
		t.Errorf("%s: %v", a, a.header)
	}
	r.get(f)
}

// Bytes that a refused append left behind the confirmed ones are not in the content when the length is told to end there.
func TestLeftoverIsCutOff(t *testing.T) {
	r := newRig(t)
	a := r.post("0123", wire.HeaderUploadDefer, "1")
	appendTo(t, r.uploadFile(a.location()), "left over")
	r.do(call{method: http.MethodPatch, path: a.location(), header: tusHeader(4, wire.HeaderUploadLength, "4")}).is(204)
	got := r.do(call{method: http.MethodGet, path: "/v1/attachments/" + a.header.Get(wire.HeaderAttachment) + "/content"}).is(200)
	if string(got.body) != "0123" {
		t.Errorf("content %q", got.body)
	}
}

// What a creation may not say or ask for; nothing stays of it.
func TestCreationRefused(t *testing.T) {
	room := int64(1 << 40)
	r := newRig(t, func(o *Options) {
		o.Limits.MaxLength, o.Limits.SessionsPerAccount, o.Room = 1000, 1, func() (int64, error) { return room, nil }
	})
	for _, c := range []struct {
		code   wire.Code
		header []string
	}{
		{wire.CodeInvalid, nil},
		{wire.CodeInvalid, []string{wire.HeaderUploadLength, "5", wire.HeaderUploadDefer, "1"}},
		{wire.CodeInvalid, []string{wire.HeaderUploadDefer, "2"}},
		{wire.CodeInvalid, []string{wire.HeaderUploadLength, "-1"}},
		{wire.CodeInvalid, []string{wire.HeaderUploadLength, "5", wire.HeaderUploadConcat, "partial"}},
		{wire.CodeInvalid, []string{wire.HeaderUploadLength, "5", wire.HeaderIdempotencyKey, "bare"}},
		{wire.CodeInvalid, []string{wire.HeaderUploadLength, "5", wire.HeaderUploadMetadata, "filename ???"}},
		{wire.CodeInvalid, []string{wire.HeaderUploadLength, "5", wire.HeaderUploadMetadata, pairs("sha256", "abc")}},
		{wire.CodeInvalid, []string{wire.HeaderUploadLength, "5", wire.HeaderUploadMetadata, pairs("attachment_id", "abc")}},
		{wire.CodeInvalid, []string{wire.HeaderUploadLength, "5", wire.HeaderUploadMetadata, pairs("parent", strings.Repeat("x", 4000))}},
		{wire.CodeSizeLimit, []string{wire.HeaderUploadLength, "1001"}},
		{wire.CodeTusVersion, []string{wire.HeaderUploadLength, "5", wire.HeaderTusResumable, "0.2.2"}},
		{wire.CodeCredentials, []string{wire.HeaderUploadLength, "5", "Authorization", "Bearer x"}},
	} {
		r.post("", c.header...).refused(c.code)
	}
	typed := map[string]string{wire.HeaderTusResumable: wire.TusVersion, wire.HeaderUploadLength: "1", "Content-Type": "text/plain"}
	r.do(call{method: http.MethodPost, path: uploads, header: typed, body: []byte("x")}).refused(wire.CodeMediaType)
	room = r.server.limits.KeepFree + 4
	r.post("", wire.HeaderUploadLength, "5").refused(wire.CodeServerFull)
	url := r.post("", wire.HeaderUploadDefer, "1").location()
	r.post("", wire.HeaderUploadLength, "1").refused(wire.CodeTooMany)
	length := tusHeader(0, wire.HeaderUploadLength, "5")
	r.do(call{method: http.MethodPatch, path: url, header: length, body: []byte("x")}).refused(wire.CodeServerFull)
	r.patch(url, 0, []byte("12345")).refused(wire.CodeServerFull)
	room = 1 << 40
	r.patch(url, 0, []byte(strings.Repeat("x", 1001))).refused(wire.CodeSizeLimit)
	if got := r.head(url); got != 0 {
		t.Errorf("offset %d", got)
	}
	if _, err := os.Stat(r.uploadFile(url)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a data file: %v", err)
	}
	for _, method := range []string{http.MethodHead, http.MethodPatch, http.MethodDelete} {
		a := r.do(call{method: method, path: url, token: r.stranger, header: tusHeader(0)})
		if a.is(404); method != http.MethodHead {
			a.refused(wire.CodeNotFound)
		}
	}
	a := r.do(call{method: http.MethodOptions, path: uploads, token: "-"}).is(204)
	for header, want := range map[string]string{
		wire.HeaderTusVersion: wire.TusVersion, wire.HeaderTusMaxSize: "1000",
		wire.HeaderTusExtension: strings.Join(wire.TusExtensions(), ","),
	} {
		if got := a.header.Get(header); got != want {
			t.Errorf("%s is %q, want %q", header, got, want)
		}
	}
}

// Other bytes than the client declared never show: the last append is refused, the upload gone, and a repeated creation
// begins anew.
func TestCreationDigestMismatch(t *testing.T) {
	r := newRig(t)
	f := newFile("as declared")
	f.as = declared
	url := r.create(f).location()
	r.patch(url, 0, []byte("not as said")).refused(wire.CodeDigestMismatch)
	r.headed(url).is(410)
	r.invisible(f.id)
	r.nothingUnderWay()
	if again := r.create(f).location(); again == url {
		t.Error("the void upload is given again")
	}
	r.finish(f)
}

// A creation that names its attachment, in the metadata or by a key, can be repeated: the same facts find the same upload
// where it stands, also when it is complete, others are a conflict.
func TestCreationIsRepeatable(t *testing.T) {
	r := newRig(t)
	same := func(a, b answered, offset int64) {
		t.Helper()
		if a.location() != b.location() || b.offset() != offset ||
			a.header.Get(wire.HeaderAttachment) != b.header.Get(wire.HeaderAttachment) {
			t.Fatalf("%s and %s: %v, %v", a, b, a.header, b.header)
		}
	}
	f := newFile("0123456789")
	f.as = declared
	first := r.create(f)
	r.patch(first.location(), 0, f.bytes[:4]).is(204)
	same(first, r.create(f), 4)
	r.restart()
	same(first, r.create(f), 4)
	other := f
	other.facts.Length++
	r.create(other).refused(wire.CodeIdentityConflict)
	other = f
	other.facts.SHA256 = strings.Repeat("0", 64)
	r.create(other).refused(wire.CodeIdentityConflict)
	with := r.post("0123456789", wire.HeaderUploadLength, "10", wire.HeaderUploadMetadata, f.described())
	same(first, with, 4) // its bytes are not appended twice
	r.patch(first.location(), 4, f.bytes[4:]).is(204)
	same(first, r.create(f), 10)
	other = f
	other.facts.Parent.LocalID = "another"
	r.create(other).refused(wire.CodeParentPolicy) // it is registered, and stays where it is
	r.token, r.second = r.second, r.token
	same(first, r.create(f), 10)
	if got := r.listed(); !slices.Equal(got, []string{f.id}) {
		t.Errorf("listed are %v", got)
	}

	id := newFile("").id
	keyed := func(key, body string, more ...string) answered {
		return r.post(body, append([]string{wire.HeaderUploadLength, "4", wire.HeaderIdempotencyKey, key}, more...)...)
	}
	one := keyed(`"`+id+`"`, "")
	if one.header.Get(wire.HeaderAttachment) != id {
		t.Errorf("%v", one.header)
	}
	same(one, keyed(`"`+id+`"`, ""), 0)
	free := keyed(`"upload 1"`, "fr")
	same(free, keyed(`"upload 1"`, "fr"), 2)
	keyed(`"upload 1"`, "", wire.HeaderUploadLength, "5").refused(wire.CodeIdentityConflict)
	// Without a digest on both sides the name tells whether this is another file under a key that was used before.
	keyed(`"upload 1"`, "", wire.HeaderUploadMetadata, pairs("filename", "other.jpg")).refused(wire.CodeIdentityConflict)
	r.token, r.second = r.second, r.token
	same(one, keyed(`"`+id+`"`, ""), 0)
	if keyed(`"upload 1"`, "").location() == free.location() {
		t.Error("a key of one device finds the upload of another")
	}
}

// A client may end its upload: the bytes are removed, the URL is gone for ever, and ending it again is no error. What is
// received stays.
func TestTermination(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	f.as = declared
	url := r.create(f).location()
	r.patch(url, 0, f.bytes[:4]).is(204)
	r.do(call{method: http.MethodDelete, path: url, header: map[string]string{wire.HeaderTusResumable: "0.2.2"}}).refused(wire.CodeTusVersion)
	r.delete(url).is(204)
	r.nothingUnderWay()
	r.headed(url).is(410)
	r.patch(url, 4, f.bytes[4:]).refused(wire.CodeSessionGone)
	r.delete(url).is(204)
	r.restart()
	r.headed(url).is(410)
	r.delete(upload.Path + strings.Repeat("0", 40)).refused(wire.CodeNotFound)
	again := r.create(f)
	if again.location() == url || again.offset() != 0 {
		t.Fatalf("%s: %v", again, again.header)
	}
	r.finish(f)
	a := r.delete(again.location())
	a.refused(wire.CodeMethod)
	if got := a.header.Get("Allow"); got != "HEAD, OPTIONS, PATCH" {
		t.Errorf("Allow is %q", got)
	}
	r.get(f)

	reserved := newFile("of a device")
	url = r.reserve(reserved).Upload.URL
	over := tusHeader(0, wire.HeaderMethodOverride, http.MethodDelete)
	r.do(call{method: http.MethodPost, path: url, header: over}).is(204)
	if a := r.reserve(reserved); a.Generation != 2 || a.Upload.URL == url {
		t.Errorf("%+v", a)
	}
	r.deliver(reserved)
}

// Ending an upload ends the append that moves in it, and nothing of it stays.
func TestTerminationEndsAppend(t *testing.T) {
	r := newRig(t)
	a := r.post("", wire.HeaderUploadLength, "10")
	body, done := r.moving(a.location(), 0, []byte("0123"))
	defer func() { check(t, body.feed.Close()) }()
	r.delete(a.location()).is(204)
	(<-done).refused(wire.CodeSessionGone)
	r.headed(a.location()).is(410)
	r.restart()
	r.nothingUnderWay()
}

// An upload that got no byte for the limit is ended by itself: of a client that created it, and of a device, which
// reserves the next generation.
func TestExpiration(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	r := newRig(t, func(o *Options) { o.Now, o.Limits.Expire = func() time.Time { return now }, time.Hour })
	tidy := func() { check(t, r.server.engine.Tidy(t.Context())) }
	created, reserved, moved := newFile("created"), newFile("reserved"), newFile("still moving")
	created.as, moved.as = declared, undeclared
	urls := []string{r.create(created).location(), r.reserve(reserved).Upload.URL}
	kept := r.create(moved).location()
	for _, url := range append(slices.Clone(urls), kept) {
		r.patch(url, 0, []byte("re")).is(204)
	}
	ends := now.Add(time.Hour)
	now = ends
	tidy()
	for _, url := range urls {
		if a := r.headed(url).is(200); a.offset() != 2 || a.header.Get(wire.HeaderUploadExpires) != ends.Format(http.TimeFormat) {
			t.Errorf("%s: %v", a, a.header)
		}
	}
	r.patch(kept, 2, []byte("ma")).is(204)
	now = now.Add(time.Second)
	tidy()
	for _, url := range urls {
		r.headed(url).is(410)
		if _, err := os.Stat(r.uploadFile(url)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the data file stays: %v", err)
		}
	}
	if got := r.head(kept); got != 4 {
		t.Errorf("offset %d", got)
	}
	if a := r.reserve(reserved); a.Generation != 2 || a.Upload.Offset != 0 {
		t.Errorf("%+v", a)
	}
	r.deliver(reserved)
	r.finish(created)
}

// An upload whose last byte arrived and that a fault or a crash kept from being registered is told to be unfinished, and
// finished by itself or by its client's next question.
func TestCreationIsFinishedLater(t *testing.T) {
	for name, finish := range map[string]func(r *rig, url string){
		"tidied": func(r *rig, _ string) { check(r.t, r.server.engine.Tidy(r.t.Context())) },
		"HEAD":   func(r *rig, url string) { r.headed(url).is(200) },
		"PATCH":  func(r *rig, url string) { r.patch(url, 10, nil).is(204) },
		"POST":   func(*rig, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			broken := true
			r := newRig(t, hooked(func(c durable.Call) error {
				if broken && c.Op == durable.OpRead && strings.Contains(c.Path, "/uploads/") {
					return errors.New("not now")
				}
				return nil
			}))
			f := newFile("0123456789")
			f.as = undeclared
			url := r.create(f).location()
			a := r.patch(url, 0, f.bytes)
			a.refused(wire.CodeInternal)
			if a.offset() != 10 {
				t.Errorf("confirmed are %d", a.offset())
			}
			r.headed(url).is(500)
			r.invisible(f.id)
			check(t, r.server.engine.Tidy(t.Context()))
			r.invisible(f.id)
			r.restart()
			r.invisible(f.id)
			broken = false
			finish(r, url)
			if name == "POST" {
				r.create(f).location()
			}
			if got := r.get(f); string(got.body) != "0123456789" {
				t.Error(got)
			}
		})
	}
}

// Who spoke last says who registers: a device that reserves what a client created binds it itself, and a client that
// creates what a device reserved need not.
func TestCreationAndReservation(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	f.as = undeclared
	url := r.post("0123", wire.HeaderUploadDefer, "1", wire.HeaderUploadMetadata, f.described()).location()
	short := f
	short.facts.Length = 3
	r.put(short, "").refused(wire.CodeIdentityConflict)
	if a := decode[wire.Attachment](r.put(f, "").is(200)); a.Upload == nil || a.Upload.URL != url || a.Upload.Offset != 4 {
		t.Fatalf("%+v", a)
	}
	r.patch(url, 4, f.bytes[4:]).is(204)
	if a := decode[wire.Attachment](r.show(f).is(200)); a.State != wire.StateVerified || a.SHA256 != f.facts.SHA256 {
		t.Errorf("%+v", a)
	}
	r.invisible(f.id)
	if a := r.create(f); a.location() != url || a.offset() != 10 { // verified already: registered now
		t.Errorf("%s: %v", a, a.header)
	}
	r.get(f)

	g := newFile("abcdefghij")
	g.as = declared
	url = r.reserve(g).Upload.URL
	r.patch(url, 0, g.bytes[:4]).is(204)
	if a := r.create(g); a.location() != url || a.offset() != 4 {
		t.Fatalf("%s: %v", a, a.header)
	}
	r.patch(url, 4, g.bytes[4:]).is(204)
	r.get(g)

	// A device whose bytes are known already had no upload; a client is shown a complete one.
	h := newFile("abcdefghij")
	h.as = declared
	if a := r.reserve(h); a.Upload != nil {
		t.Fatalf("%+v", a)
	}
	if a := r.create(h); a.offset() != 10 || r.head(a.location()) != 10 {
		t.Errorf("%s: %v", a, a.header)
	}
	r.get(h)
}

// Content that is lost after its registration is taken again by the same creation, and has the same receipt then.
func TestCreatedContentLost(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	f.as = undeclared
	r.finish(f)
	before := maps.Clone(r.receipts)
	check(t, os.Remove(r.contentFile(f)))
	if a := r.create(f); a.offset() != 0 {
		t.Errorf("%s: %v", a, a.header)
	}
	r.finish(f)
	r.get(f)
	if !maps.Equal(before, r.receipts) {
		t.Errorf("%v, before %v", r.receipts, before)
	}
}
