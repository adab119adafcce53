package server

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// scenario is a part of a server's life that the sweep breaks at every file operation.
type scenario struct {
	name string
	// prepare brings the server to where the part begins, and returns the files that are delivered in the end.
	prepare func(r *rig) []file
	// run is the part itself. Whatever it asks for may be refused. It reports whether somebody was told of damage.
	run func(r *rig, files []file) (told bool)
	// atStart says that the part begins with the server's start.
	atStart bool
	// rots says that the content of the files is damaged; lost, that it is taken for lost when the part begins.
	rots, lost bool
}

func deliverEach(r *rig, files []file) bool {
	for _, f := range files {
		r.attempt(f)
	}
	return false
}

// toldLost reports whether one who asks for the content of a file is told that it is lost.
func (r *rig) toldLost(f file) bool {
	got, err := r.try(call{method: http.MethodGet, path: f.path() + "/content"})
	return err == nil && got.status == http.StatusGone
}

// audit has the content of the first file read back, and looks whether the second, of the same content, is still there.
func audit(r *rig, files []file) (told bool) {
	for range 3 {
		if _, _, err := r.server.engine.Audit(r.t.Context(), "acme", files[0].id); err == nil {
			break
		}
	}
	return len(files) > 1 && r.toldLost(files[1])
}

// twice delivers two files of one content, which rots then.
func twice(r *rig) []file {
	one, two := newFile("0123456789"), newFile("0123456789")
	r.finish(one)
	r.finish(two)
	rot(r.t, r.contentFile(one))
	return []file{one, two}
}

var scenarios = []scenario{
	{name: "deliver", run: deliverEach, prepare: func(*rig) []file {
		return []file{newFile("0123456789"), newFile("")}
	}},
	{name: "known content", run: deliverEach, prepare: func(r *rig) []file {
		first := newFile("0123456789")
		r.finish(first)
		return []file{newFile("0123456789"), first}
	}},
	{name: "takeover", prepare: func(r *rig) []file {
		f := newFile("0123456789")
		r.patch(r.reserve(f).Upload.URL, 0, f.bytes[:4]).is(204)
		return []file{f}
	}, run: func(r *rig, files []file) bool {
		r.token, r.second = r.second, r.token
		defer func() { r.token, r.second = r.second, r.token }()
		return deliverEach(r, files)
	}},
	{name: "wrong bytes", prepare: func(*rig) []file { return []file{newFile("as declared")} }, run: func(r *rig, files []file) bool {
		if a := r.put(files[0], ""); a.status == 201 {
			r.patch(decode[wire.Attachment](a).Upload.URL, 0, []byte("not as said"))
		}
		return deliverEach(r, files)
	}},
	{name: "expiry", prepare: func(r *rig) []file {
		now := time.Now()
		r.reopen(func(o *Options) { o.Limits.SessionsPerAccount, o.Now = 1, func() time.Time { return now } })
		idle := newFile("idle")
		r.patch(r.reserve(idle).Upload.URL, 0, idle.bytes[:2]).is(204)
		now = now.Add(2 * store.IdleSession)
		return []file{newFile("0123456789"), idle}
	}, run: func(r *rig, files []file) bool { return deliverEach(r, files[:1]) }},
	{name: "damage found and healed", rots: true, prepare: func(r *rig) []file {
		return append(twice(r), newFile("0123456789"))
	}, run: func(r *rig, files []file) (told bool) {
		r.put(files[2], "")
		told = r.toldLost(files[1])
		r.attempt(files[2])
		return told
	}},
	{name: "audit finds damage", rots: true, prepare: twice, run: audit},
	{name: "audit ends an upload", lost: true, run: audit, prepare: func(r *rig) []file {
		f := newFile("0123456789")
		r.finish(f)
		away := filepath.Join(r.dir, "away")
		check(r.t, os.Rename(r.contentFile(f), away))
		r.patch(r.reserve(f).Upload.URL, 0, f.bytes[:4]).is(204)
		check(r.t, os.Rename(away, r.contentFile(f)))
		return []file{f}
	}},
	{name: "confirmed while it lasts", prepare: func(r *rig) []file {
		r.reopen(func(o *Options) { o.Limits.Confirm = 3 })
		return []file{newFile("0123456789")}
	}, run: lasting},
	{name: "checksums", prepare: func(*rig) []file { return []file{newFile("0123456789")} }, run: checksums},
	{name: "creation", run: deliverEach, prepare: func(*rig) []file {
		return []file{newCreated("0123456789", declared), newCreated("abcdefghij", undeclared), newCreated("", undeclared)}
	}},
	{name: "length told later", prepare: func(*rig) []file {
		return []file{newCreated("0123456789", undeclared)}
	}, run: func(r *rig, files []file) bool {
		f := files[0]
		if a := r.post("0123", wire.HeaderUploadDefer, "1", wire.HeaderUploadMetadata, f.described()); a.status == 201 {
			header := tusHeader(a.offset(), wire.HeaderUploadLength, "10")
			r.do(call{method: http.MethodPatch, path: a.location(), header: header, body: f.bytes[a.offset():]})
		}
		return deliverEach(r, files)
	}},
	{name: "termination", prepare: begun, run: func(r *rig, files []file) bool {
		if a := r.create(files[0]); a.status == 201 {
			r.delete(a.location())
		}
		return deliverEach(r, files)
	}},
	{name: "expiration", prepare: func(r *rig) []file {
		now := time.Now()
		r.reopen(func(o *Options) { o.Now = func() time.Time { return now } })
		files := begun(r)
		now = now.Add(2 * r.server.limits.Expire)
		return files
	}, run: func(r *rig, files []file) bool { return tidied(r, files) || deliverEach(r, files) }},
	{name: "finished by itself", prepare: func(r *rig) []file {
		r.reopen(hooked(putOff))
		f := newCreated("0123456789", undeclared)
		r.patch(r.create(f).location(), 0, f.bytes).refused(wire.CodeInternal)
		return []file{f}
	}, run: tidied},
	{name: "start", atStart: true, prepare: leftovers, run: deliverEach},
}

// lasting sends the first file in one append that is confirmed again and again. What was confirmed stays, whatever happens,
// unless the session is gone.
func lasting(r *rig, files []file) bool {
	f, most := files[0], int64(0)
	if a := r.put(f, ""); a.status < 400 {
		c := call{method: http.MethodPatch, path: decode[wire.Attachment](a).Upload.URL}
		c.header = partial(0, true, wire.HeaderInteropVersion, "8")
		// An answer in the middle of the body does not always arrive.
		_, a, _ := r.stream(c, 20*time.Millisecond, func(offset int64) { most = offset }, "0123", "456", "789")
		now := r.do(call{method: http.MethodHead, path: c.path})
		if now.status == 204 && now.offset() < most {
			r.t.Errorf("%d bytes were confirmed, then %s, now there are %d", most, a, now.offset())
		}
	}
	return deliverEach(r, files)
}

// checksums sends the first file in two appends with checksums, each with another one first. None of those moves the offset.
func checksums(r *rig, files []file) bool {
	f := files[0]
	if a := r.put(f, ""); a.status < 400 {
		url := decode[wire.Attachment](a).Upload.URL
		for _, at := range []int64{0, 5} {
			body := f.bytes[at : at+5]
			for _, sum := range []string{checksum(f.bytes), checksum(body)} {
				a = r.do(call{method: http.MethodPatch, path: url, header: tusHeader(at, wire.HeaderUploadChecksum, sum), body: body})
				if sum == checksum(f.bytes) && a.status < 400 {
					r.t.Errorf("another checksum: %s", a)
				}
			}
		}
	}
	return deliverEach(r, files)
}

func newCreated(content string, as dialect) file {
	f := newFile(content)
	f.as = as
	return f
}

// begun is an upload that a client created and sent some bytes of.
func begun(r *rig) []file {
	f := newCreated("0123456789", declared)
	r.patch(r.create(f).location(), 0, f.bytes[:4]).is(204)
	return []file{f}
}

// tidied has the server look through its sessions, and delivers nothing.
func tidied(r *rig, _ []file) bool {
	_ = r.server.engine.Tidy(r.t.Context()) // which fails where the records do
	return false
}

// putOff is a hook that keeps every upload from being verified.
func putOff(c durable.Call) error {
	if c.Op == durable.OpRead && strings.Contains(c.Path, "/uploads/") {
		return errors.New("verification is put off")
	}
	return nil
}

// leftovers are what crashes leave: bytes that were never confirmed, confirmed bytes that are missing, a complete upload
// that became the content already, and a data file that no session names.
func leftovers(r *rig) []file {
	r.reopen(hooked(putOff))
	files := []file{newFile("0123456789"), newFile("abcdefghij"), newFile("moved")}
	var data []string
	for _, f := range files {
		url := r.reserve(f).Upload.URL
		r.patch(url, 0, f.bytes[:min(6, len(f.bytes))]).is(204)
		data = append(data, r.uploadFile(url))
	}
	appendTo(r.t, data[0], "not confirmed")
	check(r.t, os.Truncate(data[1], 5))
	check(r.t, os.MkdirAll(filepath.Dir(r.contentFile(files[2])), 0o700))
	check(r.t, os.Rename(data[2], r.contentFile(files[2])))
	appendTo(r.t, filepath.Join(filepath.Dir(data[0]), strings.Repeat("ab", 20)), "orphan")
	return files
}
