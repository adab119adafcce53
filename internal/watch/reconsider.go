package watch

import "strings"

// maxReconsider bounds the paths that wait to be reconsidered. Beyond it a walk looks at everything, and what stays is then
// recognised by its taker when it is offered.
const maxReconsider = 10_000

// reconsider leaves a path for the loop.
func (t *tree) reconsider(rel string) {
	t.mu.Lock()
	if len(t.reconsidered) < maxReconsider {
		t.reconsidered[rel] = true
	} else {
		t.forgetStays, t.wanted = true, true
	}
	t.mu.Unlock()
	t.signal()
}

// takeReconsidered follows what was left. It is called with t.mu held.
func (t *tree) takeReconsidered() {
	if t.forgetStays {
		t.forgetStays = false
		clear(t.stays.marks)
	}
	for rel := range t.reconsidered {
		dir, name := "", rel
		if slash := strings.LastIndexByte(rel, '/'); slash >= 0 {
			dir, name = rel[:slash], rel[slash+1:]
		}
		t.stays.remove(rel)
		if e := t.offered[rel]; e != nil && e != t.next {
			e.again = true
			continue
		}
		n := t.top.find(dir)
		if n == nil {
			continue // nothing is known of it, so nothing keeps it from being found
		}
		if e := n.files[name]; e == nil {
			t.enlist(n)
		} else if e.phase == parked {
			t.schedule(e, t.now())
		}
	}
	clear(t.reconsidered)
}
