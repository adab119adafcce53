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
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// condition is what clients and the test itself know of a content.
type condition int

const (
	sound   condition = iota
	rotten            // its bytes changed on the medium, and nobody has read them since
	found             // somebody was told of the damage: it must never be forgotten
	healing           // the bytes are on their way back: it is there and right, or not there
)

// acknowledged is what clients were told.
type acknowledged struct {
	offsets  map[string]int64     // upload URL → confirmed offset, of sessions that nobody has ended
	receipts map[string]string    // attachment → receipt
	contents map[string]condition // SHA-256 → condition
}

func (a acknowledged) clone() acknowledged {
	return acknowledged{maps.Clone(a.offsets), maps.Clone(a.receipts), maps.Clone(a.contents)}
}

// snapshot is one crash: the directory as it was found, and what had been promised by then.
type snapshot struct {
	name  string
	files tree
	acks  acknowledged
}

// story is a server's life that is recorded: before every file operation, and after every answer, the states that a kill
// and a power cut would leave are taken down.
type story struct {
	*rig
	medium *medium
	now    time.Time
	acks   acknowledged
	files  []file
	taken  []snapshot
	last   map[string]snapshot
}

func newStory(t *testing.T) *story {
	s := &story{
		medium: newMedium(t), now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), last: map[string]snapshot{},
		acks: acknowledged{map[string]int64{}, map[string]string{}, map[string]condition{}},
	}
	s.rig = newRig(t, hooked(s.medium.hook), func(o *Options) {
		o.Limits.SessionsPerAccount, o.Limits.Confirm = 3, 4
		o.Now = func() time.Time { return s.now }
	})
	s.medium.root = s.dir
	s.medium.at = func(c durable.Call) { s.take(string(c.Op)) }
	return s
}

func (s *story) take(name string) {
	for _, how := range []string{"kill", "power"} {
		n := snapshot{
			name: strconv.Itoa(len(s.taken)) + "-" + name + "-" + how, files: s.medium.now(how == "power"), acks: s.acks.clone(),
		}
		if before := s.last[how]; !maps.Equal(n.files, before.files) || !reflect.DeepEqual(n.acks, before.acks) {
			s.taken = append(s.taken, n)
		}
		s.last[how] = n
	}
}

func (s *story) file(content string) file {
	f := newFile(content)
	s.files = append(s.files, f)
	return f
}

// send appends to an upload, and takes down what was confirmed.
func (s *story) send(url string, at int64, body string) {
	if a := s.patch(url, at, []byte(body)); a.status == 204 {
		s.acks.offsets[url] = a.offset()
	}
	s.take("answered")
}

func (s *story) registers(f file) {
	s.acks.receipts[f.id] = string(s.register(f).is(200).body)
	s.take("answered")
}

// become notes the condition of a content. One that is not sound ends the sessions that brought it.
func (s *story) become(f file, c condition) {
	s.acks.contents[f.facts.SHA256] = c
	s.take("condition")
}

// whole takes a file through all steps, as two appends.
func (s *story) whole(f file) {
	if a := s.reserve(f); a.Upload != nil {
		half := f.facts.Length / 2
		s.send(a.Upload.URL, 0, string(f.bytes[:half]))
		s.send(a.Upload.URL, half, string(f.bytes[half:]))
	}
	s.registers(f)
}

// rots changes a content on the medium. Uploads that brought it answer 410 as soon as that is found.
func (s *story) rots(f file) {
	rot(s.t, s.contentFile(f))
	clear(s.acks.offsets)
	s.become(f, rotten)
}

// deliveries: two files of the same bytes, one that comes with wrong bytes first, an empty one, one whose bytes are known
// already, and one that another device finishes after a restart.
func (s *story) deliveries() {
	one, two, bad, empty := s.file("0123456789"), s.file("0123456789"), s.file("as declared"), s.file("")
	for _, f := range []file{one, two} {
		url := s.reserve(f).Upload.URL
		s.send(url, 0, "0123")
		s.send(url, 4, "456789")
	}
	s.registers(one)
	s.registers(two)
	s.patch(s.reserve(bad).Upload.URL, 0, []byte("not as said")).refused(wire.CodeDigestMismatch)
	s.whole(bad)
	s.reserve(empty)
	s.registers(empty)
	taken := s.file("begun by one device, finished by another")
	url := s.reserve(taken).Upload.URL
	s.send(url, 0, "begun by")
	s.restart()
	known := s.file("0123456789")
	if a := s.reserve(known); a.Upload != nil {
		s.t.Errorf("bytes are asked for: %+v", a)
	}
	s.registers(known)
	s.token, s.second = s.second, s.token
	if again := s.reserve(taken); again.Upload.URL != url {
		s.t.Errorf("taken over: %+v", again)
	}
	s.send(url, 8, string(taken.bytes[8:]))
	s.registers(taken)
	s.token, s.second = s.second, s.token
}

// creations: clients open uploads by themselves, one of them ends its own and begins anew, one is cut off by a restart, and
// one is left alone for so long that it ends.
func (s *story) creations() {
	var url string
	begin := func(content string, as dialect) file {
		f := newCreated(content, as)
		s.files = append(s.files, f)
		url = s.create(f).location()
		s.take("created")
		s.send(url, 0, content[:4])
		return f
	}
	finish := func(f file) {
		s.send(url, 4, string(f.bytes[4:]))
		s.acks.receipts[f.id] = string(asJSON(s.t, decode[wire.Attachment](s.show(f).is(200)).Receipt))
		s.take("finished")
	}
	finish(begin("a digest declared", declared))
	one := begin("no digest declared", undeclared)
	s.restart()
	finish(one)
	begin("ended by its client", declared)
	delete(s.acks.offsets, url)
	s.delete(url).is(204)
	s.take("ended")
	begin("left alone", undeclared)
	clear(s.acks.offsets)
	s.now = s.now.Add(2 * s.server.limits.Expire)
	check(s.t, s.server.engine.Tidy(s.t.Context()))
	s.headed(url).is(410)
}

// lasting: one append is confirmed while it lasts; those behind it have checksums, first another one and then their own.
func (s *story) lasting() {
	f := s.file("again and again, then whole or not")
	url := s.reserve(f).Upload.URL
	confirmed := func(offset int64) {
		s.acks.offsets[url] = offset
		s.take("confirmed")
	}
	header := partial(0, false, wire.HeaderInteropVersion, "8")
	_, a, err := s.stream(call{method: http.MethodPatch, path: url, header: header}, time.Minute, confirmed, "again ", "and ag", "ain,")
	check(s.t, err)
	confirmed(a.is(204).offset())
	rest := f.bytes[a.offset():]
	for _, answer := range []struct {
		sum    string
		status int
	}{{checksum(f.bytes), 460}, {checksum(rest), 204}} {
		header := tusHeader(16, wire.HeaderUploadChecksum, answer.sum)
		if a := s.do(call{method: http.MethodPatch, path: url, header: header, body: rest}); a.status == 204 {
			s.acks.offsets[url] = a.offset()
		} else if a.status != answer.status {
			s.t.Errorf("%s: want %d", a, answer.status)
		}
		s.take("answered")
	}
	s.registers(f)
}

// expiry: sessions stand idle, and the oldest one makes room for another.
func (s *story) expiry() {
	var first string
	for _, content := range []string{"idle one", "idle two", "idle three"} {
		url := s.reserve(s.file(content)).Upload.URL
		s.send(url, 0, "idle")
		if first == "" {
			first = url
		}
		s.now = s.now.Add(time.Minute)
	}
	s.now = s.now.Add(store.IdleSession)
	delete(s.acks.offsets, first)
	s.whole(s.file("a fourth"))
	s.do(call{method: http.MethodHead, path: first, header: tusHeader(0)}).is(410)
}

// damage: a content rots that three attachments share, a reservation finds it after a restart, its device heals it.
func (s *story) damage() {
	one := s.files[0]
	s.rots(one)
	s.restart()
	healer := s.file(string(one.bytes))
	url := s.reserve(healer).Upload.URL
	s.become(one, found)
	s.restart()
	s.become(one, healing)
	s.send(url, 0, string(healer.bytes))
	s.registers(healer)
	s.become(one, sound)
}

// audits: an operator finds damage, the device sends half of its bytes, the operator brings a sound copy, which ends that.
func (s *story) audits() {
	bad := s.files[2]
	s.rots(bad)
	audit := func(want wire.AttachmentState) {
		if a, _, err := s.server.engine.Audit(s.t.Context(), "acme", bad.id); err != nil || a.State != want {
			s.t.Errorf("audit: %+v, %v", a, err)
		}
	}
	audit(wire.StateReserved)
	s.become(bad, found)
	url := s.reserve(bad).Upload.URL
	s.send(url, 0, "as")
	delete(s.acks.offsets, url)
	s.become(bad, healing)
	aside, disk := s.contentFile(bad)+".damaged", s.opts.FS
	rot(s.t, aside) // which makes it what it was
	check(s.t, errors.Join(disk.RenameNew(aside, s.contentFile(bad)), disk.SyncDir(filepath.Dir(aside))))
	audit(wire.StateRegistered)
	s.become(bad, sound)
}

// A crash at any operation, by a kill or by a power cut, takes back nothing that was acknowledged: no confirmed offset
// shrinks, no receipt changes or loses its content, no damage is forgotten, nothing incomplete shows, and every delivery can
// be finished.
func TestCrashAtEveryOperation(t *testing.T) {
	s := newStory(t)
	s.deliveries()
	s.creations()
	s.lasting()
	s.expiry()
	s.damage()
	s.audits()
	s.medium.at = nil
	s.close()
	t.Logf("%d crashes", len(s.taken))
	if len(s.taken) < 150 {
		t.Fatalf("only %d crashes", len(s.taken))
	}
	for _, crash := range s.taken {
		t.Run(crash.name, func(t *testing.T) {
			t.Parallel()
			checkCrash(t, crash, s)
		})
	}
}

// checkCrash starts a server on what a crash left and holds it to what was acknowledged.
func checkCrash(t *testing.T, crash snapshot, before *story) {
	r := &rig{t: t, dir: t.TempDir(), opts: before.opts, token: before.token, receipts: maps.Clone(crash.acks.receipts)}
	crash.files.write(t, r.dir)
	r.opts.Dir, r.opts.FS = r.dir, durable.OS()
	later := before.now.Add(2 * store.IdleSession)
	r.opts.Now = func() time.Time { return later }
	r.open()
	defer r.close()
	for url, want := range crash.acks.offsets {
		a := r.do(call{method: http.MethodHead, path: url, header: tusHeader(0)})
		if got := a.is(200).offset(); got < want {
			t.Errorf("offset %d was confirmed, now it is %d", want, got)
		}
	}
	listed := map[string]bool{}
	for _, id := range r.listed() {
		listed[id] = true
	}
	for _, f := range before.files {
		now := crash.acks.contents[f.facts.SHA256]
		got := r.do(call{method: http.MethodGet, path: f.path() + "/content"})
		if listed[f.id] != (got.status == 200) || got.status == 200 && string(got.body) != string(f.bytes) && now != rotten {
			t.Errorf("listed: %v, download: %s", listed[f.id], got)
		}
		if now == found && listed[f.id] {
			t.Errorf("the damage of %s is forgotten", f.id)
		}
		if _, acked := crash.acks.receipts[f.id]; acked && !listed[f.id] && now == sound {
			t.Errorf("receipt of %s is lost", f.id)
		}
	}
	for _, f := range before.files { // only now, since this heals others too; receipts must be the same
		r.finish(f)
	}
	r.nothingUnderWay()
}

// nothingUnderWay fails the test when a data file of an upload is left.
func (r *rig) nothingUnderWay() {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, "accounts", "acme", "uploads"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) != 0 {
		r.t.Errorf("data files are left: %v, %v", entries, err)
	}
}
