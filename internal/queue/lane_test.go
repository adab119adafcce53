package queue

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
	"github.com/fieldgw/fieldgw/test/damage"
)

const mib = 1 << 20

func length(n int64) func(*attachment.Manifest) {
	return func(m *attachment.Manifest) { m.Length = n }
}

func priority(n int) func(*attachment.Manifest) {
	return func(m *attachment.Manifest) { m.Priority = n }
}

// names claims everything that is wanted, in the order in which it is given out.
func (f *fixture) names(want Want) (names []string) {
	f.t.Helper()
	for {
		c, _, err := f.ClaimWanted(context.Background(), "w", want)
		if err != nil {
			f.t.Fatal(err)
		}
		if c == nil {
			return names
		}
		names = append(names, c.Manifest.Filename.Text)
	}
}

// One order over all sizes: priority, then capture. The lane of small and urgent ones leaves the others out and keeps the
// order; what a person put to the front comes before all, in capture order too.
func TestLanes(t *testing.T) {
	for name, tc := range map[string]struct {
		want Want
		text []string
	}{
		"all":   {Want{}, []string{"front large", "front small", "urgent", "large", "exact", "one more", "small", "empty"}},
		"quick": {Want{Quick: mib}, []string{"front large", "front small", "urgent", "exact", "small", "empty"}},
		"front": {Want{Front: true}, []string{"front large", "front small"}},
		"both":  {Want{Front: true, Quick: mib}, []string{"front large", "front small"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.adopt("p", "large", length(2<<30))
			f.adopt("p", "exact", length(mib))
			f.adopt("p", "one more", length(mib+1))
			f.adopt("p", "small", length(20_000))
			f.adopt("p", "empty", length(0))
			f.adopt("p", "urgent", length(3*mib), priority(9))
			large, small := f.adopt("p", "front large", length(5*mib)), f.adopt("p", "front small", length(5))
			for _, id := range []attachment.ID{small, large} {
				if changed, err := f.Prioritize(t.Context(), id, "uid 7", "the office waits"); !changed || err != nil {
					t.Fatal(changed, err)
				}
			}
			if got := f.names(tc.want); !slices.Equal(got, tc.text) {
				t.Errorf("got %q, want %q", got, tc.text)
			}
		})
	}
}

// No attachment of a parent overtakes an earlier one that waits for nothing: neither one that a person had tried again, nor
// one that stepped aside or was stopped by a hold.
func TestCaptureOrderWithinParent(t *testing.T) {
	f := newFixture(t)
	failed, yielded, held := f.adopt("p", "1"), f.adopt("p", "2"), f.adopt("p", "3")
	f.adopt("p", "4")
	for range 3 {
		f.claim()
	}
	ctx := t.Context()
	f.do("fail", f.Failed(ctx, failed, Failure{Code: attachment.HoldServerError}, func(int) time.Duration { return time.Hour }))
	f.do("retry", f.Retry(ctx, failed, "uid 7", ""))
	f.do("session", f.SessionOpened(ctx, yielded, session, "fieldgw", "m1", 0))
	f.do("yield", f.Yielded(ctx, yielded, "aside"))
	f.do("hold", f.Interrupted(ctx, held, attachment.HoldOffline, ""))
	if got := f.names(Want{}); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		t.Errorf("got %q", got)
	}
	e, err := f.Get(yielded)
	if err != nil || e.Manifest.Delivery.Attempts != 0 || e.Manifest.Delivery.Failures != 0 || e.Manifest.Delivery.Session != session {
		t.Errorf("who stepped aside was charged, or lost its session: %+v, %v", e.Manifest.Delivery, err)
	}
}

// A claim looks at a bounded number of entries, whatever waits in the other lane.
func TestClaimLooksAtFew(t *testing.T) {
	f := newFixture(t)
	for range 3 * passOver {
		f.adopt("", "large", length(5*mib))
	}
	f.adopt("", "small", length(1))
	asked := 0
	want := Want{Quick: mib, Avoid: func(attachment.ID) bool { asked++; return false }}
	if m, _, err := f.Waiting(want); err != nil || m == nil || m.Filename.Text != "small" || asked != 1 {
		t.Errorf("found %+v after %d, %v", m, asked, err)
	}
	want.Quick, asked = 0, 0
	want.Avoid = func(attachment.ID) bool { asked++; return true }
	if m, _, err := f.Waiting(want); err != nil || m == nil || asked > 2*passOver {
		t.Errorf("found %+v after %d, %v", m, asked, err)
	}
}

// What is parked is not put to the front: a person has to decide first.
func TestPrioritizeIsRefused(t *testing.T) {
	f := newFixture(t)
	id := f.adopt("p", "1")
	f.claim()
	f.do("attention", f.RaiseAttention(t.Context(), id, Failure{Code: attachment.NeedsSizeLimit, Message: "too big"}))
	if changed, err := f.Prioritize(t.Context(), id, "uid 7", ""); changed || !errors.Is(err, attachment.ErrTransition) {
		t.Errorf("changed %v, %v", changed, err)
	}
}

// A queue of the first schema, whose keys knew no size, opens with the same order; an entry whose manifest is damaged
// stays.
func TestFirstSchemaOpens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue.db")
	before := Schema()
	before.Version, before.Migrations = 1, nil
	st, err := store.Open(path, before, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Queue: New(st, Options{}), t: t, path: path, st: st}
	f.adopt("p", "large", length(2*mib))
	damaged := f.adopt("p", "damaged", length(9))
	f.adopt("p", "small", length(9))
	f.adopt("p", "urgent", length(9), priority(3))
	waits := f.adopt("p", "waits", length(9), priority(9))
	f.claim()
	f.do("fail", f.Failed(t.Context(), waits, Failure{Code: attachment.HoldServerError}, func(int) time.Duration { return time.Hour }))
	f.do("old keys", st.Update(t.Context(), firstKeys))
	f.do("close", st.Close())
	damage.Spoil(t, path, bManifests, idKey(damaged))
	f = open(t, path)
	t.Cleanup(func() { f.do("close", f.st.Close()) })
	f.do("recover", f.Recover(t.Context()))
	f.reopen()
	if got := f.names(Want{Quick: mib}); !slices.Equal(got, []string{"urgent", "small"}) {
		t.Errorf("quick: %q", got)
	}
	if got := f.names(Want{}); !slices.Equal(got, []string{"large"}) {
		t.Errorf("then: %q", got)
	}
	if next, err := f.NextAttempt(); err != nil || next.IsZero() {
		t.Errorf("the wait is forgotten: %s, %v", next, err)
	}
	seen := false
	err = f.st.View(func(tx *store.Tx) error {
		return tx.Bucket(bDue).Scan([]byte{maxLevel, maxClass}, nil, func(_, value []byte, _ error) error {
			seen = bytes.Equal(value, idKey(damaged))
			return nil
		})
	})
	if err != nil || !seen {
		t.Errorf("the damaged one has left the index: %v", err)
	}
	f.do("park", f.Park(t.Context(), damaged))
	f.do("repair", f.Reindex(t.Context()))
	if findings, err := f.Check(t.Context()); err != nil || len(findings) != 1 || findings[0].ID != damaged {
		t.Errorf("check: %+v, %v", findings, err)
	}
}

// firstKeys gives the index the keys of schema 1: 9-priority, time and number.
func firstKeys(tx *store.Tx) error {
	due := tx.Bucket(bDue)
	type entry struct{ key, id []byte }
	var all []entry
	err := due.Scan(nil, nil, func(key, value []byte, _ error) error {
		all = append(all, entry{slices.Clone(key), slices.Clone(value)})
		return nil
	})
	for _, e := range all {
		if err == nil {
			err = due.Delete(e.key)
		}
		if err == nil {
			key := binary.BigEndian.AppendUint64([]byte{e.key[0] - 1}, binary.BigEndian.Uint64(e.key[laneSize:]))
			err = due.Put(append(key, e.key[len(e.key)-8:]...), e.id)
		}
	}
	return err
}
