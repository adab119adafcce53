package server

import (
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// medium watches the file operations of a server and knows what of its data files a power cut would leave: the bytes up
// to the last fsync of a file, under the names that stood in its directory at the directory's last fsync.
type medium struct {
	t    *testing.T
	root string

	mu     sync.Mutex
	last   durable.Call
	synced map[uint64]int64             // inode → bytes that are on the disk
	names  map[string]map[string]uint64 // directory → names that are on the disk, and their inodes
	at     func(op durable.Call)        // called before each operation
}

func newMedium(t *testing.T) *medium {
	return &medium{t: t, synced: map[uint64]int64{}, names: map[string]map[string]uint64{}}
}

// hook is called before each operation: what the one before it did is known by now.
func (m *medium) hook(c durable.Call) error {
	m.mu.Lock()
	m.settle()
	m.last = c
	at := m.at
	m.mu.Unlock()
	if at != nil {
		at(c)
	}
	return nil
}

func (m *medium) settle() {
	switch m.last.Op {
	case durable.OpSync:
		if info, err := os.Stat(m.last.Path); err == nil {
			m.synced[inode(info)] = info.Size()
		}
	case durable.OpSyncDir:
		names := map[string]uint64{}
		entries, err := os.ReadDir(m.last.Path)
		for _, e := range entries {
			info, ierr := e.Info()
			if err = errors.Join(err, ierr); err == nil {
				names[e.Name()] = inode(info)
			}
		}
		if err != nil {
			m.t.Error(err)
		}
		m.names[m.last.Path] = names
	}
	m.last = durable.Call{}
}

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// tree is the content of a directory: path from its root → bytes.
type tree map[string]string

// now is the state of the data directory: as a killed process leaves it, or as a power cut does.
func (m *medium) now(power bool) tree {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle()
	files := tree{}
	where := map[uint64][]byte{} // inode → bytes, of the data files
	data := filepath.Join(m.root, "accounts")
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if !power || !strings.HasPrefix(path, data) {
			files[m.rel(path)] = string(content)
			return err
		}
		info, ierr := d.Info()
		where[inode(info)] = content
		return errors.Join(err, ierr)
	})
	if err != nil {
		m.t.Fatal(err)
	}
	for dir, names := range m.names {
		if !power || !strings.HasPrefix(dir, data) {
			continue
		}
		for name, ino := range names {
			if content, ok := where[ino]; ok {
				files[m.rel(filepath.Join(dir, name))] = string(content[:min(int64(len(content)), m.synced[ino])])
			}
		}
	}
	return files
}

func (m *medium) rel(path string) string {
	rel, err := filepath.Rel(m.root, path)
	if err != nil {
		m.t.Fatal(err)
	}
	return rel
}

// write puts the tree into a directory.
func (files tree) write(t *testing.T, dir string) {
	t.Helper()
	for path, content := range files {
		path = filepath.Join(dir, path)
		check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check(t, os.WriteFile(path, []byte(content), 0o600))
	}
}

// acknowledged is what a client was told, in the order in which it was told.
type acknowledged struct {
	offsets  map[string]int64 // upload URL → confirmed offset
	receipts map[string]string
}

func (a acknowledged) clone() acknowledged {
	return acknowledged{maps.Clone(a.offsets), maps.Clone(a.receipts)}
}

// snapshot is one crash: the directory as it was found, and what had been promised by then.
type snapshot struct {
	name  string
	files tree
	acks  acknowledged
}

// A crash at any operation, by a kill or by a power cut, takes back nothing that was acknowledged: no confirmed offset
// shrinks, no receipt changes or loses its content, nothing incomplete shows, and every delivery can be finished.
func TestCrashAtEveryOperation(t *testing.T) {
	m := newMedium(t)
	r := newRig(t, hooked(m.hook))
	m.root = r.dir
	acks := acknowledged{map[string]int64{}, map[string]string{}}
	var taken []snapshot
	last := map[string]snapshot{}
	take := func(name string) {
		for _, how := range []string{"kill", "power"} {
			s := snapshot{name: strconv.Itoa(len(taken)) + "-" + name + "-" + how, files: m.now(how == "power"), acks: acks.clone()}
			if before := last[how]; !maps.Equal(s.files, before.files) || !reflect.DeepEqual(s.acks, before.acks) {
				taken = append(taken, s)
			}
			last[how] = s
		}
	}
	m.at = func(c durable.Call) { take(string(c.Op)) }

	// The scenario: two files of the same bytes, one that comes with wrong bytes first, an empty one.
	one, two, bad, empty := newFile("0123456789"), newFile("0123456789"), newFile("as declared"), newFile("")
	files := []file{one, two, bad, empty}
	send := func(url string, at int64, body string) {
		a := r.patch(url, at, []byte(body))
		if a.status == 204 {
			acks.offsets[url] = a.offset()
		}
		take("answered")
	}
	register := func(f file) {
		acks.receipts[f.id] = string(r.register(f).is(200).body)
		take("answered")
	}
	for _, f := range []file{one, two} {
		url := r.reserve(f).Upload.URL
		send(url, 0, "0123")
		send(url, 4, "456789")
	}
	register(one)
	register(two)
	send(r.reserve(bad).Upload.URL, 0, "not as said")
	url := r.reserve(bad).Upload.URL
	send(url, 0, "as ")
	send(url, 3, "declared")
	r.reserve(empty)
	register(bad)
	register(empty)
	m.at = nil
	r.close()
	if len(taken) < 50 {
		t.Fatalf("only %d crashes", len(taken))
	}

	for _, s := range taken {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			checkCrash(t, s, r, files)
		})
	}
}

// checkCrash starts a server on what a crash left and holds it to what was acknowledged.
func checkCrash(t *testing.T, s snapshot, before *rig, files []file) {
	r := &rig{t: t, dir: t.TempDir(), opts: before.opts, token: before.token}
	s.files.write(t, r.dir)
	r.opts.Dir, r.opts.FS = r.dir, durable.OS()
	r.open()
	defer r.close()
	for url, want := range s.acks.offsets {
		a := r.do(call{method: http.MethodHead, path: url, header: tusHeader(0)})
		if a.status == 410 && want == 11 {
			continue // the session of the wrong bytes: confirmed, and void by their digest
		}
		if got := a.is(200).offset(); got < want {
			t.Errorf("offset %d was confirmed, now it is %d", want, got)
		}
	}
	list := decode[wire.AttachmentList](r.do(call{method: http.MethodGet, path: "/v1/attachments"}).is(200))
	listed := map[string]bool{}
	for _, a := range list.Attachments {
		listed[a.AttachmentID] = true
	}
	for _, f := range files {
		got := r.do(call{method: http.MethodGet, path: f.path() + "/content"})
		if listed[f.id] != (got.status == 200) || got.status == 200 && string(got.body) != string(f.bytes) {
			t.Errorf("listed: %v, download: %s", listed[f.id], got)
		}
		want, acked := s.acks.receipts[f.id]
		if acked && !listed[f.id] {
			t.Errorf("receipt of %s is lost", f.id)
		}
		if again := r.finish(f); acked && again != want {
			t.Errorf("receipt was\n%s, now it is\n%s", want, again)
		}
	}
	entries, err := os.ReadDir(filepath.Join(r.dir, "accounts", "acme", "uploads"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) != 0 {
		t.Errorf("data files are left: %v, %v", entries, err)
	}
}

// finish delivers a file from wherever it stands, as a device does, and returns its receipt as it was answered.
func (r *rig) finish(f file) string {
	r.t.Helper()
	for range 10 {
		a := r.put(f, "")
		if a.status >= 500 {
			continue
		}
		if up := decode[wire.Attachment](a).Upload; up != nil && up.Offset < f.facts.Length {
			at := up.Offset
			for a = r.patch(up.URL, at, f.bytes[at:min(at+4, f.facts.Length)]); a.status == 204 && a.offset() < f.facts.Length; {
				at = a.offset()
				a = r.patch(up.URL, at, f.bytes[at:min(at+4, f.facts.Length)])
			}
			if a.status != 204 {
				continue
			}
		}
		if a = r.register(f); a.status == 200 {
			return string(a.body)
		}
	}
	r.t.Fatalf("%s cannot be delivered", f.id)
	return ""
}

// Whichever single file operation fails, and in whichever way, the server goes on, and a device that repeats itself gets
// its file delivered with the right bytes.
func TestEveryOperationFailsOnce(t *testing.T) {
	for _, broken := range []error{unix.EIO, unix.ENOSPC} {
		for n := 0; ; n++ {
			var mu sync.Mutex
			count, failed := -1, durable.Call{}
			r := newRig(t, hooked(func(c durable.Call) error {
				mu.Lock()
				defer mu.Unlock()
				if count < 0 {
					return nil
				}
				if count++; count == n+1 {
					failed = c
					return broken
				}
				return nil
			}))
			mu.Lock()
			count = 0
			mu.Unlock()
			for _, f := range []file{newFile("0123456789"), newFile("")} {
				rec := r.finish(f)
				download := call{method: http.MethodGet, path: f.path() + "/content"}
				got, err := r.try(download)
				if err != nil || got.status >= 500 { // the operation that failed was one of this request
					got = r.do(download)
				}
				if string(got.body) != string(f.bytes) {
					t.Errorf("operation %d (%s) failed: content %s", n, failed.Op, got)
				}
				if again := r.finish(f); again != rec {
					t.Errorf("operation %d (%s) failed: receipts %s and %s", n, failed.Op, rec, again)
				}
			}
			mu.Lock()
			count = -1
			mu.Unlock()
			r.restart()
			r.close()
			if failed.Op == "" {
				if n < 20 {
					t.Fatalf("only %d operations", n)
				}
				break
			}
		}
	}
}

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
