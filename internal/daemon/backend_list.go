package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// maxScan bounds how many attachments one request looks at: a filter that fits few of many gets short pages.
const maxScan = 20 * queue.MaxPage

// List returns a page in capture order. Conditions have an index; the other filters look at what it gives.
func (s *session) List(ctx context.Context, q control.ListQuery) (control.Page[control.Item], error) {
	page := control.Page[control.Item]{Items: []control.Item{}}
	wanted := s.storedConditions(q.Conditions)
	if len(q.Conditions) > 0 && len(wanted) == 0 {
		return page, nil
	}
	cursor := q.Cursor
	for scanned := 0; scanned < maxScan; {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		entries, next, err := s.page(q.Parent.Exact(), wanted, cursor, min(q.Limit, queue.MaxPage))
		if err != nil {
			return page, refusal(err)
		}
		scanned += len(entries)
		for i, e := range entries {
			if !fits(e, q, wanted) {
				continue
			}
			if len(page.Items) == q.Limit {
				page.NextCursor = cursorAt(entries[i].Seq)
				return page, nil
			}
			page.Items = append(page.Items, s.item(e))
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	page.NextCursor = cursor
	return page, nil
}

// storedConditions are the conditions that are stored for those that are shown: they differ only while the credential is
// refused.
func (s *session) storedConditions(shown []attachment.Condition) []attachment.Condition {
	refused := s.credentialRefused()
	var stored []attachment.Condition
	for _, c := range attachment.Conditions() {
		if slices.Contains(shown, overlay(c, refused)) {
			stored = append(stored, c)
		}
	}
	return stored
}

func fits(e queue.Entry, q control.ListQuery, wanted []attachment.Condition) bool {
	m := e.Manifest
	if m == nil {
		return q.Parent.Empty() && q.AdoptedBefore.IsZero()
	}
	if !q.AdoptedBefore.IsZero() && !m.AdoptedAt.Before(q.AdoptedBefore) {
		return false
	}
	if !q.Parent.Empty() && m.Parent.LocalID.Exact() != q.Parent.Exact() {
		return false
	}
	return len(wanted) == 0 || slices.Contains(wanted, m.Condition())
}

// page reads one page from the narrowest index: the parent's, or the merged ones of the conditions, or all.
func (s *session) page(parent string, conditions []attachment.Condition, cursor string, limit int) ([]queue.Entry, string, error) {
	if parent != "" || len(conditions) == 0 {
		return s.queue.List(queue.Query{Parent: parent, Cursor: cursor, Limit: limit})
	}
	var merged []queue.Entry
	more := false
	for _, c := range conditions {
		part, next, err := s.queue.List(queue.Query{Condition: c, Cursor: cursor, Limit: limit})
		if err != nil {
			return nil, "", err
		}
		merged = append(merged, part...)
		more = more || next != ""
	}
	slices.SortFunc(merged, func(a, b queue.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	if len(merged) > limit {
		return merged[:limit], cursorAt(merged[limit].Seq), nil
	}
	if more { // every index gave a full page or its end, so what follows comes after all of these
		return merged, cursorAt(merged[len(merged)-1].Seq + 1), nil
	}
	return merged, "", nil
}

// cursorAt is the cursor of a page that begins with the attachment of that number, in the form that the queue makes.
func cursorAt(seq uint64) string { return fmt.Sprintf("%016x", seq) }
