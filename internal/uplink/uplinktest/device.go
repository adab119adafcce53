package uplinktest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// Content returns n bytes that a seed decides.
func Content(seed uint64, n int) []byte {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	data := make([]byte, n)
	if _, err := rand.NewChaCha8(key).Read(data); err != nil { // never fails, math/rand/v2
		return nil
	}
	return data
}

// NewManifest describes content as adopted and ready to send.
func NewManifest(t testing.TB, content []byte) *attachment.Manifest {
	t.Helper()
	id, err := attachment.NewID()
	if err != nil {
		t.Fatal(err)
	}
	h := attachment.NewHasher()
	if _, err := h.Write(content); err != nil {
		t.Fatal(err)
	}
	sum := h.Sum()
	return &attachment.Manifest{
		Version: attachment.ManifestVersion, ID: id, State: attachment.Ready, Filename: attachment.NameOf("boiler room.jpg"),
		Parent:    attachment.Parent{LocalID: attachment.NameOf("inspection-7")},
		MediaType: "image/jpeg", Length: sum.Length, HashAlgorithm: attachment.HashAlgorithm, SHA256: sum.SHA256,
		CapturedAt: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), Role: attachment.RoleOriginal, Prepared: true,
	}
}

// Payload is content in memory. It demands that bytes are checked before they are read for sending.
type Payload struct {
	mu       sync.Mutex
	data     []byte
	segments []attachment.Digest
	missing  bool
	unread   error
	from, to int64 // the range checked last
	checked  int64
	broken   []string
}

// NewPayload records the digests of content and keeps a copy.
func NewPayload(t testing.TB, content []byte) *Payload {
	t.Helper()
	h := attachment.NewHasher()
	if _, err := h.Write(content); err != nil {
		t.Fatal(err)
	}
	return &Payload{data: append([]byte(nil), content...), segments: h.Sum().Segments}
}

// Damage changes one byte.
func (p *Payload) Damage(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data[at] ^= 1
}

// Remove takes the file away.
func (p *Payload) Remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missing = true
}

// FailReads makes reading for sending fail; nil ends it.
func (p *Payload) FailReads(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unread = err
}

// Checked is how many bytes Check was asked for.
func (p *Payload) Checked() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checked
}

// Check implements uplink.Payload.
func (p *Payload) Check(ctx context.Context, off, n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.missing {
		return fmt.Errorf("check payload: %w", uplink.ErrPayloadMissing)
	}
	for i := off / attachment.SegmentSize; i*attachment.SegmentSize < off+n; i++ {
		begin := i * attachment.SegmentSize
		h := attachment.NewHasher()
		if _, err := h.Write(p.data[begin:min(begin+attachment.SegmentSize, int64(len(p.data)))]); err != nil {
			return err
		}
		if h.Sum().SHA256 != p.segments[i] {
			return fmt.Errorf("check segment %d: %w", i, uplink.ErrPayloadChanged)
		}
	}
	p.from, p.to = off, off+n
	p.checked += n
	return ctx.Err()
}

// ReadAt implements io.ReaderAt.
func (p *Payload) ReadAt(b []byte, off int64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unread != nil {
		return 0, p.unread
	}
	if off < p.from || off+int64(len(b)) > p.to {
		p.broken = append(p.broken, fmt.Sprintf("bytes %d to %d were read and %d to %d are checked", off, off+int64(len(b)), p.from, p.to))
	}
	n := copy(b, p.data[min(off, int64(len(p.data))):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// Recorder keeps what it is told, and notes what must not happen.
type Recorder struct {
	mu        sync.Mutex
	session   attachment.Session
	mediaID   string
	confirmed int64
	length    int64
	verified  bool
	receipt   *receipt.Receipt
	lost      []attachment.Code
	opened    int
	moved     int64
	errs      map[string]error
	broken    []string
	onCommit  func(offset int64)
}

// NewRecorder begins from what the manifest says.
func NewRecorder(m *attachment.Manifest) *Recorder {
	return &Recorder{
		session: m.Delivery.Session, mediaID: m.Delivery.MediaID, verified: m.Delivery.Verified, length: m.Length,
		errs: map[string]error{},
	}
}

// Manifest writes what was recorded into a copy of m, as the queue does; the offset is for the next delivery.
func (r *Recorder) Manifest(m *attachment.Manifest) (*attachment.Manifest, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := m.Clone()
	c.Delivery.Session, c.Delivery.MediaID, c.Delivery.Verified = r.session, r.mediaID, r.verified
	if r.verified {
		c.State = attachment.Uploaded
	}
	return c, r.confirmed
}

// Fail makes the named method fail.
func (r *Recorder) Fail(method string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[method] = err
}

// OnCommit has f called at each confirmed offset, after it is recorded.
func (r *Recorder) OnCommit(f func(offset int64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onCommit = f
}

func (r *Recorder) must(ok bool, format string, args ...any) {
	if !ok {
		r.broken = append(r.broken, fmt.Sprintf(format, args...))
	}
}

// SessionOpened implements uplink.Recorder.
func (r *Recorder) SessionOpened(_ context.Context, s attachment.Session, mediaID string, offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.must(!r.verified, "session opened for verified bytes")
	r.must(offset >= r.confirmed, "session opened at %d, confirmed are %d", offset, r.confirmed)
	r.must(s == r.session || r.confirmed == 0, "another session with %d bytes confirmed", r.confirmed)
	if err := r.errs["SessionOpened"]; err != nil {
		return err
	}
	r.session, r.mediaID, r.confirmed = s, mediaID, offset
	r.opened++
	if r.onCommit != nil {
		r.onCommit(offset)
	}
	return nil
}

// Committed implements uplink.Recorder.
func (r *Recorder) Committed(_ context.Context, s attachment.Session, offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.must(s == r.session && r.opened > 0, "offset of session %s, open is %s", s.ID, r.session.ID)
	r.must(offset > r.confirmed && offset <= r.length, "offset %d after %d of %d", offset, r.confirmed, r.length)
	if err := r.errs["Committed"]; err != nil {
		return err
	}
	r.confirmed = offset
	if r.onCommit != nil {
		r.onCommit(offset)
	}
	return nil
}

// Lost implements uplink.Recorder.
func (r *Recorder) Lost(_ context.Context, reason attachment.Code, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.errs["Lost"]; err != nil {
		return err
	}
	r.session, r.confirmed, r.verified = attachment.Session{}, 0, false
	r.lost = append(r.lost, reason)
	return nil
}

// Verified implements uplink.Recorder.
func (r *Recorder) Verified(_ context.Context, mediaID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.errs["Verified"]; err != nil {
		return err
	}
	r.mediaID, r.verified = mediaID, true
	return nil
}

// Registered implements uplink.Recorder.
func (r *Recorder) Registered(_ context.Context, got receipt.Receipt) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.must(r.verified, "registered and not verified")
	if err := r.errs["Registered"]; err != nil {
		return err
	}
	r.receipt = &got
	return nil
}

// Moved implements uplink.Recorder.
func (r *Recorder) Moved(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved += n
}

// Seen is what a Recorder was told.
type Seen struct {
	Session   attachment.Session
	Confirmed int64
	Verified  bool
	Receipt   *receipt.Receipt
	Losses    int
	Opened    int
	Moved     int64
}

// Seen returns what was recorded.
func (r *Recorder) Seen() Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Seen{r.session, r.confirmed, r.verified, r.receipt, len(r.lost), r.opened, r.moved}
}

// Broken lists what happened and must not happen.
func Broken(r *Recorder, p *Payload) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(append([]string(nil), r.broken...), p.broken...)
}

// Gate is open until it is told to hold.
type Gate struct {
	mu    sync.Mutex
	held  *uplink.Held
	asked int
	after int
}

// Hold closes the gate after it was asked so many more times; 0 at once. nil opens it.
func (g *Gate) Hold(h *uplink.Held, after int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held, g.after = h, g.asked+after
}

// Asked is how often the gate was asked.
func (g *Gate) Asked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// MaySend implements uplink.Gate.
func (g *Gate) MaySend(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if g.held != nil && g.asked > g.after {
		return g.held
	}
	return nil
}
