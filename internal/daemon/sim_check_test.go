package daemon

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// simSeen is what was confirmed of an attachment when it was last looked at.
type simSeen struct {
	session   attachment.Session
	confirmed int64
	delivered bool
}

// transition hears of every change on the device.
func (s *sim) transition(t queue.Transition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Event == attachment.EventLost {
		s.lost[t.ID] = true
	}
}

// arrived looks at a request of the device before the server does.
func (s *sim) arrived(r *http.Request) {
	id := attachment.ID(strings.TrimPrefix(r.URL.Path, "/v1/attachments/"))
	id, _, _ = cutID(id)
	s.mu.Lock()
	if session, ok := strings.CutPrefix(r.URL.Path, "/v1/uploads/"); ok {
		if id = s.sessions[session]; id == "" {
			id = s.device.owner(session)
			s.sessions[session] = id
		}
	}
	s.requests[id]++
	if r.Method == http.MethodPatch {
		r.Body = &counted{r.Body, s, id}
	}
	item, heldItem := s.held[id]
	all, heldAll := s.held[""]
	s.mu.Unlock()
	if id == "" || len(id) != 36 {
		return
	}
	if heldItem && time.Since(item) > simPatience || heldAll && time.Since(all) > simPatience {
		s.t.Errorf("%s %s arrived at %s, paused since %s or %s", r.Method, r.URL.Path, time.Now(), item, all)
	}
	s.early(r, id)
}

// counted counts bytes of an append as they arrive: a long one announces more than it ever sends at once.
type counted struct {
	io.ReadCloser
	s  *sim
	id attachment.ID
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.sent[c.id] += int64(n)
	return n, err
}

// simPatience is how long a request may be on its way after a pause: a second until it is noticed, and the link's latency.
const simPatience = 3 * time.Second

// early complains about a request that comes before it may: a reservation before its attachment may be tried again, or
// bytes from an offset that the device has not recorded. A person's retry has no wait worth speaking of, and may come
// while an attempt is under way.
func (s *sim) early(r *http.Request, id attachment.ID) {
	if s.device.disk.dead.Load() {
		return
	}
	e, err := s.device.session.queue.Get(id)
	if err != nil || e.Manifest == nil {
		return // the device just died
	}
	d := e.Manifest.Delivery
	switch r.Method {
	case http.MethodPut:
		if d.Wait > retrySpread && e.Claimed && time.Now().Before(d.NotBefore.Truncate(time.Millisecond)) {
			s.t.Errorf("%s is tried at %s, not before %s", id, time.Now(), d.NotBefore)
		}
	case http.MethodPatch:
		from, err := strconv.ParseInt(r.Header.Get(wire.HeaderUploadOffset), 10, 64)
		if strings.HasSuffix(r.URL.Path, "/"+d.Session.ID) && (err != nil || from > e.Confirmed) {
			s.t.Errorf("%s: bytes from %d are sent, recorded are %d (%v)", id, from, e.Confirmed, err)
		}
	}
}

func cutID(path attachment.ID) (id attachment.ID, rest string, found bool) {
	before, rest, found := strings.Cut(string(path), "/")
	return attachment.ID(before), rest, found
}

// look holds this moment against the promises. Nobody moves meanwhile.
func (s *sim) look(deep bool) {
	s.t.Helper()
	page, _, err := s.device.session.queue.List(queue.Query{Limit: queue.MaxPage})
	if err != nil {
		s.t.Fatalf("list: %v", err)
	}
	there := s.server.attachments()
	for _, e := range page {
		if e.Manifest == nil {
			s.t.Errorf("%s: %v", e.ID, e.Err)
			continue
		}
		s.lookAt(e, there[e.ID])
	}
	s.lookServer(page, there)
	if !deep {
		return
	}
	findings, err := s.device.session.queue.Check(s.ctx)
	if err != nil {
		s.t.Errorf("check: %v", err)
	}
	for _, f := range findings {
		s.t.Errorf("check: %s %s", f.ID, f.Detail)
	}
}

// lookAt checks one attachment: delivered only with a receipt of its bytes, payload in place, offset never ahead of the
// server's, never decreasing without a recorded loss.
func (s *sim) lookAt(e queue.Entry, there store.Attachment) {
	s.t.Helper()
	m := e.Manifest
	delivered := m.Condition() == attachment.ShownDelivered
	if delivered && (there.Receipt == nil || there.State != wire.StateRegistered || there.Receipt.Length != m.Length ||
		there.Receipt.SHA256 != m.SHA256.String()) {
		s.t.Errorf("%s is shown as delivered, the server has %+v", e.ID, there)
	}
	if _, found, err := s.device.session.spool.Locate(e.ID); err != nil || !found {
		s.t.Errorf("%s in state %s has no payload: %v", e.ID, m.State, err)
	}
	s.mu.Lock()
	lost := s.lost[e.ID]
	delete(s.lost, e.ID)
	if m.Delivery.Session.ID != "" {
		s.sessions[m.Delivery.Session.ID] = e.ID
	}
	s.mu.Unlock()
	last := s.seen[e.ID]
	s.seen[e.ID] = simSeen{m.Delivery.Session, e.Confirmed, delivered}
	if lost && !s.server.disk.wasHurt() {
		s.t.Errorf("%s: bytes were given up, and the server never lost any", e.ID)
	}
	if !lost && (e.Confirmed < last.confirmed || last.confirmed > 0 && m.Delivery.Session.ID != last.session.ID) {
		s.t.Errorf("%s: confirmed were %d in %+v, now %d in %+v, and no loss is recorded",
			e.ID, last.confirmed, last.session, e.Confirmed, m.Delivery.Session)
	}
	if last.delivered && !delivered {
		s.t.Errorf("%s was delivered and is %s", e.ID, m.Condition())
	}
	if e.Confirmed == 0 || m.Delivery.Session.ID == "" {
		return
	}
	text, gone := s.server.offset(m.Delivery.Session.ID)
	if gone && s.server.disk.wasHurt() {
		return // the server lost it, and the device will hear of it
	}
	if durable, err := strconv.ParseInt(text, 10, 64); gone || err != nil || e.Confirmed > durable {
		s.t.Errorf("%s: the device counts on %d bytes of session %s, the server has %q, gone %v",
			e.ID, e.Confirmed, m.Delivery.Session.ID, text, gone)
	}
}

// lookServer checks that the server has nothing that the device does not have, and one media item for one content.
func (s *sim) lookServer(page []queue.Entry, there map[attachment.ID]store.Attachment) {
	s.t.Helper()
	media := map[string]string{}
	for id, a := range there {
		i := slices.IndexFunc(page, func(e queue.Entry) bool { return e.ID == id })
		if i < 0 || page[i].Manifest.SHA256.String() != a.Facts.SHA256 || page[i].Manifest.Length != a.Facts.Length {
			s.t.Errorf("the server has %s as %+v, the device does not", id, a.Facts)
		}
		if known, ok := media[a.Facts.SHA256]; ok && known != a.MediaID {
			s.t.Errorf("content %s is media item %s and %s", a.Facts.SHA256, known, a.MediaID)
		}
		media[a.Facts.SHA256] = a.MediaID
	}
}

// simBound is within what time everything must be delivered when the faults have ended: the longest wait of the schedule,
// once for the channel and once for the attachment, and some for the transfers.
const simBound = 3 * time.Hour

// finish waits until everything is delivered and then checks that all of it is there, once.
func (s *sim) finish() {
	end := time.Now().Add(simBound)
	for !s.settled() {
		if time.Now().After(end) {
			s.t.Errorf("not everything is delivered %s after the faults ended: %s", simBound, s.open())
			return
		}
		s.advance(time.Minute)
		s.attend()
	}
	s.look(true)
	there := s.server.attachments()
	page, _, err := s.device.session.queue.List(queue.Query{Limit: queue.MaxPage})
	must(s.t, err)
	for _, f := range s.files {
		var of []queue.Entry
		for _, e := range page {
			if e.Manifest.Filename.Text == f.name {
				of = append(of, e)
			}
		}
		if len(of) != 1 || of[0].Manifest.SHA256 != f.digest || there[of[0].ID].State != wire.StateRegistered {
			s.t.Errorf("%s has %d attachments: %+v", f.name, len(of), of)
		}
	}
	for id := range there {
		found, err := s.server.srv.Admin().VerifyAttachment(s.ctx, simAccount, string(id))
		if err != nil || !found.Sound {
			s.t.Errorf("%s is not stored soundly: %+v, %v", id, found, err)
		}
	}
	if left := s.device.candidates(); len(left) > 0 && s.device.cfg.Watch["camera"].Adopt == config.AdoptMove {
		s.t.Errorf("left in the capture directory: %+v", left)
	}
}

// attend is the person whom attention asks for.
func (s *sim) attend() {
	page, _, err := s.device.session.queue.List(queue.Query{Condition: attachment.ShownAttention, Limit: queue.MaxPage})
	must(s.t, err)
	for _, e := range page {
		if s.half(e) {
			continue
		}
		s.note("%s needs attention: %+v", e.ID, e.Manifest.Problem)
		_, err := s.device.session.Retry(s.ctx, simPerson, control.Action{IDs: []attachment.ID{e.ID}})
		must(s.t, err)
	}
	synctest.Wait()
}

// settled reports whether nothing is owed and nothing waits to be taken.
func (s *sim) settled() bool {
	counts, err := s.device.session.queue.Counts()
	must(s.t, err)
	delivered := counts[attachment.ShownDelivered].Items
	owed := int64(0)
	for condition, n := range counts {
		if condition.Owed() {
			owed += n.Items
		}
	}
	page, _, err := s.device.session.queue.List(queue.Query{Condition: attachment.ShownAttention, Limit: queue.MaxPage})
	must(s.t, err)
	for _, e := range page {
		if s.half(e) {
			owed--
		}
	}
	return owed == 0 && delivered >= int64(len(s.files))
}

// half reports whether this is what arrived of a submission before the device died. Nobody was told that it was taken; it is
// kept for a person to look at, and never sent as if it were the whole.
func (s *sim) half(e queue.Entry) bool {
	m := e.Manifest
	if m.Problem == nil || m.Problem.Code != attachment.NeedsDamagedEarly {
		return false
	}
	if m.Custody != attachment.CustodySubmit || slices.ContainsFunc(s.files, func(f simFile) bool { return f.name == m.Filename.Text }) {
		s.t.Errorf("%s was promised and is damaged: %+v", m.Filename.Text, m)
	}
	return true
}

// open says what is owed.
func (s *sim) open() string {
	page, _, err := s.device.session.queue.List(queue.Query{Limit: queue.MaxPage})
	must(s.t, err)
	var b strings.Builder
	for _, e := range page {
		if m := e.Manifest; m.Condition() != attachment.ShownDelivered {
			b.WriteString("\n" + string(e.ID) + " " + m.Filename.Text + " " + string(m.State) + " claimed " +
				strconv.FormatBool(e.Claimed) + " not before " + m.Delivery.NotBefore.String())
		}
	}
	for _, c := range s.device.candidates() {
		b.WriteString("\nnot taken: " + c.RelPath)
	}
	return b.String()
}

// simLog keeps the end of what was logged.
type simLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const simLogKept = 64 << 10

func (l *simLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Contains(p, []byte("abort Handler")) {
		return len(p), nil // how the server's end looks from inside
	}
	if l.buf.Len() > 2*simLogKept {
		l.buf.Next(simLogKept)
	}
	return l.buf.Write(p)
}

func (l *simLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.buf.Bytes()
	return string(all[max(0, len(all)-12_000):])
}
