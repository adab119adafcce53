package watch

import "slices"

// queue holds the files that wait for being probed and offered, oldest first: those that an event brought in apart from
// those that a scan of everything found. They take turns, so that a crowd of old files keeps no new one waiting. An entry
// that left the phase ready is skipped.
type queue struct {
	announced, found []*entry
	turn             bool // of found
}

func (q *queue) len() int { return len(q.announced) + len(q.found) }

// add puts an entry at the end. Entries that left the phase are thrown out when there are more than most in all.
func (q *queue) add(e *entry, most int) {
	if e.queued {
		return
	}
	e.queued = true
	if q.len() > most {
		left := func(e *entry) bool {
			e.queued = e.phase == ready
			return !e.queued
		}
		q.announced, q.found = slices.DeleteFunc(q.announced, left), slices.DeleteFunc(q.found, left)
	}
	if e.walked {
		q.found = append(q.found, e)
	} else {
		q.announced = append(q.announced, e)
	}
}

// next takes out the entry whose turn it is; nil when none waits.
func (q *queue) next() *entry {
	for q.len() > 0 {
		from := &q.announced
		if len(q.announced) == 0 || q.turn && len(q.found) > 0 {
			from = &q.found
		}
		q.turn = from == &q.announced
		e := (*from)[0]
		(*from)[0] = nil
		if *from = (*from)[1:]; len(*from) == 0 {
			*from = nil
		}
		e.queued = false
		if e.phase == ready {
			return e
		}
	}
	return nil
}
