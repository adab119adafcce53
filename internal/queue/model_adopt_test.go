package queue

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// counts computes items and bytes by condition of those that keep says.
func (w *world) counts(keep func(*item) bool) map[attachment.Condition]Count {
	counts := map[attachment.Condition]Count{}
	for _, it := range w.items {
		if keep(it) {
			n := counts[it.m.Condition()]
			n.add(1, it.m.Length)
			counts[it.m.Condition()] = n
		}
	}
	return counts
}

func (w *world) parents() []string {
	names := map[string]bool{}
	for _, it := range w.items {
		names[it.m.Parent.LocalID.Exact()] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// step does one random thing to both.
func (w *world) step() {
	kind := w.rnd.IntN(100)
	switch {
	case kind < 10 && len(w.order) < maxItems || len(w.order) == 0:
		w.adopt()
	case kind < 24:
		w.claim()
	case kind < 78:
		w.change()
	case kind < 84:
		w.adoptionsUnderWay()
	case kind < 88:
		w.channelWide()
	case kind < 94:
		<-time.After(w.duration())
		w.note("it is %s", w.now())
	case kind < 97:
		w.setClock()
	default:
		w.crash()
	}
}

// maxItems keeps a history's attachments few, so that much happens to each of them.
const maxItems = 25

// duration is from a millisecond to a day, short ones more often.
func (w *world) duration() time.Duration {
	return time.Duration(1+w.rnd.Int64N(1000)) * time.Duration([]int64{1e3, 1e6, 1e6, 1e8, 86_400_000}[w.rnd.IntN(5)])
}

func (w *world) setClock() {
	w.skew = []time.Duration{0, -10 * time.Minute, 30 * time.Minute, -35 * 8766 * time.Hour, 9000 * time.Hour}[w.rnd.IntN(5)]
	w.note("the clock is set to %s", w.now())
	if err := w.q.ClampWaits(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.clamp()
}

// pick is an attachment, mostly one that exists.
func (w *world) pick() attachment.ID {
	if w.rnd.IntN(40) == 0 {
		return w.newID()
	}
	return w.order[w.rnd.IntN(len(w.order))]
}

// newID is a version 7 UUID that the seed decides.
func (w *world) newID() attachment.ID {
	a, b := w.rnd.Uint64(), w.rnd.Uint64()
	return attachment.ID(fmt.Sprintf("%08x-%04x-7%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, 0x8000|b>>50&0x3fff, b&0xffff_ffff_ffff))
}

var modelParents = []string{"", "insp", "insp-7", "insp-7/a", "\xff\xfe"}

func (w *world) manifest() (attachment.Manifest, []attachment.Digest) {
	m := attachment.Manifest{
		Version: 1, ID: w.newID(), Filename: attachment.NameOf(fmt.Sprintf("f-%d.jpg", w.rnd.IntN(1000))), MediaType: "image/jpeg",
		Length: w.rnd.Int64N(3*attachment.SegmentSize) * int64(w.rnd.IntN(3)) / 2, HashAlgorithm: attachment.HashAlgorithm,
		AdoptedAt: w.now(), Role: attachment.RoleOriginal, Structure: attachment.StructureUnchecked,
		Custody: []attachment.Custody{attachment.CustodyMove, attachment.CustodyCopy, attachment.CustodySubmit}[w.rnd.IntN(3)],
	}
	m.SHA256[5] = byte(w.rnd.IntN(2)) // few contents, so that they repeat
	if w.rnd.IntN(3) == 0 {
		m.Priority = w.rnd.IntN(attachment.MaxPriority + 1)
	}
	if p := modelParents[w.rnd.IntN(len(modelParents))]; p != "" {
		m.Parent.LocalID = attachment.NameOf(p)
	}
	if m.Custody != attachment.CustodySubmit {
		m.Source.Watch, m.Source.RelPath = "card", attachment.NameOf(fmt.Sprintf("r-%d", w.rnd.IntN(20)))
		m.Source.Identity.Size = m.Length
		m.Source.Identity.Device, m.Source.Identity.Inode = w.rnd.Uint64N(2), w.rnd.Uint64N(9)
		m.Source.Medium = []string{"", "uuid:1"}[w.rnd.IntN(2)]
		m.Source.ReleasePending = m.Custody == attachment.CustodyCopy && w.rnd.IntN(2) == 0
	}
	if m.Source.Watch != "" && w.rnd.IntN(2) == 0 {
		m.Parent = attachment.Parent{}
		m.Binding = attachment.Binding{Rule: attachment.BindSidecar, Wait: time.Minute, Until: w.now().Add(time.Minute)}
	}
	segments := make([]attachment.Digest, attachment.SegmentCount(m.Length))
	for i := range segments {
		segments[i][0] = byte(w.rnd.Uint32())
	}
	return m, segments
}

// adopt commits up to three attachments in one transaction; now and then one of them is refused, and then all are.
func (w *world) adopt() {
	submission := ""
	if w.rnd.IntN(3) == 0 {
		submission = fmt.Sprintf("sub-%d", w.rnd.IntN(50))
	}
	var (
		adoptions []Adoption
		ids       []attachment.ID
		refused   bool
	)
	for range 1 + w.rnd.IntN(3) {
		m, segments := w.manifest()
		a := Adoption{Manifest: m, Segments: segments, By: []string{"", "uid 7"}[w.rnd.IntN(2)]}
		switch w.rnd.IntN(20) {
		case 0:
			a.Manifest.Filename, refused = attachment.Name{}, true
		case 1, 2:
			a.Problem = &attachment.Problem{Code: attachment.NeedsDamagedEarly, Detail: "torn"}
		case 3:
			if len(w.order) > 0 {
				a.Manifest.ID = w.order[w.rnd.IntN(len(w.order))] // known already
			}
		case 4:
			for id := range w.intakes {
				a.Manifest.ID = id
				break
			}
		}
		if slices.Contains(ids, a.Manifest.ID) {
			continue
		}
		adoptions, ids = append(adoptions, a), append(ids, a.Manifest.ID)
	}
	w.note("adopt %v refused %v", ids, refused)
	var err error
	if submission != "" {
		err = w.q.Submit(w.t.Context(), submission, adoptions)
	} else {
		err = w.q.Adopt(w.t.Context(), adoptions...)
	}
	if (err != nil) != refused || refused && !errors.Is(err, attachment.ErrBadManifest) {
		w.t.Errorf("adopt: %v, to be refused: %v", err, refused)
	}
	if !refused {
		for _, a := range adoptions {
			w.adopted(a)
		}
		if submission != "" {
			w.submissions[submission] = ids
		}
	}
	for _, id := range ids {
		if w.items[id] != nil {
			w.compareOne(id)
		} else if _, err := w.q.Get(id); !errors.Is(err, ErrNotFound) {
			w.t.Errorf("%s was refused and is there: %v", id, err)
		}
	}
}

func (w *world) adopted(a Adoption) {
	id := a.Manifest.ID
	delete(w.intakes, id)
	if w.items[id] != nil {
		return
	}
	it := &item{m: *a.Manifest.Clone(), segments: a.Segments}
	it.m.State = attachment.Captured
	it.m.Repeats = w.firstAlike(&it.m)
	w.items[id], w.order = it, append(w.order, id)
	w.row(it, attachment.EventAdopted, attachment.Absent, attachment.Captured, "", string(it.m.Custody), a.By)
	it.m.Seq = w.rows
	switch s := SightingOf(it.m.Source); it.m.Custody {
	case attachment.CustodyCopy:
		w.ledger[rowOf(s)] = Known{id, s.Identity.Device, s.Identity.Inode, s.ChangedNS}
	case attachment.CustodyMove:
		delete(w.ledger, rowOf(s))
	}
	var err error
	if a.Problem != nil {
		err = w.apply(id, attachment.EventAttention, a.Problem.Code, a.Problem.Detail, "", func(m *attachment.Manifest) {
			m.Prepared = m.Binding.Rule != attachment.BindSidecar
		})
	} else if it.m.Binding.Rule != attachment.BindSidecar {
		err = w.apply(id, attachment.EventPrepared, "", "", "", prepared)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// prepared: nothing else is awaited. It holds for what goes to attention at once, too: a person's retry must send it.
func prepared(m *attachment.Manifest) { m.Prepared = true }

// rowOf is what the ledger tells sightings apart by.
func rowOf(s Sighting) Sighting {
	s.Identity.Device, s.Identity.Inode = 0, 0
	return s
}

// forget drops what a path is known as, where that is one attachment.
func (w *world) forget(watch, relPath string, id attachment.ID) {
	maps.DeleteFunc(w.ledger, func(s Sighting, k Known) bool { return s.Watch == watch && s.RelPath == relPath && k.ID == id })
}

// alike lists the attachments that the bytes of one may stand for.
func (w *world) alike(m *attachment.Manifest) (ids []attachment.ID) {
	for _, id := range w.order {
		o := &w.items[id].m
		if o.Source.Watch != "" && o.Source.Watch == m.Source.Watch && o.Parent.LocalID.Exact() == m.Parent.LocalID.Exact() &&
			o.Length == m.Length && o.SHA256 == m.SHA256 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *world) firstAlike(m *attachment.Manifest) attachment.ID {
	for _, id := range w.alike(m) {
		if p := w.items[id].m.Problem; p == nil || p.Code != attachment.NeedsDamagedEarly {
			return id
		}
	}
	return ""
}

// want is everything, or less.
func (w *world) want() (want Want) {
	switch w.rnd.IntN(6) {
	case 0:
		want.Front = true
	case 1:
		want.Fresh = true
	}
	if w.rnd.IntN(3) == 0 {
		want.Quick = 1 << w.rnd.IntN(24)
	}
	if w.rnd.IntN(3) == 0 {
		salt := w.rnd.IntN(2)
		want.Avoid = func(id attachment.ID) bool { return int(id[len(id)-1])%2 == salt }
	}
	return want
}

func (w *world) claim() {
	want := w.want()
	ready, next := w.due(want)
	if m, _, err := w.q.Waiting(want); err != nil || (m != nil) != (len(ready) > 0) || m != nil && m.ID != ready[0] {
		w.t.Errorf("waiting: %+v, %v; the model has %v", m, err, ready)
	}
	c, at, err := w.q.ClaimWanted(w.t.Context(), "w", want)
	switch {
	case err != nil:
		w.t.Fatal(err)
	case len(ready) == 0 && (c != nil || !at.Equal(next)):
		w.t.Errorf("claim: %+v, next %s; the model has none, next %s", c, at, next)
	case len(ready) > 0 && (c == nil || c.Manifest.ID != ready[0]):
		w.t.Errorf("claim: %+v, the model gives %s", c, ready[0])
	case c != nil:
		it := w.items[c.Manifest.ID]
		w.note("claimed %s", c.Manifest.ID)
		if c.Confirmed != it.confirmed || !slices.Equal(c.Segments, it.segments) {
			w.t.Errorf("claim of %s: confirmed %d and %d segments, want %d and %d",
				c.Manifest.ID, c.Confirmed, len(c.Segments), it.confirmed, len(it.segments))
		}
		if it.claim = c; w.rnd.IntN(10) == 0 {
			if err := w.q.Abandon(w.t.Context(), c); err != nil {
				w.t.Fatal(err)
			}
			w.endClaim(it)
		}
		w.compareOne(c.Manifest.ID)
	}
}
