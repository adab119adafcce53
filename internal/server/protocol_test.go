package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// A file goes through reserve, transfer, verify and registration, and every step can be repeated with the same answer.
func TestDelivery(t *testing.T) {
	r := newRig(t)
	f := newFile("a photograph of a boiler")
	first := decode[wire.Attachment](r.put(f, "").is(201))
	if first.State != wire.StateReserved || first.Upload == nil || first.Upload.Offset != 0 || first.Generation != 1 ||
		first.Upload.MaxAppend != 0 || !slices.Equal(first.Upload.Dialects, []string{wire.DialectTus, wire.DialectRUFH}) {
		t.Fatalf("%+v", first)
	}
	url := first.Upload.URL
	r.register(f).refused(wire.CodeNotVerified)
	if got := r.patch(url, 0, f.bytes[:5]).is(204).offset(); got != 5 {
		t.Fatalf("offset %d", got)
	}
	if again := decode[wire.Attachment](r.put(f, "").is(200)); again.Upload.URL != url || again.Upload.Offset != 5 {
		t.Fatalf("%+v", again)
	}
	if got := decode[wire.Attachment](r.show(f).is(200)); got.State != wire.StateReserved || got.Upload.Offset != 5 || got.SHA256 != "" {
		t.Fatalf("%+v", got)
	}
	r.patch(url, 5, f.bytes[5:]).is(204)
	verified := decode[wire.Attachment](r.show(f).is(200))
	if verified.State != wire.StateVerified || *verified.Length != f.facts.Length || verified.SHA256 != f.facts.SHA256 || verified.Upload != nil {
		t.Fatalf("%+v", verified)
	}
	if got := r.head(url); got != f.facts.Length {
		t.Fatalf("offset after verification %d", got)
	}
	one := r.register(f).is(200)
	two := r.register(f).is(200)
	if string(one.body) != string(two.body) {
		t.Fatalf("receipts differ:\n%s\n%s", one.body, two.body)
	}
	rec := decode[receipt.Receipt](one)
	if rec.Grade != receipt.RegisteredDurable || rec.MediaID != first.MediaID || !strings.HasPrefix(rec.Server, "fieldgw/") {
		t.Fatalf("%+v", rec)
	}
	for _, a := range []answered{r.put(f, "").is(200), r.show(f).is(200)} {
		got := decode[wire.Attachment](a)
		if got.State != wire.StateRegistered || got.Receipt == nil || got.Upload != nil {
			t.Fatalf("%+v", got)
		}
	}
	got := r.do(call{method: http.MethodGet, path: f.path() + "/content"}).is(200)
	if string(got.body) != string(f.bytes) {
		t.Fatalf("content %q", got.body)
	}
}

// Whatever is asked, the answer carries the protocol and a problem; no path is spelled in two ways.
func TestRoutes(t *testing.T) {
	r := newRig(t)
	status := decode[wire.Status](r.do(call{method: http.MethodGet, path: "/v1/status", token: "-"}).is(200))
	if status.Service != wire.ServiceName || status.Protocol != wire.Protocol || status.Epoch == "" {
		t.Fatalf("%+v", status)
	}
	id := newFile("x").id
	for path, code := range map[string]wire.Code{
		"/":                              wire.CodeNotFound,
		"/v1":                            wire.CodeNotFound,
		"/v1/status/":                    wire.CodeNotFound,
		"//v1/status":                    wire.CodeNotFound,
		"/v1/../v1/status":               wire.CodeNotFound,
		"/v1/attachments/":               wire.CodeNotFound,
		"/v1/attachments/" + id:          wire.CodeNotFound,
		"/v1/attachments/a%2Fb":          wire.CodeNotFound,
		"/v1/attachments/x/y":            wire.CodeNotFound,
		"/v1/uploads":                    wire.CodeMethod,
		"/v1/uploads/x":                  wire.CodeNotFound,
		"/v1/uploads/":                   wire.CodeNotFound,
		"/v1/attachments?limit=0":        wire.CodeInvalid,
		"/v1/attachments?limit=x":        wire.CodeInvalid,
		"/v1/attachments?after=x":        wire.CodeInvalid,
		"/v1/attachments?after=%3D":      wire.CodeInvalid,
		"/v1/attachments/" + id + "/x":   wire.CodeNotFound,
		"/v1/attachments/x/content":      wire.CodeNotFound,
		"/v1/attachments/x/registration": wire.CodeMethod,
	} {
		r.do(call{method: http.MethodGet, path: path}).refused(code)
	}
	for path, allow := range map[string]string{
		"/v1/status": "GET", "/v1/attachments": "GET", "/v1/attachments/x": "GET, PUT", "/v1/attachments/x/content": "GET, HEAD",
		"/v1/attachments/x/registration": "POST", "/v1/uploads": "OPTIONS, POST, PUT",
	} {
		a := r.do(call{method: http.MethodTrace, path: path})
		a.refused(wire.CodeMethod)
		if got := a.header.Get("Allow"); got != allow {
			t.Errorf("%s: Allow is %q, want %q", path, got, allow)
		}
	}
}

// A request for the server as a whole is told what uploads are spoken and how large they may be; another method than OPTIONS
// has nothing to ask there.
func TestAsterisk(t *testing.T) {
	r := newRig(t)
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = r.server.httpServer(r.server.Handler())
	ts.Start()
	defer ts.Close()
	conn, err := net.Dial("tcp", ts.Listener.Addr().String())
	check(t, err)
	_, err = io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	check(t, err)
	answer, err := io.ReadAll(conn)
	check(t, errors.Join(err, conn.Close()))
	for _, want := range []string{"204 No Content", wire.HeaderProtocol + ": 1", wire.HeaderUploadLimit + ": ", wire.HeaderTusResumable + ": "} {
		if !strings.Contains(string(answer), want) {
			t.Errorf("no %q in\n%s", want, answer)
		}
	}
}

// A handler that panics is answered for, once; one that has begun its answer ends the connection.
func TestPanic(t *testing.T) {
	r := newRig(t)
	early := httptest.NewServer(r.server.middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		var nobody *rig
		nobody.close()
	})))
	defer early.Close()
	late := httptest.NewServer(r.server.middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(200)
		var nobody *rig
		nobody.close()
	})))
	defer late.Close()
	late.Config.ErrorLog = nil
	saved := r.http
	defer func() { r.http = saved }()
	r.http = early
	r.do(call{method: http.MethodGet, path: "/"}).refused(wire.CodeInternal)
	r.http = late
	if a, err := r.try(call{method: http.MethodGet, path: "/"}); err == nil {
		t.Fatalf("a broken answer looks whole: %s", a)
	}
}

// Only a valid token opens anything; all others get one and the same answer.
func TestCredentials(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	r := newRig(t, func(o *Options) { o.Now = func() time.Time { return now } })
	expires := now.Add(time.Hour)
	brief, err := r.server.Admin().CreateToken(t.Context(), admin.TokenRequest{Account: "acme", Device: "d", ExpiresAt: &expires})
	if err != nil {
		t.Fatal(err)
	}
	ended, err := r.server.Admin().CreateToken(t.Context(), admin.TokenRequest{Account: "acme", Device: "d"})
	if err != nil {
		t.Fatal(err)
	}
	list := call{method: http.MethodGet, path: "/v1/attachments"}
	for _, token := range []string{brief.Text, ended.Text} {
		list.token = token
		r.do(list).is(200)
	}
	if _, err := r.server.Admin().RevokeToken(t.Context(), ended.ID); err != nil {
		t.Fatal(err)
	}
	now = expires
	swapped := strings.Replace(r.token, ".acme.", ".zeta.", 1)
	other := strings.Replace(r.token, ".tablet-1.", ".tablet-2.", 1)
	var bodies []string
	for _, token := range []string{
		"-", brief.Text, ended.Text, swapped, other, "x", "fgw1.acme.tablet-1.", r.token + "x", r.token[:len(r.token)-1],
		"fgw1.acme/x.d.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	} {
		list.token = token
		a := r.do(list)
		a.refused(wire.CodeCredentials)
		if a.header.Get("WWW-Authenticate") == "" {
			t.Error("401 without WWW-Authenticate")
		}
		bodies = append(bodies, string(a.body))
	}
	for _, b := range bodies {
		if b != bodies[0] {
			t.Errorf("refusals differ: %s and %s", b, bodies[0])
		}
	}
	for _, scheme := range []string{"Basic " + r.token, r.token, "bearer " + r.token} {
		list.token, list.header = "-", map[string]string{"Authorization": scheme}
		want := 401
		if strings.HasPrefix(scheme, "bearer ") {
			want = 200
		}
		r.do(list).is(want)
	}
}

// Another account's attachment looks like one that does not exist, on every route.
func TestOtherAccountSeesNothing(t *testing.T) {
	r := newRig(t)
	f := newFile("private")
	a := r.reserve(f)
	r.patch(a.Upload.URL, 0, f.bytes).is(204)
	unknown := newFile("never seen")
	for _, state := range []string{"verified", "registered"} {
		if state == "registered" {
			r.register(f).is(200)
		}
		for _, c := range []call{
			{method: http.MethodGet, path: f.path()},
			{method: http.MethodGet, path: f.path() + "/content"},
			{method: http.MethodPost, path: f.path() + "/registration", header: jsonHeader, body: []byte(`{"parent":{}}`)},
			{method: http.MethodHead, path: a.Upload.URL, header: tusHeader(0)},
			{method: http.MethodPatch, path: a.Upload.URL, header: tusHeader(7)},
		} {
			c.token = r.stranger
			got := r.do(c).is(404)
			c.path = strings.Replace(strings.Replace(c.path, f.id, unknown.id, 1), a.Upload.URL, upload.Path+strings.Repeat("0", 40), 1)
			if want := r.do(c); string(got.body) != string(want.body) {
				t.Errorf("%s tells more than %s", got, want)
			}
		}
	}
	list := decode[wire.AttachmentList](r.do(call{method: http.MethodGet, path: "/v1/attachments", token: r.stranger}).is(200))
	if len(list.Attachments) != 0 {
		t.Fatalf("%+v", list)
	}
	theirs := decode[wire.Attachment](r.put(f, r.stranger).is(201))
	if theirs.Upload == nil || theirs.MediaID == a.MediaID {
		t.Fatalf("content of another account was used: %+v", theirs)
	}
}

// Registered attachments are listed in pages that together hold each once, and nothing incomplete is among them.
func TestList(t *testing.T) {
	r := newRig(t)
	want := map[string]bool{}
	for _, text := range []string{"one", "two", "three", "four", "five"} {
		f := newFile(text)
		want[r.deliver(f).AttachmentID] = true
	}
	half := newFile("incomplete")
	r.patch(r.reserve(half).Upload.URL, 0, half.bytes[:4]).is(204)
	done := newFile("verified only")
	r.patch(r.reserve(done).Upload.URL, 0, done.bytes).is(204)
	path := "/v1/attachments?limit=2"
	for pages := 0; ; pages++ {
		page := decode[wire.AttachmentList](r.do(call{method: http.MethodGet, path: path}).is(200))
		for _, a := range page.Attachments {
			if !want[a.AttachmentID] || a.State != wire.StateRegistered || a.Receipt == nil {
				t.Errorf("listed %+v", a)
			}
			delete(want, a.AttachmentID)
		}
		if page.Next == "" {
			break
		}
		if pages > 5 {
			t.Fatal("the list does not end")
		}
		path = "/v1/attachments?limit=2&after=" + page.Next
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	foreign := newRig(t)
	foreign.do(call{method: http.MethodGet, path: path}).refused(wire.CodeInvalid)
}

// A page ends before it exceeds what a control-plane answer may be, and the next one goes on behind it.
func TestListIsCutBySize(t *testing.T) {
	r := newRig(t)
	const total = 45
	for n := range total {
		f := newFile(strings.Repeat("x", n+1))
		f.facts.Parent.LocalID = strings.Repeat("\x01", 2*wire.MaxParentID)
		r.deliver(f)
	}
	seen, path := 0, "/v1/attachments"
	for {
		a := r.do(call{method: http.MethodGet, path: path}).is(200)
		if len(a.body) > wire.MaxControlBody {
			t.Fatalf("a page of %d bytes", len(a.body))
		}
		page := decode[wire.AttachmentList](a)
		seen += len(page.Attachments)
		if page.Next == "" {
			break
		}
		path = "/v1/attachments?after=" + page.Next
	}
	if seen != total {
		t.Fatalf("%d of %d listed", seen, total)
	}
}

// Content is served whole and in ranges, only once it is registered, and in a way that no browser runs.
func TestContent(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	f.facts.Filename, f.facts.MediaType = "Kessel – groß.html", "text/html"
	a := r.reserve(f)
	get := call{method: http.MethodGet, path: f.path() + "/content"}
	r.do(get).refused(wire.CodeNotFound)
	r.patch(a.Upload.URL, 0, f.bytes).is(204)
	r.do(get).refused(wire.CodeNotFound)
	r.register(f).is(200)
	got := r.do(get).is(200)
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'", "Content-Type": "text/html",
		"Content-Length": "10", "Accept-Ranges": "bytes", "Cache-Control": "no-store", "ETag": `"` + f.facts.SHA256 + `"`,
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.header.Get(name), want)
		}
	}
	if d := got.header.Get("Content-Disposition"); !strings.HasPrefix(d, "attachment; filename*=utf-8''Kessel") {
		t.Errorf("disposition %q", d)
	}
	get.header = map[string]string{"Range": "bytes=2-4"}
	if part := r.do(get).is(206); string(part.body) != "234" || part.header.Get("Content-Range") != "bytes 2-4/10" {
		t.Errorf("%s", part)
	}
	get.header = map[string]string{"Range": "bytes=20-"}
	r.do(get).refused(wire.CodeRange)
	get.header = map[string]string{"If-Match": `"other"`}
	r.do(get).refused(wire.CodePrecondition)
	get.header = map[string]string{"If-None-Match": `"` + f.facts.SHA256 + `"`}
	r.do(get).is(304)
	head := r.do(call{method: http.MethodHead, path: f.path() + "/content"}).is(200)
	if head.header.Get("Content-Length") != "10" {
		t.Errorf("%s", head)
	}
}

// What is not JSON, too large, of another type or out of bounds is refused before anything is recorded.
func TestMalformedMessages(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.MaxLength = 1000 })
	f := newFile("content")
	good := string(asJSON(t, f.facts))
	put := func(body string, header ...string) answered {
		h := map[string]string{"Content-Type": "application/json; charset=utf-8"}
		for i := 0; i+1 < len(header); i += 2 {
			h[header[i]] = header[i+1]
		}
		return r.do(call{method: http.MethodPut, path: f.path(), header: h, body: []byte(body)})
	}
	put(good, "Content-Type", "text/html").refused(wire.CodeMediaType)
	put(good, "Content-Type", "").refused(wire.CodeMediaType)
	put(good, "Idempotency-Key", `"other"`).refused(wire.CodeInvalid)
	for _, body := range []string{
		"", "<html><body>sign in</body></html>", "null", "[]", "{", good + "x", good + good, `{"length":"7"}`,
		strings.Replace(good, f.facts.SHA256, strings.ToUpper(f.facts.SHA256), 1),
		strings.Replace(good, `"original"`, `"thumbnail"`, 1),
		strings.Replace(good, `"length":7`, `"length":-1`, 1),
		strings.Replace(good, `"length":7`, `"length":7.5`, 1),
		strings.Replace(good, `"length":7`, `"length":1e40`, 1),
		strings.Replace(good, "insp-7", strings.Repeat("x", 3000), 1),
		`{"filename":"` + strings.Repeat("x", wire.MaxControlBody) + `"}`,
		strings.Repeat("[", 20000),
	} {
		put(body).refused(wire.CodeInvalid)
	}
	put(strings.Replace(good, `"length":7`, `"length":1001`, 1)).refused(wire.CodeSizeLimit)
	put(strings.Replace(good, `"length":7`, `"length":99999999999999`, 1)).refused(wire.CodeSizeLimit)
	for _, id := range []string{"x", strings.ToUpper(f.id), "{" + f.id + "}", strings.ReplaceAll(f.id, "-", ""), "00000000-0000-0000-0000-000000000000"} {
		r.do(call{method: http.MethodPut, path: "/v1/attachments/" + id, header: jsonHeader, body: []byte(good)}).refused(wire.CodeInvalid)
	}
	r.show(f).refused(wire.CodeNotFound)
	put(strings.Replace(good, "{", `{"later_version":{"a":[1]},`, 1), "Idempotency-Key", `"`+f.id+`"`).is(201)
	put(good, "Idempotency-Key", f.id).is(200)
	r.do(call{method: http.MethodPost, path: f.path() + "/registration", header: jsonHeader, body: []byte("{")}).refused(wire.CodeInvalid)
	for _, silent := range []string{"null", "{}", `{"parent":null}`, `{"Parents":{}}`} {
		r.do(call{method: http.MethodPost, path: f.path() + "/registration", header: jsonHeader, body: []byte(silent)}).refused(wire.CodeInvalid)
	}
	long := `{"parent":{"local_id":"` + strings.Repeat("x", 3000) + `"}}`
	r.do(call{method: http.MethodPost, path: f.path() + "/registration", header: jsonHeader, body: []byte(long)}).refused(wire.CodeInvalid)
}

// A control-plane body that stops arriving is given up, and the server goes on.
func TestSlowControlBody(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.ControlBody = 1 }) // 1 ns: has come before anything is read
	f := newFile("x")
	body, feed := io.Pipe()
	defer func() { _ = feed.Close() }()
	r.do(call{method: http.MethodPut, path: f.path(), header: jsonHeader, reader: body}).refused(wire.CodeTimeout)
}
