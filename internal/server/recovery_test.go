package server

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// What a start makes of data files that do not fit their records.
func TestRecovery(t *testing.T) {
	for _, c := range []struct {
		name    string
		confirm int // bytes confirmed before the stop
		damage  func(t *testing.T, path string)
		offset  int64 // after the start; -1: the session is gone
	}{
		{"untouched", 6, func(*testing.T, string) {}, 6},
		{"longer by unconfirmed bytes", 6, func(t *testing.T, path string) { appendTo(t, path, "more than the rest of it") }, 6},
		{"cut by a byte", 6, func(t *testing.T, path string) { check(t, os.Truncate(path, 5)) }, -1},
		{"cut to nothing", 6, func(t *testing.T, path string) { check(t, os.Truncate(path, 0)) }, -1},
		{"missing", 6, func(t *testing.T, path string) { check(t, os.Remove(path)) }, -1},
		{"nothing confirmed, no file", 0, func(*testing.T, string) {}, 0},
		{"nothing confirmed, junk", 0, func(t *testing.T, path string) {
			check(t, os.MkdirAll(filepath.Dir(path), 0o700))
			appendTo(t, path, "junk")
		}, 0},
		{"a directory in its place", 6, func(t *testing.T, path string) {
			check(t, os.Remove(path))
			check(t, os.Mkdir(path, 0o700))
			check(t, os.WriteFile(filepath.Join(path, "x"), nil, 0o600))
		}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			f, beside := newFile("0123456789"), newFile("another file")
			url, besideURL := r.reserve(f).Upload.URL, r.reserve(beside).Upload.URL
			r.patch(besideURL, 0, beside.bytes[:5]).is(204)
			if c.confirm > 0 {
				r.patch(url, 0, f.bytes[:c.confirm]).is(204)
			}
			r.close()
			c.damage(t, r.uploadFile(url))
			r.open()
			if got := r.head(besideURL); got != 5 {
				t.Errorf("the file beside it is at %d", got)
			}
			switch head := r.do(call{method: http.MethodHead, path: url, header: tusHeader(0)}); {
			case c.offset < 0:
				head.is(410)
				r.show(f).refused(wire.CodeSessionGone)
				if a := r.reserve(f); a.Generation != 2 || a.Upload.Offset != 0 {
					t.Errorf("%+v", a)
				}
			case head.is(200).offset() != c.offset:
				t.Errorf("offset %d, want %d", head.offset(), c.offset)
			}
			r.deliver(f)
			r.deliver(beside)
		})
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	check(t, err)
	_, err = f.WriteString(text)
	check(t, errors.Join(err, f.Close()))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Data files that no open session names go at a start; what is none of ours stays.
func TestOrphans(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	r.patch(url, 0, f.bytes[:5]).is(204)
	dir := filepath.Dir(r.uploadFile(url))
	orphan, foreign := filepath.Join(dir, strings.Repeat("ab", 20)), filepath.Join(dir, "README")
	r.close()
	appendTo(t, orphan, "x")
	appendTo(t, foreign, "x")
	r.open()
	for path, want := range map[string]bool{orphan: false, foreign: true, r.uploadFile(url): true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Content that is gone before the registration must be sent again; after it the receipt stands, and nothing wrong is
// served.
func TestLostContent(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	r.patch(r.reserve(f).Upload.URL, 0, f.bytes).is(204)
	check(t, os.Remove(r.contentFile(f)))
	r.register(f).refused(wire.CodeSessionGone)
	if a := r.reserve(f); a.Generation != 2 || a.Upload == nil {
		t.Fatalf("%+v", a)
	}
	rec := r.deliver(f)
	check(t, os.Truncate(r.contentFile(f), 3))
	r.do(call{method: http.MethodGet, path: f.path() + "/content"}).refused(wire.CodeSessionGone)
	r.register(f).refused(wire.CodeNotVerified)
	second := newFile("0123456789")
	if a := r.reserve(second); a.Upload == nil {
		t.Fatalf("bytes were waived for damaged content: %+v", a)
	}
	r.deliver(second) // brings the right bytes, which take the place of the damaged ones
	if again := decode[receipt.Receipt](r.register(f).is(200)); again.RegisteredAt != rec.RegisteredAt || again.AttachmentID != f.id {
		t.Fatalf("%+v and %+v", again, rec)
	}
	if got := r.do(call{method: http.MethodGet, path: f.path() + "/content"}).is(200); string(got.body) != string(f.bytes) {
		t.Fatalf("content %q", got.body)
	}
}
