package queue

import (
	"maps"
	"slices"
	"strings"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// unbound lists, in order of capture, what a sidecar may still bind of what came from a path.
func (w *world) unbound(relPath string) (ids []attachment.ID) {
	for _, id := range w.order {
		m := w.items[id].m
		if m.Binding.Rule == attachment.BindSidecar && m.Binding.Sidecar == nil && m.State.Undelivered() && m.Source.RelPath.Exact() == relPath {
			ids = append(ids, id)
		}
	}
	return ids
}

// bindable is what must stand in the way of a sidecar; nil when nothing does.
func (w *world) bindable(it *item) error {
	m := it.m
	switch {
	case !slices.Contains(w.unbound(m.Source.RelPath.Exact()), m.ID) || m.Delivery.ParentFixed:
		return ErrNotUnbound
	case it.claim != nil:
		return ErrClaimed
	case len(w.unbound(m.Source.RelPath.Exact())) != 1:
		return ErrAmbiguous
	}
	return nil
}

func (w *world) opBind(id attachment.ID, it *item) {
	rel := it.m.Source.RelPath.Exact() + ".json"
	parent := attachment.NameOf(modelParents[1+w.rnd.IntN(len(modelParents)-1)])
	s := attachment.Sidecar{RelPath: attachment.NameOf(rel), ReleasePending: w.rnd.IntN(2) == 0}
	s.SHA256[0] = byte(w.rnd.Uint32())
	priority := w.rnd.IntN(attachment.MaxPriority + 1)
	edit := func(m *attachment.Manifest) {
		m.Parent.LocalID, m.Priority, m.Binding.Sidecar = parent, priority, &s
	}
	w.note("%s: bound to %q", id, parent.Exact())
	got := w.q.Bind(w.t.Context(), id, edit)
	if w.items[id] == nil {
		w.settle(id, got, ErrNotFound)
		return
	}
	want := w.bindable(it)
	if want == nil {
		missing := it.m.State == attachment.Captured || it.m.Problem != nil && it.m.Problem.Code == attachment.NeedsSidecarInvalid
		want = w.apply(id, attachment.EventBound, "", "by "+rel, "", func(m *attachment.Manifest) {
			edit(m)
			m.Prepared = true
		})
		if want == nil && missing {
			want = w.apply(id, attachment.EventPrepared, "", "", "", nil)
		}
		w.sidecars[rel] = id
	}
	w.settle(id, got, want)
}

func (w *world) opEndWait(id attachment.ID, _ *item) {
	w.note("%s: wait over", id)
	got := w.q.EndWait(w.t.Context(), id, "", "over")
	if w.items[id] == nil {
		w.settle(id, got, ErrNotFound)
		return
	}
	w.endWait(id, "", "over")
	w.settle(id, got, nil)
}

func (w *world) endWait(id attachment.ID, by, why string) {
	if w.items[id].m.State != attachment.Captured {
		return
	}
	err := w.apply(id, attachment.EventPrepared, attachment.HoldSidecar, why, by, func(m *attachment.Manifest) {
		m.Prepared = true
		if by != "" {
			m.Binding.Wait = 0
		}
	})
	if err != nil {
		w.t.Error(err)
	}
}

func (w *world) opRefuse(id attachment.ID, it *item) {
	detail := []string{"1:2: this", "3:4: that", strings.Repeat("ü", 400)}[w.rnd.IntN(3)]
	w.note("%s: sidecar refused", id)
	changed, got := w.q.RefuseSidecar(w.t.Context(), id, detail)
	if w.items[id] == nil {
		w.settle(id, got, ErrNotFound)
		return
	}
	detail = detail[:min(len(detail), maxDetail)]
	m, needed := it.m, false
	if err := w.bindable(it); (err == nil || err == ErrAmbiguous) && m.Binding.Wait > 0 {
		if m.Problem == nil {
			needed = true
			if err := w.apply(id, attachment.EventAttention, attachment.NeedsSidecarInvalid, detail, "", nil); err != nil {
				w.t.Error(err)
			}
		} else if m.Problem.Code == attachment.NeedsSidecarInvalid && m.Problem.Detail != detail {
			needed = true
			err := w.apply(id, attachment.EventBound, attachment.NeedsSidecarInvalid, detail, "", func(m *attachment.Manifest) { m.Problem.Detail = detail })
			if err != nil {
				w.t.Error(err)
			}
		}
	}
	if changed != needed {
		w.t.Errorf("refusal of %s: changed %v, needed %v", id, changed, needed)
	}
	w.settle(id, got, nil)
}

func (w *world) opSidecarGone(id attachment.ID, it *item) {
	s := it.m.Binding.Sidecar
	if s == nil {
		return
	}
	if w.rnd.IntN(2) == 0 {
		w.note("%s: sidecar kept", id)
		got := w.q.SidecarKept(w.t.Context(), id, "in use")
		w.settle(id, got, w.apply(id, attachment.EventSourceKept, "", "its sidecar: in use", "", func(m *attachment.Manifest) {
			m.Binding.Sidecar.ReleasePending, m.Binding.Sidecar.Kept = false, "in use"
		}))
		return
	}
	w.note("%s: sidecar released", id)
	got := w.q.SidecarReleased(w.t.Context(), id)
	want := w.apply(id, attachment.EventSourceGone, "", "its sidecar", "", func(m *attachment.Manifest) {
		m.Binding.Sidecar.ReleasePending, m.Binding.Sidecar.Kept = false, ""
	})
	if rel := s.RelPath.Exact(); want == nil && w.sidecars[rel] == id {
		delete(w.sidecars, rel)
	}
	w.settle(id, got, want)
}

// compareUnbound asks for what may be bound by every path, and for which attachment each sidecar bound.
func (w *world) compareUnbound() {
	w.t.Helper()
	paths := map[string]bool{}
	for _, id := range w.order {
		paths[w.items[id].m.Source.RelPath.Exact()] = true
	}
	for _, rel := range slices.Sorted(maps.Keys(paths)) {
		if rel == "" {
			continue
		}
		found, err := w.q.Unbound("card", rel, 100)
		var got []attachment.ID
		for _, m := range found {
			got = append(got, m.ID)
		}
		if want := w.unbound(rel); err != nil || !slices.Equal(got, want) {
			w.t.Errorf("unbound at %s: %v, %v, want %v", rel, got, err, want)
		}
		id, _, known, err := w.q.SidecarAt("card", rel+".json")
		if want, lies := w.sidecars[rel+".json"]; err != nil || known != lies || id != want {
			w.t.Errorf("sidecar of %s: %s, %v, %v, want %s", rel, id, known, err, want)
		}
	}
	below, err := w.q.UnboundBelow("card", "", 1000)
	var want int
	for rel := range paths {
		want += len(w.unbound(rel))
	}
	if err != nil || len(below) != want {
		w.t.Errorf("%d unbound in the root, %v, want %d", len(below), err, want)
	}
}
