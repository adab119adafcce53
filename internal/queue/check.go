package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Finding is one broken invariant. ID is empty when it concerns no single attachment.
type Finding struct {
	ID     attachment.ID `json:"id,omitempty"`
	Detail string        `json:"detail"`
}

// maxFindings bounds a report.
const maxFindings = 1000

// Check recomputes every index and counter from the manifests and folds the journal of every attachment into its state.
// It returns what does not agree; an error means that the check itself could not be done.
func (q *Queue) Check(ctx context.Context) ([]Finding, error) {
	below, err := q.store.Check(ctx)
	if err != nil {
		return nil, err
	}
	c := checker{counts: map[attachment.Condition]Count{}, parents: map[string]map[attachment.Condition]Count{}}
	for _, f := range below {
		if f.Kind == store.KindValue && f.Bucket == bManifests {
			continue // named by its attachment below
		}
		c.add("", "store: %s in bucket %s, key %q: %s", f.Kind, f.Bucket, f.Key, f.Detail)
	}
	err = q.store.View(func(tx *store.Tx) error {
		err := tx.Bucket(bManifests).Scan(nil, nil, func(key, value []byte, bad error) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			c.manifest(tx, attachment.ID(key), value, bad)
			return nil
		})
		if err != nil {
			return err
		}
		c.totals(tx)
		return nil
	})
	return c.findings, err
}

type checker struct {
	findings             []Finding
	total, due, releases uint64
	unbound              uint64
	contents             uint64
	fold                 uint64
	damaged              uint64
	counts               map[attachment.Condition]Count
	parents              map[string]map[attachment.Condition]Count
}

func (c *checker) add(id attachment.ID, format string, args ...any) {
	if len(c.findings) < maxFindings {
		c.findings = append(c.findings, Finding{ID: id, Detail: fmt.Sprintf(format, args...)})
	}
}

func (c *checker) manifest(tx *store.Tx, id attachment.ID, value []byte, bad error) {
	c.total++
	var m attachment.Manifest
	if bad == nil {
		bad = json.Unmarshal(value, &m)
	}
	if bad == nil {
		bad = m.Validate()
	}
	if bad != nil || m.ID != id {
		c.damaged++
		c.add(id, "manifest cannot be read: %v", bad)
		return
	}
	if m.Due() {
		c.due++
	}
	if m.ReleasePending() {
		c.releases++
	}
	if m.Unbound() {
		c.unbound++
	}
	if inContents(&m) {
		c.contents++
	}
	for bucket, want := range entriesOf(&m) {
		value, err := tx.Bucket(bucket).Get(want.key)
		if err != nil || !tx.Bucket(bucket).Has(want.key) || string(value) != string(want.value) {
			c.add(id, "index %s does not lead to it: %q, %v", bucket, value, err)
		}
	}
	if n, err := segmentsOf(tx, id); err != nil || len(n) != attachment.SegmentCount(m.Length) {
		c.add(id, "%d segment digests for %d bytes: %v", len(n), m.Length, err)
	}
	n := c.counts[m.Condition()]
	n.add(1, m.Length)
	c.counts[m.Condition()] = n
	key := parentKey(&m)
	if c.parents[key] == nil {
		c.parents[key] = map[attachment.Condition]Count{}
	}
	p := c.parents[key][m.Condition()]
	p.add(1, m.Length)
	c.parents[key][m.Condition()] = p
	c.journal(tx, &m)
}

// journal folds the rows of one attachment through attachment.Next and compares the end with the manifest.
func (c *checker) journal(tx *store.Tx, m *attachment.Manifest) {
	state, rows := attachment.Absent, 0
	err := tx.Bucket(bHistory).Scan(idKey(m.ID), nil, func(key, _ []byte, _ error) error {
		value, err := tx.Bucket(bJournal).Get(seqKey(seqOf(key)))
		if err != nil {
			return err
		}
		row, err := decodeRow(value)
		if err != nil || row.ID != m.ID {
			return fmt.Errorf("row %d is not of this attachment: %w", seqOf(key), err)
		}
		rows++
		if row.From != state {
			c.add(m.ID, "journal row %d starts at %q, the row before ended at %q", row.Seq, row.From, state)
		}
		if !possible(row) {
			c.add(m.ID, "journal row %d: %s leads from %q to %q", row.Seq, row.Event, row.From, row.To)
		}
		state = row.To
		return nil
	})
	c.fold += uint64(rows)
	if err != nil || state != m.State {
		c.add(m.ID, "journal ends in %q, manifest says %q: %v", state, m.State, err)
	}
}

// possible reports whether some durable facts make the row a transition of the machine. What a lost row was nobody knows.
func possible(row Row) bool {
	if row.Event == attachment.EventRestored && row.Detail == lostRow {
		return true
	}
	for _, facts := range []attachment.Facts{{}, {Prepared: true}, {Prepared: true, Verified: true}} {
		if to, err := attachment.Next(row.From, row.Event, facts); err == nil && to == row.To {
			return true
		}
	}
	return false
}

func (c *checker) totals(tx *store.Tx) {
	sizes := map[string]uint64{
		bOrder: c.total, bTails: c.total, bConditions: c.total, bDue: c.due, bChildren: c.total,
		bReleases: c.releases, bUnbound: c.unbound, bContents: c.contents, bHistory: c.fold,
	}
	if c.damaged > 0 {
		delete(sizes, bHistory) // how many rows those have cannot be known
	}
	for bucket, want := range sizes {
		if got := tx.Bucket(bucket).Count(); got < want-min(want, c.damaged) || got > want+c.damaged {
			c.add("", "index %s has %d entries, want %d", bucket, got, want)
		}
	}
	for _, cond := range attachment.Conditions() {
		got, _, err := store.GetJSON[Count](tx.Bucket(bCounters), []byte(cond))
		if err != nil || got != c.counts[cond] && c.damaged == 0 {
			c.add("", "counter %s says %+v, want %+v: %v", cond, got, c.counts[cond], err)
		}
	}
	if c.damaged > 0 {
		return
	}
	for key, want := range c.parents {
		got, _, err := store.GetJSON[ParentCounts](tx.Bucket(bParents), []byte(key))
		if err != nil || fmt.Sprint(got.Conditions) != fmt.Sprint(want) {
			c.add("", "parent %s counts %+v, want %+v: %v", attachment.Printable(key), got.Conditions, want, err)
		}
	}
}
