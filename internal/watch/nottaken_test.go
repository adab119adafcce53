package watch

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random tests")

// Pages of any size, over several roots and names of any bytes, put together are the whole list, sorted and without
// gaps or repetitions.
func TestNotTakenPages(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	random := rand.New(rand.NewPCG(*seed, 0))
	w, err := New(Options{Roots: []Root{
		{Name: "a", Path: "/cap"}, {Name: "b", Path: "/cap\xff"}, {Name: "c", Path: "/"},
	}})
	must(t, err)
	var want []key
	for _, tr := range w.trees {
		tr.state = condition{}
		dirs := []*node{tr.top}
		for i := range 700 {
			n := dirs[random.IntN(len(dirs))]
			odd := 1 + random.IntN(255)
			if odd == '/' {
				odd = '\n'
			}
			name := fmt.Sprintf("%d%s", i, []byte{byte(odd)})
			if random.IntN(5) == 0 {
				kid := newNode(n, name)
				if n.kids == nil {
					n.kids = map[string]*node{}
				}
				n.kids[name] = kid
				dirs = append(dirs, kid)
				continue
			}
			if tr.list(n, name, attachment.NotTakenTemporary, "", 1, 1) == nil {
				continue // no room: the limit
			}
			want = append(want, key{join(tr.pathOf(n), name), tr.root.Name})
		}
	}
	slices.SortFunc(want, key.compare)
	for _, limit := range []int{17, 100, 1000} {
		var got []key
		for cursor, pages := "", 0; ; pages++ {
			page, next := w.NotTaken(limit, cursor)
			if len(page) > limit || len(page) == 0 || pages > len(want) {
				t.Fatalf("page %d of limit %d has %d entries", pages, limit, len(page))
			}
			for _, n := range page {
				got = append(got, n.key())
			}
			if cursor = next; next == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("limit %d: %d entries, want %d", limit, len(got), len(want))
		}
	}
	if page, _ := w.NotTaken(0, "not a cursor"); len(page) != defaultPage || page[0].key() != want[0] {
		t.Errorf("a cursor that is not understood: %d entries", len(page))
	}
}
