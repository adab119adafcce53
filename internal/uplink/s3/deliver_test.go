package s3_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/s3"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

// delivery is a device's side of one attachment.
type delivery struct {
	m       *attachment.Manifest
	content []byte
	payload *uplinktest.Payload
	rec     *uplinktest.Recorder
	gate    *uplinktest.Gate
}

func newDelivery(t *testing.T, content []byte) *delivery {
	m := uplinktest.NewManifest(t, content)
	return &delivery{m, content, uplinktest.NewPayload(t, content), uplinktest.NewRecorder(m), &uplinktest.Gate{}}
}

// by delivers from what is recorded, and demands that nothing happened that must not.
func (d *delivery) by(t *testing.T, driver *s3.Driver, chunk int64) error {
	t.Helper()
	up, err := uplink.New(uplink.Options{Driver: driver, ChunkMax: chunk, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m, confirmed := d.rec.Manifest(d.m)
	err = up.Deliver(t.Context(), m, confirmed, d.payload, d.gate, d.rec)
	for _, broken := range uplinktest.Broken(d.rec, d.payload) {
		t.Error(broken)
	}
	return err
}

func (d *delivery) mustArrive(t *testing.T, driver *s3.Driver, chunk int64, grade receipt.Grade) {
	t.Helper()
	if err := d.by(t, driver, chunk); err != nil {
		t.Fatal(err)
	}
	if r := d.rec.Seen().Receipt; r == nil || r.Grade != grade || r.SHA256 != d.m.SHA256.String() {
		t.Fatalf("receipt %+v, want %s", r, grade)
	}
}

// mustFail delivers and returns what it failed with.
func (d *delivery) mustFail(t *testing.T, driver *s3.Driver, chunk int64) *remote.Error {
	t.Helper()
	e, ok := errors.AsType[*remote.Error](d.by(t, driver, chunk))
	if !ok {
		t.Fatalf("it did not fail as it must: %+v", d.rec.Seen())
	}
	return e
}

// inMemory makes a driver of a handler, whose parts may be small.
func inMemory(t *testing.T, h http.Handler, change ...func(*s3.Options)) *s3.Driver {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	s := &store{endpoint: web.URL}
	d := s.driver(t, append([]func(*s3.Options){func(o *s3.Options) { o.Part = small }}, change...)...)
	d.SetFloor(1)
	return d
}

// A large file goes in parts; after an interruption another process goes on behind the last part that arrived, and the object
// is what was captured.
func TestInParts(t *testing.T) {
	s := startStore(t)
	const part = s3.MinPart
	d := newDelivery(t, uplinktest.Content(7, 3*part-1000))
	d.rec.OnCommit(func(offset int64) {
		if offset == part {
			d.gate.Hold(&uplink.Held{Code: attachment.HoldPaused}, 0)
		}
	})
	if held, ok := errors.AsType[*uplink.Held](d.by(t, s.driver(t), part)); !ok {
		t.Fatalf("not held: %v", held)
	}
	first := d.rec.Seen()
	if first.Confirmed != part || strings.Contains(first.Session.URL, secretKey) {
		t.Fatalf("recorded %+v", first)
	}
	d.gate.Hold(nil, 0)
	d.rec.OnCommit(nil)
	d.mustArrive(t, s.driver(t), part, receipt.VerifiedDigest)
	seen := d.rec.Seen()
	if seen.Moved != d.m.Length || seen.Losses != 0 || seen.Session != first.Session {
		t.Errorf("%d bytes sent of %d, %d losses, session %+v after %+v", seen.Moved, d.m.Length, seen.Losses, seen.Session, first.Session)
	}
	if !bytes.Equal(s.object(t, seen.Receipt.MediaID), d.content) {
		t.Error("the store has other bytes")
	}
	if v, err := s.driver(t).Verify(t.Context(), d.m, seen.Session); err != nil || v.SHA256 != d.m.SHA256.String() {
		t.Errorf("read back: %+v, %v", v, err)
	}
}

func (s *store) object(t *testing.T, key string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, bucket, filepath.FromSlash(key)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What stands under the key is never replaced: the same bytes are delivered, others need a person.
func TestNothingIsReplaced(t *testing.T) {
	s := startStore(t)
	for name, size := range map[string]int{"whole": 100, "in parts": s3.MinPart + 100} {
		t.Run(name, func(t *testing.T) {
			d := newDelivery(t, uplinktest.Content(1, size))
			d.mustArrive(t, s.driver(t), s3.MinPart, receipt.VerifiedDigest)
			again := newDelivery(t, d.content)
			again.m.ID = d.m.ID
			again.mustArrive(t, s.driver(t), s3.MinPart, receipt.VerifiedDigest)
			for _, other := range []int{size, size + 1} {
				x := newDelivery(t, uplinktest.Content(2, other))
				x.m.ID = d.m.ID
				if e := x.mustFail(t, s.driver(t), s3.MinPart); e.Reason != attachment.NeedsIdentityConflict || e.Class != remote.ItemPermanent {
					t.Errorf("%d other bytes: %v", other, e)
				}
			}
			if !bytes.Equal(s.object(t, d.rec.Seen().Receipt.MediaID), d.content) {
				t.Error("the object was replaced")
			}
		})
	}
}

// Keys that are refused and a bucket that is not there hold the channel, and no error holds a key.
func TestRefusedByTheStore(t *testing.T) {
	s := startStore(t)
	for name, c := range map[string]struct {
		keys, bucket string
		reason       attachment.Code
	}{
		"wrong secret": {"access_key_id=" + accessKey + "\nsecret_access_key=not-the-secret-of-it", bucket, attachment.HoldCredentials},
		"unknown key":  {"access_key_id=NOBODYSACCESSKEY\nsecret_access_key=not-the-secret-of-it", bucket, attachment.HoldCredentials},
		"no keys":      {"not-the-secret-of-it", bucket, attachment.HoldCredentialUnusable},
		"no bucket":    {keys, "nowhere", attachment.HoldServerError},
	} {
		t.Run(name, func(t *testing.T) {
			credential := &uplinktest.Credential{}
			credential.Set(c.keys, nil, false)
			driver, client := s.with(t, credential, func(o *s3.Options) { o.Store.Bucket = c.bucket })
			for _, size := range []int{100, s3.MinPart + 100} {
				e := newDelivery(t, uplinktest.Content(1, size)).mustFail(t, driver, s3.MinPart)
				if e.Class != remote.ChannelOperator || e.Reason != c.reason || strings.Contains(e.Error(), "not-the-secret") {
					t.Errorf("%d bytes: class %s, reason %s: %v", size, e.Class, e.Reason, e)
				}
			}
			if err := client.Probe(t.Context()); remote.ClassOf(err) != remote.ChannelOperator {
				t.Errorf("probe: %v", err)
			}
			credential.Set(keys, nil, c.reason == attachment.HoldCredentials)
			if c.bucket != bucket {
				return
			}
			newDelivery(t, uplinktest.Content(1, 100)).mustArrive(t, driver, s3.MinPart, receipt.VerifiedDigest)
			if err := client.Probe(t.Context()); err != nil {
				t.Errorf("probe with the right keys: %v", err)
			}
		})
	}
}

// A session stands while the store refuses the keys, also where the store answers that it does not know them.
func TestSessionOutlivesRefusedKeys(t *testing.T) {
	s := startStore(t)
	const part = s3.MinPart
	d := newDelivery(t, uplinktest.Content(7, 3*part-1000))
	credential := &uplinktest.Credential{}
	credential.Set(keys, nil, false)
	driver, _ := s.with(t, credential)
	d.rec.OnCommit(func(offset int64) {
		if offset == part {
			credential.Set("access_key_id=NOBODYSACCESSKEY\nsecret_access_key=not-the-secret-of-it", nil, false)
		}
	})
	for range 2 {
		if e := d.mustFail(t, driver, part); e.Reason != attachment.HoldCredentials || e.Class != remote.ChannelOperator {
			t.Fatalf("class %s: %v", e.Class, e)
		}
	}
	d.rec.OnCommit(nil)
	credential.Set(keys, nil, false)
	d.mustArrive(t, driver, part, receipt.VerifiedDigest)
	if seen := d.rec.Seen(); seen.Losses != 0 || seen.Moved > d.m.Length+part {
		t.Errorf("%d losses, %d bytes sent of %d", seen.Losses, seen.Moved, d.m.Length)
	}
}

// A device whose clock is wrong learns the store's from its answers.
func TestOtherClock(t *testing.T) {
	f := newFake()
	f.ahead = 26 * time.Hour
	for _, size := range []int{100, 3 * small} {
		newDelivery(t, uplinktest.Content(1, size)).mustArrive(t, inMemory(t, f), small, receipt.VerifiedDigest)
	}
}

// A store that tells no digests has its objects read back, and where that is not wanted only the length counts.
func TestStoreWithoutDigests(t *testing.T) {
	for _, size := range []int{0, 100, 3*small + 7} {
		f := newFake()
		f.dumb = true
		d := newDelivery(t, uplinktest.Content(1, size))
		d.mustArrive(t, inMemory(t, f), small, receipt.VerifiedDigest)
		again := newDelivery(t, uplinktest.Content(1, size))
		lengthOnly := func(o *s3.Options) { o.LengthOnly = true }
		again.mustArrive(t, inMemory(t, f, lengthOnly), small, receipt.LengthOnly)
		other := newDelivery(t, uplinktest.Content(2, size))
		other.m.ID = d.m.ID
		if size > 0 {
			if e := other.mustFail(t, inMemory(t, f, lengthOnly), small); e.Reason != attachment.NeedsIdentityConflict {
				t.Errorf("%d other bytes: %v", size, e)
			}
		}
	}
}

// An object in parts that are not those of the payload is not taken for it.
func TestOtherBytesInParts(t *testing.T) {
	f := newFake()
	d := newDelivery(t, uplinktest.Content(1, 3*small))
	driver := inMemory(t, f)
	res, err := driver.Reserve(t.Context(), d.m, attachment.Session{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.rec.SessionOpened(t.Context(), res.Session, res.MediaID, 0); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	for _, u := range f.uploads {
		u.parts[1], u.parts[2] = uplinktest.Content(2, small), d.content[small:2*small]
	}
	f.mu.Unlock()
	if e := d.mustFail(t, driver, small); e.Reason != attachment.NeedsIdentityConflict {
		t.Errorf("got %v", e)
	}
	if d.rec.Seen().Verified {
		t.Error("other bytes are verified")
	}
}

// Parts count from the first on, as far as there is no gap and each has its size.
func TestPartsWithGap(t *testing.T) {
	f := newFake()
	d := newDelivery(t, uplinktest.Content(1, 6*small))
	driver := inMemory(t, f)
	res, err := driver.Reserve(t.Context(), d.m, attachment.Session{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(parts map[int][]byte) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, u := range f.uploads {
			u.parts = parts
		}
	}
	one := func(n int) []byte { return d.content[(n-1)*small : n*small] }
	for _, c := range []struct {
		parts map[int][]byte
		want  int64
	}{
		{map[int][]byte{}, 0},
		{map[int][]byte{2: one(2)}, 0},
		{map[int][]byte{1: one(1), 3: one(3)}, small},
		{map[int][]byte{1: one(1), 2: one(2)[1:], 3: one(3)}, small},
		{map[int][]byte{1: one(1), 2: one(2), 3: one(3)}, 3 * small},
	} {
		set(c.parts)
		if at, err := driver.Offset(t.Context(), d.m, res.Session); err != nil || at != c.want {
			t.Errorf("%d parts: offset %d, %v; want %d", len(c.parts), at, err, c.want)
		}
	}
	if err := d.rec.SessionOpened(t.Context(), res.Session, res.MediaID, 0); err != nil {
		t.Fatal(err)
	}
	d.mustArrive(t, driver, small, receipt.VerifiedDigest)
	if moved := d.rec.Seen().Moved; moved != 3*small {
		t.Errorf("%d bytes sent, want 3 parts", moved)
	}
}

// Uploads that nobody knows of any more end once the object is there, and only those of its key.
func TestOrphansEnd(t *testing.T) {
	f := newFake()
	d, stranger := newDelivery(t, uplinktest.Content(1, 3*small)), newDelivery(t, uplinktest.Content(2, 3*small))
	driver := inMemory(t, f)
	for _, m := range []*attachment.Manifest{d.m, d.m, stranger.m} {
		if _, err := driver.Reserve(t.Context(), m, attachment.Session{}); err != nil {
			t.Fatal(err)
		}
	}
	d.mustArrive(t, driver, small, receipt.VerifiedDigest)
	if n := f.left(); n != 1 {
		t.Errorf("%d uploads are left, want the stranger's", n)
	}
	stranger.mustArrive(t, driver, small, receipt.VerifiedDigest)
	if n := f.left(); n != 0 {
		t.Errorf("%d uploads are left", n)
	}
}

// An upload that somebody ended, as lifecycle rules do, begins anew; so does one of another driver.
func TestUploadThatIsGone(t *testing.T) {
	f := newFake()
	d := newDelivery(t, uplinktest.Content(1, 3*small))
	driver := inMemory(t, f)
	res, err := driver.Reserve(t.Context(), d.m, attachment.Session{})
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Cancel(t.Context(), res.Session); err != nil {
		t.Fatal(err)
	}
	for _, s := range []attachment.Session{res.Session, {ID: "7", URL: "https://127.0.0.1/v1/uploads/7", Generation: 1}} {
		d := newDelivery(t, d.content)
		if err := d.rec.SessionOpened(t.Context(), s, "", 0); err != nil {
			t.Fatal(err)
		}
		d.mustArrive(t, driver, small, receipt.VerifiedDigest)
		if seen := d.rec.Seen(); seen.Session == s {
			t.Errorf("still session %+v", seen.Session)
		}
	}
}

// The key stays what it was when the session began.
func TestKeyStays(t *testing.T) {
	f := newFake()
	d := newDelivery(t, uplinktest.Content(1, 3*small))
	driver := inMemory(t, f)
	res, err := driver.Reserve(t.Context(), d.m, attachment.Session{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.rec.SessionOpened(t.Context(), res.Session, res.MediaID, 0); err != nil {
		t.Fatal(err)
	}
	d.m.Parent.ServerID = "rec-99"
	d.mustArrive(t, driver, small, receipt.VerifiedDigest)
	if got := d.rec.Seen().Receipt.MediaID; got != res.MediaID || !strings.Contains(got, "/inspection-7/") {
		t.Errorf("object %s, the session began with %s", got, res.MediaID)
	}
}
