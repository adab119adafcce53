package server

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// rot changes a byte of a file as a medium does: length and times stay.
func rot(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	check(t, err)
	content, err := os.ReadFile(path)
	check(t, err)
	content[0] ^= 1
	check(t, os.WriteFile(path, content, 0o600))
	check(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// get downloads a file, which must be whole.
func (r *rig) get(f file) answered {
	r.t.Helper()
	got := r.do(call{method: http.MethodGet, path: f.path() + "/content"}).is(200)
	if !bytes.Equal(got.body, f.bytes) {
		r.t.Fatalf("content %q", got.body)
	}
	return got
}

// listed returns the IDs of all listed attachments, asked for one at a time.
func (r *rig) listed() (ids []string) {
	r.t.Helper()
	for path, pages := "/v1/attachments?limit=1", 0; ; pages++ {
		page := decode[wire.AttachmentList](r.do(call{method: http.MethodGet, path: path}).is(200))
		for _, a := range page.Attachments {
			ids = append(ids, a.AttachmentID)
		}
		if page.Next == "" || pages > 100 {
			return ids
		}
		path = "/v1/attachments?limit=1&after=" + page.Next
	}
}

// Bytes that were read back a moment ago take the place of the content file that stands there, however whole that looks.
func TestUploadReplacesContent(t *testing.T) {
	r := newRig(t)
	one, two := newFile("0123456789"), newFile("0123456789")
	a, b := r.reserve(one), r.reserve(two)
	r.patch(a.Upload.URL, 0, one.bytes).is(204)
	rec := r.deliver(one)
	rot(t, r.contentFile(one))
	r.patch(b.Upload.URL, 0, two.bytes).is(204)
	r.register(two).is(200)
	for _, f := range []file{one, two} {
		r.get(f)
	}
	if again := decode[receipt.Receipt](r.register(one).is(200)); again.RegisteredAt != rec.RegisteredAt {
		t.Errorf("%+v and %+v", again, rec)
	}
}

// No bytes are waived on the length of a content file: after a start it is read once, however many ask, and what it turns
// out to be decides.
func TestWaivedBytesAreRead(t *testing.T) {
	var mu sync.Mutex
	opened := 0
	r := newRig(t, hooked(func(c durable.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Op == durable.OpOpen && strings.Contains(c.Path, "/blobs/") {
			opened++
		}
		return nil
	}))
	first := newFile("0123456789")
	r.deliver(first)
	for _, sound := range []bool{true, false} {
		if !sound {
			rot(t, r.contentFile(first))
		}
		r.restart()
		mu.Lock()
		opened = 0
		mu.Unlock()
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				a := r.put(newFile("0123456789"), "").is(201)
				if got := decode[wire.Attachment](a); (got.Upload == nil) != sound || (got.State == wire.StateVerified) != sound {
					t.Errorf("sound %v: %s", sound, a)
				}
			})
		}
		group.Wait()
		r.put(newFile("0123456789"), "").is(201)
		mu.Lock()
		if opened != 1 {
			t.Errorf("sound %v: read %d times", sound, opened)
		}
		mu.Unlock()
	}
	// What the reading found out holds for those that rest on the same content, and the next upload heals them.
	r.show(first).refused(wire.CodeSessionGone)
	r.register(first).refused(wire.CodeNotVerified)
	r.do(call{method: http.MethodGet, path: first.path() + "/content"}).refused(wire.CodeSessionGone)
	r.deliver(newFile("0123456789"))
	r.register(first).is(200)
	r.get(first)
}

// A receipt is not given for the first time on bytes that a former process has read.
func TestReceiptRestsOnRead(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	r.patch(r.reserve(f).Upload.URL, 0, f.bytes).is(204)
	rot(t, r.contentFile(f))
	r.restart()
	r.register(f).refused(wire.CodeSessionGone)
	if a := r.reserve(f); a.Generation != 2 || a.Upload == nil {
		t.Fatalf("%+v", a)
	}
	r.deliver(f)
	r.get(f)
}

// Content that was moved to its place before a crash and rotted there is the server's loss, not the device's wrong bytes.
func TestMovedContentRots(t *testing.T) {
	var puts sync.Map
	r := newRig(t, hooked(func(c durable.Call) error {
		if _, off := puts.Load("off"); off && c.Op == durable.OpRead && strings.Contains(c.Path, "/uploads/") {
			return errors.New("verification is put off")
		}
		return nil
	}))
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	puts.Store("off", nil)
	r.patch(url, 0, f.bytes).is(204)
	r.close()
	puts.Delete("off")
	check(t, os.MkdirAll(filepath.Dir(r.contentFile(f)), 0o700))
	check(t, os.Rename(r.uploadFile(url), r.contentFile(f)))
	rot(t, r.contentFile(f))
	r.open()
	r.show(f).refused(wire.CodeSessionGone)
	r.deliver(f)
	r.get(f)
}

// errorLog counts the lines of level error.
type errorLog struct {
	mu sync.Mutex
	n  int
}

func (l *errorLog) Write([]byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return 0, nil
}

func (l *errorLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelError}))
}

// A registered attachment whose content is missing or cut is shown nowhere; its device sends the bytes again and gets the
// very same receipt. The loss is logged once. A content that comes back by itself is good as it was.
func TestRegisteredContentLost(t *testing.T) {
	for name, harm := range map[string]func(string) error{
		"missing":   os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 3) },
		"grown":     func(path string) error { return os.Truncate(path, 300) },
	} {
		t.Run(name, func(t *testing.T) {
			log := &errorLog{}
			r := newRig(t, func(o *Options) { o.Logger = log.logger() })
			f, beside := newFile("0123456789"), newFile("another file")
			url := r.reserve(f).Upload.URL
			r.patch(url, 0, f.bytes).is(204)
			rec := r.register(f).is(200)
			r.deliver(beside)
			aside := r.contentFile(f) + ".aside"
			check(t, os.Link(r.contentFile(f), aside))
			whole, err := os.ReadFile(aside)
			check(t, err)
			check(t, harm(r.contentFile(f)))
			for range 2 {
				r.show(f).refused(wire.CodeSessionGone)
				r.register(f).refused(wire.CodeNotVerified)
				r.do(call{method: http.MethodGet, path: f.path() + "/content"}).refused(wire.CodeSessionGone)
				r.do(call{method: http.MethodHead, path: url, header: tusHeader(0)}).is(410)
				r.patch(url, f.facts.Length, nil).refused(wire.CodeSessionGone)
				if ids := r.listed(); len(ids) != 1 || ids[0] != beside.id {
					t.Errorf("listed %v", ids)
				}
			}
			if log.n != 1 {
				t.Errorf("%d lines of level error", log.n)
			}
			check(t, os.WriteFile(r.contentFile(f), whole, 0o600))
			if got := decode[wire.Attachment](r.show(f).is(200)); got.State != wire.StateRegistered || got.Receipt == nil {
				t.Errorf("content is back: %+v", got)
			}
			check(t, harm(r.contentFile(f)))
			r.restart()
			other := f
			other.facts.Parent.LocalID, other.facts.Filename = "insp-8", "other.jpg"
			again := decode[wire.Attachment](r.put(other, r.second).is(200))
			if again.State != wire.StateReserved || again.Generation != 2 || again.Upload == nil || again.Upload.Offset != 0 || again.Receipt != nil {
				t.Fatalf("%+v", again)
			}
			r.register(f).refused(wire.CodeNotVerified)
			r.patch(again.Upload.URL, 0, f.bytes).is(204)
			r.register(other).refused(wire.CodeParentPolicy)
			if got := r.register(f).is(200); string(got.body) != string(rec.body) {
				t.Errorf("receipt was\n%s, now it is\n%s", rec.body, got.body)
			}
			r.get(f)
			if ids := r.listed(); len(ids) != 2 || ids[0] != f.id {
				t.Errorf("listed %v", ids)
			}
		})
	}
}

// An operator's reading makes the record true in both directions, whether the server runs or not.
func TestOperatorHeals(t *testing.T) {
	for _, mode := range []string{"running", "stopped"} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t)
			f := newFile("0123456789")
			r.deliver(f)
			rec := string(r.register(f).is(200).body)
			verify := func(want admin.Finding) {
				t.Helper()
				if mode == "stopped" {
					r.close()
					defer r.open()
				} else {
					defer r.running()()
				}
				check(t, r.operate(func(o admin.Operator) error {
					found, err := o.VerifyAttachment(t.Context(), "acme", f.id)
					if found.SHA256 = ""; found != want {
						t.Errorf("found %+v, want %+v", found, want)
					}
					return err
				}))
			}
			rot(t, r.contentFile(f))
			verify(admin.Finding{Length: 10, State: wire.StateReserved})
			r.restart()
			r.register(f).refused(wire.CodeNotVerified)
			if ids := r.listed(); len(ids) != 0 {
				t.Errorf("listed %v", ids)
			}
			check(t, os.Rename(r.contentFile(f)+".damaged", r.contentFile(f)))
			rot(t, r.contentFile(f)) // back to what it was
			verify(admin.Finding{Sound: true, Length: 10, State: wire.StateRegistered})
			r.restart()
			if got := string(r.register(f).is(200).body); got != rec {
				t.Errorf("receipt was\n%s, now it is\n%s", rec, got)
			}
			check(t, os.Remove(r.contentFile(f)))
			verify(admin.Finding{Missing: true, State: wire.StateReserved})
			r.restart()
			r.deliver(f)
			if got := string(r.register(f).is(200).body); got != rec {
				t.Errorf("receipt was\n%s, now it is\n%s", rec, got)
			}
		})
	}
}

// An account at its limit of sessions takes new files again once old sessions stand idle: the longest idle one ends, its
// URL answers 410, its bytes are removed, and its device begins the next generation.
func TestIdleSessionsExpire(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	r := newRig(t, func(o *Options) {
		o.Limits.SessionsPerAccount = 2
		o.Now = func() time.Time { return now }
	})
	one, two, three := newFile("one"), newFile("two"), newFile("three")
	url := r.reserve(one).Upload.URL
	r.patch(url, 0, one.bytes[:2]).is(204)
	now = now.Add(time.Minute)
	twoURL := r.reserve(two).Upload.URL
	now = now.Add(store.IdleSession - time.Minute)
	r.put(three, "").refused(wire.CodeTooMany)
	now = now.Add(time.Second)
	r.put(three, "").is(201)
	r.do(call{method: http.MethodHead, path: url, header: tusHeader(0)}).is(410)
	r.patch(url, 2, one.bytes[2:]).refused(wire.CodeSessionGone)
	r.show(one).refused(wire.CodeSessionGone)
	if _, err := os.Stat(r.uploadFile(url)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data file stays: %v", err)
	}
	r.put(one, "").refused(wire.CodeTooMany)
	now = now.Add(time.Second)
	r.patch(twoURL, 0, two.bytes[:1]).is(204) // no longer the one that is idle
	now = now.Add(store.IdleSession)
	if a := r.reserve(one); a.Generation != 2 || a.Upload.Offset != 0 {
		t.Fatalf("%+v", a)
	}
	if got := r.head(twoURL); got != 1 {
		t.Errorf("offset %d", got)
	}
	r.deliver(one)
}

// A damaged directory of one account is that account's trouble: the server starts and serves the others, tells no offset
// that it cannot vouch for, and goes on where it was when the directory is whole again.
func TestDamagedAccountDirectory(t *testing.T) {
	log := &errorLog{}
	r := newRig(t, func(o *Options) { o.Logger = log.logger() })
	f, beside := newFile("0123456789"), newFile("another account's")
	url := r.reserve(f).Upload.URL
	r.patch(url, 0, f.bytes[:5]).is(204)
	r.put(beside, r.stranger).is(201)
	uploads := filepath.Dir(r.uploadFile(url))
	r.close()
	appendTo(t, r.uploadFile(url), "junk")
	check(t, os.Rename(uploads, uploads+".aside"))
	check(t, os.WriteFile(uploads, nil, 0o600))
	r.open()
	if log.n == 0 {
		t.Error("nothing is logged")
	}
	r.do(call{method: http.MethodHead, path: url, header: tusHeader(0)}).is(500)
	r.patch(url, 5, f.bytes[5:]).refused(wire.CodeInternal)
	sent := decode[wire.Attachment](r.put(beside, r.stranger).is(200))
	r.do(call{method: http.MethodPatch, path: sent.Upload.URL, token: r.stranger, header: tusHeader(0), body: beside.bytes}).is(204)
	check(t, os.Remove(uploads))
	check(t, os.Rename(uploads+".aside", uploads))
	if got := r.head(url); got != 5 {
		t.Fatalf("offset %d", got)
	}
	if info, err := os.Stat(r.uploadFile(url)); err != nil || info.Size() != 5 {
		t.Errorf("%v, %v", info, err)
	}
	r.deliver(f)
	r.get(f)
}

// Without its record file a server does not start beside what it received, and touches none of it.
func TestRecordsMissing(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	url := r.reserve(f).Upload.URL
	r.patch(url, 0, f.bytes[:5]).is(204)
	r.close()
	db := filepath.Join(r.dir, "server.db")
	check(t, os.Rename(db, db+".aside"))
	if _, err := New(t.Context(), r.opts); !errors.Is(err, ErrRecordsMissing) {
		t.Errorf("start: %v", err)
	}
	if err := r.operate(func(admin.Operator) error { return nil }); !errors.Is(err, ErrRecordsMissing) {
		t.Errorf("operator: %v", err)
	}
	if _, err := os.Stat(db); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty store was made: %v", err)
	}
	check(t, os.Rename(db+".aside", db))
	r.open()
	if got := r.head(url); got != 5 {
		t.Fatalf("offset %d", got)
	}
	r.close()
	check(t, errors.Join(os.Remove(db), os.RemoveAll(filepath.Join(r.dir, "accounts"))))
	r.open() // nothing was received
}

// An older copy of the data directory is true to what it holds: a device that is further on is told the offset of the
// copy, or 410 where the copy's files are older than its records, and everything can be delivered again.
func TestOlderCopy(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		r := newRig(t)
		f, later := newFile("0123456789"), newFile("delivered after the copy")
		url := r.reserve(f).Upload.URL
		r.patch(url, 0, f.bytes[:4]).is(204)
		r.close()
		copied := filepath.Join(t.TempDir(), "copy")
		check(t, os.CopyFS(copied, os.DirFS(r.dir)))
		r.open()
		r.patch(url, 4, f.bytes[4:8]).is(204)
		r.deliver(later)
		r.close()
		if mixed { // the records are those of now, the files those of the copy
			check(t, os.RemoveAll(filepath.Join(r.dir, "accounts")))
			check(t, os.CopyFS(filepath.Join(r.dir, "accounts"), os.DirFS(filepath.Join(copied, "accounts"))))
		} else {
			r.dir, r.opts.Dir = copied, copied
		}
		r.open()
		ahead := r.patch(url, 8, f.bytes[8:])
		if mixed {
			ahead.refused(wire.CodeSessionGone)
			r.show(later).refused(wire.CodeSessionGone)
		} else {
			ahead.refused(wire.CodeOffsetMismatch)
			if ahead.offset() != 4 || r.head(url) != 4 {
				t.Errorf("offset %d", ahead.offset())
			}
			r.show(later).refused(wire.CodeNotFound)
		}
		if ids := r.listed(); len(ids) != 0 {
			t.Errorf("listed %v", ids)
		}
		for _, f := range []file{f, later} {
			r.deliver(f)
			r.get(f)
		}
		r.close()
	}
}
