package queue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// compareOne holds everything that is known of one attachment against the model.
func (w *world) compareOne(id attachment.ID) {
	w.t.Helper()
	it := w.items[id]
	e, err := w.q.Get(id)
	if err != nil || e.Manifest == nil {
		w.t.Errorf("get %s: %v, %v", id, err, e.Err)
		return
	}
	w.same(id, "manifest", *e.Manifest, it.m)
	w.same(id, "the rest", []any{e.Seq, e.Confirmed, e.Claimed, e.Failure}, []any{it.m.Seq, it.confirmed, it.claim != nil, it.failure})
	r, err := w.q.Receipt(id)
	w.same(id, "receipt", []any{r, err}, []any{it.receipt, nil})
	segments, err := w.q.Segments(id)
	w.same(id, "segments", []any{segments, err}, []any{it.segments, nil})
	limit := 1 + w.rnd.IntN(12)
	rows, err := w.q.History(id, limit)
	var lines []string
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%s %s>%s %q %q %q %s", r.Event, r.From, r.To, r.Reason, r.Detail, r.By, r.At.UTC()))
	}
	w.same(id, "journal", []any{lines, err}, []any{it.journal[max(0, len(it.journal)-limit):], nil})
}

// same compares by JSON, which is what the queue keeps.
func (w *world) same(id attachment.ID, what string, got, want any) {
	w.t.Helper()
	a, err := json.Marshal(got)
	b, err2 := json.Marshal(want)
	if err != nil || err2 != nil || string(a) != string(b) {
		w.t.Errorf("%s, %s: the queue has\n%s\nthe model\n%s\n%v %v", id, what, a, b, err, err2)
	}
}

// compareAll reads the queue in every other way there is.
func (w *world) compareAll() {
	w.t.Helper()
	all := func(*item) bool { return true }
	w.compareList(Query{}, all)
	for _, c := range attachment.Conditions() {
		is := func(it *item) bool { return it.m.Condition() == c }
		w.compareList(Query{Condition: c}, is)
		oldest, found, err := w.q.Oldest(c)
		i := slices.IndexFunc(w.order, func(id attachment.ID) bool { return is(w.items[id]) })
		if err != nil || found != (i >= 0) || found && oldest.ID != w.order[i] {
			w.t.Errorf("oldest %s: %s, %v, %v", c, oldest.ID, found, err)
		}
	}
	counts, err := w.q.Counts()
	w.same("", "counts", []any{counts, err}, []any{w.counts(all), nil})
	_, next := w.due(Want{})
	at, err := w.q.NextAttempt()
	w.same("", "next attempt", []any{at, err}, []any{next, nil})
	w.compareParents()
	w.compareIntakes()
	w.compareSources()
	w.compareUnbound()
	last, err := w.q.LastDelivery()
	w.same("", "last delivery", []any{last, err}, []any{w.delivered, nil})
	var channel int
	if _, err := w.q.Channel("uplink", &channel); err != nil || channel != w.channel {
		w.t.Errorf("channel %d, want %d: %v", channel, w.channel, err)
	}
	for _, name := range []string{DecisionPauseChannel, "other"} {
		d, found, err := w.q.StandingDecision(name)
		want, stands := w.decisions[name]
		w.same("", "decision "+name, []any{d, found, err}, []any{want, stands, nil})
	}
	for range min(len(w.order), 6) {
		w.compareOne(w.order[w.rnd.IntN(len(w.order))])
	}
}

// compareList walks a list in pages of a random size.
func (w *world) compareList(query Query, keep func(*item) bool) {
	w.t.Helper()
	var got, ids, want []attachment.ID
	for _, id := range w.order {
		if keep(w.items[id]) {
			want = append(want, id)
		}
	}
	query.Limit = 1 + w.rnd.IntN(len(want)+2)
	limit := query.Limit
	for {
		page, next, err := w.q.List(query)
		if err != nil || len(page) > query.Limit {
			w.t.Errorf("list: %d of %d, %v", len(page), query.Limit, err)
			return
		}
		for _, e := range page {
			if got = append(got, e.ID); e.Manifest == nil || e.Seq != e.Manifest.Seq {
				w.t.Errorf("list: entry %+v", e)
			}
		}
		if query.Cursor = next; next == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("list %+v in pages of %d: %v, want %v", query, limit, got, want)
	}
	if query.Condition == "" {
		return
	}
	for cursor := ""; ; {
		page, next, err := w.q.IDs(query.Condition, cursor, limit)
		if err != nil {
			w.t.Error(err)
			return
		}
		if ids = append(ids, page...); next == "" {
			break
		}
		cursor = next
	}
	if !slices.Equal(ids, want) {
		w.t.Errorf("IDs of %s in pages of %d: %v, want %v", query.Condition, limit, ids, want)
	}
}

func (w *world) compareParents() {
	w.t.Helper()
	var got []string
	limit := 1 + w.rnd.IntN(4)
	for cursor := ""; ; {
		page, next, err := w.q.Parents(cursor, limit)
		if err != nil || len(page) > limit {
			w.t.Errorf("parents: %d of %d, %v", len(page), limit, err)
			return
		}
		for _, p := range page {
			got = append(got, p.Parent.LocalID.Exact())
		}
		if cursor = next; next == "" {
			break
		}
	}
	if want := w.parents(); !slices.Equal(got, want) {
		w.t.Errorf("parents %q, want %q", got, want)
	}
	for _, name := range modelParents {
		of := func(it *item) bool { return it.m.Parent.LocalID.Exact() == name }
		p, found, err := w.q.ParentOf(name)
		want := w.counts(of)
		if err != nil || found != (len(want) > 0) || !maps.Equal(p.Conditions, want) {
			w.t.Errorf("parent %q: %v, %v, %v, want %v", name, p.Conditions, found, err, want)
		}
		if name != "" {
			w.compareList(Query{Parent: name}, of)
		}
	}
}

func (w *world) compareIntakes() {
	w.t.Helper()
	got, damaged, err := w.q.Intakes()
	var want []Intake
	for _, id := range slices.Sorted(maps.Keys(w.intakes)) {
		want = append(want, w.intakes[id])
	}
	w.same("", "intakes", []any{got, damaged, err}, []any{want, nil, nil})
	for name, ids := range w.submissions {
		got, found, err := w.q.Submission(name)
		if err != nil || !found || !slices.Equal(got, ids) {
			w.t.Errorf("submission %s: %v, %v, %v, want %v", name, got, found, err, ids)
		}
	}
	if _, found, err := w.q.Submission("sub-never"); found || err != nil {
		w.t.Errorf("a submission that never was: %v, %v", found, err)
	}
}

// compareAlike looks a source up by its description and by its bytes.
func (w *world) compareAlike(m *attachment.Manifest) {
	w.t.Helper()
	s := SightingOf(m.Source)
	known, found, err := w.q.Known(s)
	if owner, has := w.ledger[rowOf(s)]; err != nil || found != has || known != owner {
		w.t.Errorf("source of %s is known as %+v, %v, %v; want %+v", m.ID, known, found, err, owner)
	}
	s.Identity.Size = m.Length
	samePath, sameParent, err := w.q.Alike(s, m.Parent.LocalID.Exact(), m.SHA256)
	ids := make([]attachment.ID, len(sameParent))
	for i, o := range sameParent {
		ids[i] = o.ID
	}
	if want := w.alike(m); err != nil || !slices.Equal(ids, want) {
		w.t.Errorf("alike to %s: %v, want %v, %v", m.ID, ids, want, err)
	}
	want := 0
	for row, k := range w.ledger {
		o := w.items[k.ID].m
		if row.Watch == s.Watch && row.RelPath == s.RelPath && o.Length == m.Length && o.SHA256 == m.SHA256 {
			want++
		}
	}
	if len(samePath) != want {
		w.t.Errorf("path of %s became the same bytes %d times, want %d", m.ID, len(samePath), want)
	}
	if has, err := w.q.HasLength(m.Source.Watch, m.Length); !has || err != nil {
		w.t.Errorf("length of %s: %v, %v", m.ID, has, err)
	}
	if has, err := w.q.HasLength(m.Source.Watch, 1<<60); has || err != nil {
		w.t.Errorf("a length that nothing has: %v, %v", has, err)
	}
}

func (w *world) compareSources() {
	w.t.Helper()
	var pending, want []attachment.ID
	for after := attachment.ID(""); ; {
		page, err := w.q.Unreleased(after, 2)
		if err != nil {
			w.t.Error(err)
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			after, pending = m.ID, append(pending, m.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.items)) {
		m := w.items[id].m
		if s := m.Binding.Sidecar; m.Source.ReleasePending || s != nil && s.ReleasePending {
			want = append(want, id)
		}
		if m.Source.Watch == "" {
			continue
		}
		w.compareAlike(&m)
	}
	if !slices.Equal(pending, want) {
		w.t.Errorf("unreleased %v, want %v", pending, want)
	}
	if len(want) > 0 {
		id := string(want[w.rnd.IntN(len(want))])
		for _, text := range []string{id[:13], id[24:], id} {
			if ids, err := w.q.Resolve(text, 10); err != nil || !slices.Contains(ids, attachment.ID(id)) {
				w.t.Errorf("resolve %q: %v, %v", text, ids, err)
			}
		}
	}
}
