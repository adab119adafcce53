package server

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// gone fails the test unless the content of each file is lost to everybody who asks.
func (r *rig) gone(files ...file) {
	r.t.Helper()
	for _, f := range files {
		r.do(call{method: http.MethodGet, path: f.path() + "/content"}).refused(wire.CodeSessionGone)
		r.show(f).refused(wire.CodeSessionGone)
		r.register(f).refused(wire.CodeNotVerified)
	}
	if ids := r.listed(); len(ids) != 0 {
		r.t.Errorf("listed %v", ids)
	}
}

// verify has an operator read an attachment's content back, while the server is stopped.
func (r *rig) verify(f file) (found admin.Finding, err error) {
	r.t.Helper()
	r.close()
	defer r.open()
	err = r.operate(func(o admin.Operator) (err error) {
		found, err = o.VerifyAttachment(r.t.Context(), "acme", f.id)
		return err
	})
	return found, err
}

// Damage that was found once is never forgotten: whoever found it, and however often the server starts since, no
// attachment of that content is listed or served, until a device sends the bytes again. The damaged bytes stay for a
// person to look at, each under a name of its own, and the log says where.
func TestDamageIsNeverForgotten(t *testing.T) {
	finders := map[string]func(*rig, file){
		"operator": func(r *rig, f file) {
			if found, err := r.verify(f); err != nil || found.Sound || found.State != wire.StateReserved {
				r.t.Errorf("found %+v, %v", found, err)
			}
		},
		"reservation of the same content": func(r *rig, f file) {
			r.restart()
			if a := r.reserve(newFile(string(f.bytes))); a.Upload == nil {
				r.t.Errorf("bytes were waived: %+v", a)
			}
		},
	}
	for name, find := range finders {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			one, two := newFile("0123456789"), newFile("0123456789")
			aside := r.contentFile(one) + ".damaged"
			for n, path := range []string{aside, aside + ".2"} {
				r.deliver(one)
				r.deliver(two)
				receipts := []string{string(r.register(one).body), string(r.register(two).body)}
				rot(t, r.contentFile(one))
				rotten, err := os.ReadFile(r.contentFile(one))
				check(t, err)
				find(r, one)
				for range 2 {
					r.gone(two)
					r.restart()
				}
				if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, rotten) {
					t.Errorf("damage %d: set aside %q, %v", n, kept, err)
				}
				if said := strings.Count(log.String(), "path="+path+"\n"); said != 1 {
					t.Errorf("the log names %s %d times", path, said)
				}
				three := newFile("0123456789")
				if a := r.reserve(three); a.Upload == nil {
					t.Fatalf("bytes were waived: %+v", a)
				}
				r.deliver(three) // heals them all
				r.deliver(one)   // which an operator's finding had thrown back
				for i, f := range []file{one, two} {
					r.get(f)
					if got := string(r.register(f).is(200).body); got != receipts[i] {
						t.Errorf("receipt was\n%s, now it is\n%s", receipts[i], got)
					}
				}
			}
			if first, err := os.ReadFile(aside); err != nil || len(first) != 10 {
				t.Errorf("what was set aside first: %q, %v", first, err)
			}
		})
	}
}

// While damage cannot be recorded nobody is given the bytes either; it is recorded as soon as that is possible, without
// anybody reading them again.
func TestDamageThatCannotBeSetAside(t *testing.T) {
	for _, op := range []durable.Op{durable.OpRename, durable.OpSyncDir} {
		t.Run(string(op), func(t *testing.T) {
			var full sync.Map
			r := newRig(t, hooked(func(c durable.Call) error {
				if _, on := full.Load("full"); on && c.Op == op && strings.Contains(c.Path, "/blobs/") {
					return unix.ENOSPC
				}
				return nil
			}))
			f, other := newFile("0123456789"), newFile("0123456789")
			r.deliver(f)
			rot(t, r.contentFile(f))
			r.restart()
			if ids := r.listed(); len(ids) != 1 {
				t.Fatalf("listed %v", ids)
			}
			full.Store("full", nil)
			r.put(other, "").refused(wire.CodeServerFull)
			r.do(call{method: http.MethodGet, path: f.path() + "/content"}).refused(wire.CodeServerFull)
			if ids := r.listed(); len(ids) != 0 {
				t.Errorf("listed %v", ids)
			}
			full.Delete("full")
			r.gone(f)
			r.restart()
			r.gone(f)
			r.deliver(other)
			r.get(f)
		})
	}
}

// A medium that does not give the bytes back proves nothing of them: they stay in their place and count as soon as they
// can be read. Meanwhile no new promise rests on them.
func TestUnreadableContent(t *testing.T) {
	var broken sync.Map
	r := newRig(t, hooked(func(c durable.Call) error {
		if _, on := broken.Load("broken"); on && c.Op == durable.OpRead && strings.Contains(c.Path, "/blobs/") {
			return unix.EIO
		}
		return nil
	}))
	f := newFile("0123456789")
	r.deliver(f)
	rec := string(r.register(f).is(200).body)
	r.restart()
	broken.Store("broken", nil)
	other := newFile("0123456789")
	if a := r.reserve(other); a.Upload == nil {
		t.Errorf("bytes were waived: %+v", a)
	}
	found, _, err := r.server.engine.Audit(t.Context(), "acme", f.id)
	if err != nil || found.State != wire.StateReserved {
		t.Errorf("audit %+v, %v", found, err)
	}
	r.gone(f)
	broken.Delete("broken")
	if _, err := os.Stat(r.contentFile(f)); err != nil {
		t.Error(err)
	}
	if found, err := r.verify(f); err != nil || !found.Sound || found.State != wire.StateRegistered {
		t.Errorf("verify %+v, %v", found, err)
	}
	if got := string(r.register(f).is(200).body); got != rec {
		t.Errorf("receipt was\n%s, now it is\n%s", rec, got)
	}
	r.get(f)
	if a := r.reserve(newFile("0123456789")); a.Upload != nil {
		t.Errorf("bytes were asked for: %+v", a)
	}
}

// A device sends the bytes again while the damaged ones are being read: what is set aside is the file that was read and no
// other, and a download that began before ends with what it began with.
func TestHealedWhileBeingRead(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var armed sync.Map
	r := newRig(t, hooked(func(c durable.Call) error {
		if _, on := armed.Load("armed"); on && c.Op == durable.OpClose && strings.Contains(c.Path, "/blobs/") {
			once.Do(func() { close(begun); <-goOn })
		}
		return nil
	}))
	f, other := newFile("0123456789"), newFile("0123456789")
	url := r.reserve(other).Upload.URL
	r.deliver(f)
	rot(t, r.contentFile(f))
	download, err := r.server.files.OpenContent("acme", f.facts.SHA256, f.facts.Length)
	check(t, err)
	armed.Store("armed", nil)
	ended := make(chan error, 1)
	go func() {
		_, found, err := r.server.engine.Audit(t.Context(), "acme", f.id)
		if found.SHA256 != f.facts.SHA256 {
			t.Errorf("in the end the audit read %+v", found)
		}
		ended <- err
	}()
	<-begun
	r.patch(url, 0, other.bytes).is(204)
	close(goOn)
	check(t, <-ended)
	r.get(f)
	r.register(other).is(200)
	r.get(other)
	old, err := io.ReadAll(download)
	check(t, err)
	check(t, download.Close())
	if len(old) != 10 || bytes.Equal(old, f.bytes) {
		t.Errorf("the download ended with %q", old)
	}
	if asides, err := filepath.Glob(r.contentFile(f) + ".*"); err != nil || len(asides) != 0 {
		t.Errorf("set aside %v, %v", asides, err)
	}
}

// Any number of readings that find the same damage set one file aside once.
func TestManyFindOneDamage(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Limits.Verifications = 4 })
	f := newFile("0123456789")
	r.deliver(f)
	rot(t, r.contentFile(f))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if a, found, err := r.server.engine.Audit(t.Context(), "acme", f.id); err != nil || a.State != wire.StateReserved || found.SHA256 == f.facts.SHA256 {
				t.Errorf("audit %+v, found %+v, %v", a, found, err)
			}
		})
	}
	group.Wait()
	if asides, err := filepath.Glob(r.contentFile(f) + "*"); err != nil || len(asides) != 1 || asides[0] != r.contentFile(f)+".damaged" {
		t.Errorf("files %v, %v", asides, err)
	}
}

// A file of another length in a content's place is kept when the bytes are sent again.
func TestTruncatedContentIsKept(t *testing.T) {
	r := newRig(t)
	f := newFile("0123456789")
	r.deliver(f)
	check(t, os.Truncate(r.contentFile(f), 3))
	r.gone(f)
	r.deliver(f)
	r.get(f)
	if kept, err := os.ReadFile(r.contentFile(f) + ".damaged"); err != nil || string(kept) != "012" {
		t.Errorf("kept %q, %v", kept, err)
	}
}

// An audit that ends an upload removes its data file at once; an append that makes the file only then removes it itself.
func TestAuditEndsUpload(t *testing.T) {
	var late func()
	r := newRig(t, hooked(func(c durable.Call) error {
		if c.Op == durable.OpCreate && late != nil {
			late()
			late = nil
		}
		return nil
	}))
	f := newFile("0123456789")
	r.deliver(f)
	away := r.contentFile(f) + ".away"
	audit := func() {
		check(t, os.Rename(away, r.contentFile(f)))
		if a, _, err := r.server.engine.Audit(t.Context(), "acme", f.id); err != nil || a.State != wire.StateRegistered {
			t.Errorf("audit %+v, %v", a, err)
		}
	}
	for _, made := range []bool{true, false} {
		check(t, os.Rename(r.contentFile(f), away))
		url := r.reserve(f).Upload.URL
		if made {
			r.patch(url, 0, f.bytes[:4]).is(204)
			audit()
			r.patch(url, 4, f.bytes[4:]).refused(wire.CodeSessionGone)
		} else {
			late = audit
			r.patch(url, 0, f.bytes[:4]).refused(wire.CodeSessionGone)
		}
		if _, err := os.Stat(r.uploadFile(url)); !os.IsNotExist(err) {
			t.Errorf("made before the audit: %v; data file: %v", made, err)
		}
		r.get(f)
	}
}
