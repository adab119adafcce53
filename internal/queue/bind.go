package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Errors of Bind.
var (
	// ErrNotUnbound is returned when a sidecar bound the attachment already, when it is delivered, or when the server may have
	// been asked to register it without a parent.
	ErrNotUnbound = errors.New("it cannot be bound any more")
	// ErrAmbiguous is returned when several attachments came from the path that a sidecar speaks of.
	ErrAmbiguous = errors.New("several files came from this path")
	// ErrClaimed is returned while a worker has the attachment.
	ErrClaimed = errors.New("it is being sent at this moment")
)

// ErrBinding is the cause with which a worker's context ends when a sidecar came for its attachment.
var ErrBinding = errors.New("a sidecar came")

// Unbound returns the attachments that came from a path of a watch and that a sidecar may still bind, oldest first, at most
// limit of them. One whose record is damaged counts, with nothing but its ID.
func (q *Queue) Unbound(watch, relPath string, limit int) (found []*attachment.Manifest, err error) {
	err = q.store.View(func(tx *store.Tx) (err error) {
		found, err = unboundAt(tx, watch, relPath, limit)
		return err
	})
	return found, err
}

func unboundAt(tx *store.Tx, watch, relPath string, limit int) (found []*attachment.Manifest, err error) {
	prefix := groupPrefix(sourceGroup(watch, relPath))
	err = tx.Bucket(bUnbound).Scan(prefix, nil, func(key, value []byte, bad error) error {
		if len(key) != len(prefix)+8 {
			return nil // a longer path that begins with this one; no path holds a NUL
		}
		id, err := indexed(tx, key, value, bad)
		if err != nil {
			return err
		}
		m, err := load(tx, id)
		if isBadValue(err) {
			m, err = &attachment.Manifest{ID: id}, nil
		}
		if err != nil {
			return err
		}
		if found = append(found, m); len(found) == limit {
			return store.ErrStop
		}
		return nil
	})
	return found, err
}

// UnboundBelow returns the attachments that a sidecar may still bind and that came from a directory of a watch, not from one
// below it: in the order of their paths, at most limit of them. dir is relative to the root and empty for the root itself.
func (q *Queue) UnboundBelow(watch, dir string, limit int) (found []*attachment.Manifest, err error) {
	within := watch + "\x00"
	if dir != "" {
		within += dir + "/"
	}
	err = q.store.View(func(tx *store.Tx) error {
		found = nil
		return tx.Bucket(bUnbound).Scan([]byte(within), nil, func(key, value []byte, bad error) error {
			rest := key[len(within):]
			if bytes.IndexByte(rest[:max(0, len(rest)-9)], '/') >= 0 {
				return nil
			}
			id, err := indexed(tx, key, value, bad)
			if err != nil {
				return nil
			}
			m, err := load(tx, id)
			if err != nil {
				return nil
			}
			if found = append(found, m); len(found) == limit {
				return store.ErrStop
			}
			return nil
		})
	})
	return found, err
}

// bindable returns an attachment that a sidecar may bind now, or an error of Bind.
func bindable(tx *store.Tx, id attachment.ID) (*attachment.Manifest, error) {
	m, err := load(tx, id)
	switch {
	case isBadValue(err), err == nil && (!m.Unbound() || m.Delivery.ParentFixed):
		err = fmt.Errorf("bind %s: %w", id, ErrNotUnbound)
	case err == nil && tx.Bucket(bClaims).Has(idKey(id)):
		err = fmt.Errorf("bind %s: %w", id, ErrClaimed)
	}
	return m, err
}

// Bindable is the check of Bind alone.
func (q *Queue) Bindable(id attachment.ID) error {
	return q.store.View(func(tx *store.Tx) error {
		_, err := bindable(tx, id)
		return err
	})
}

// Bind commits what a sidecar said about one attachment: the facts, the journal, the sidecar's own place, and that nothing is
// missing any more. edit sets the facts and Binding.Sidecar; it may run more than once. Errors: ErrNotUnbound, ErrAmbiguous,
// ErrClaimed; nothing changed then.
func (q *Queue) Bind(ctx context.Context, id attachment.ID, edit func(*attachment.Manifest)) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		m, err := bindable(tx, id)
		if err != nil {
			return err
		}
		others, err := unboundAt(tx, m.Source.Watch, m.Source.RelPath.Exact(), 2)
		if err != nil {
			return err
		}
		if len(others) != 1 {
			return fmt.Errorf("bind %s: %w", id, ErrAmbiguous)
		}
		missing := m.State == attachment.Captured || m.Problem != nil && m.Problem.Code == attachment.NeedsSidecarInvalid
		bound := m.Clone()
		edit(bound)
		c := Change{Event: attachment.EventBound, Edit: func(m *attachment.Manifest) {
			edit(m)
			m.Prepared = true
			if m.Delivery.ErrorCode == attachment.HoldSidecar {
				// It had stepped aside for this.
				m.Delivery.NotBefore, m.Delivery.Wait, m.Delivery.ErrorCode = time.Time{}, 0, ""
			}
		}}
		if s := bound.Binding.Sidecar; s != nil {
			c.Detail = "by " + s.RelPath.Printable()
		}
		m, err = q.apply(tx, id, c)
		if err != nil {
			return err
		}
		if err := putSidecar(tx, m); err != nil || !missing {
			return err
		}
		_, err = q.apply(tx, id, Change{Event: attachment.EventPrepared})
		return err
	})
}

// EndWait makes an attachment ready that awaited a sidecar which did not come; by names the person who decided so, empty when
// its time is over. One that waits for none is left alone.
func (q *Queue) EndWait(ctx context.Context, id attachment.ID, by, why string) error {
	_, err := q.change(ctx, id, func(_ *store.Tx, m *attachment.Manifest) (Change, bool) {
		return Change{
			Event: attachment.EventPrepared, Reason: attachment.HoldSidecar, Detail: why, By: by,
			Edit: func(m *attachment.Manifest) {
				m.Prepared = true
				if by != "" {
					m.Binding.Wait = 0
				}
			},
		}, m.State == attachment.Captured
	})
	return err
}

// change applies what decide says to an attachment, or nothing.
func (q *Queue) change(ctx context.Context, id attachment.ID, decide func(*store.Tx, *attachment.Manifest) (Change, bool)) (changed bool, err error) {
	err = q.store.Update(ctx, func(tx *store.Tx) error {
		m, err := load(tx, id)
		if err != nil {
			return err
		}
		c, needed := decide(tx, m)
		if !needed {
			return errUnchanged
		}
		_, err = q.apply(tx, id, c)
		return err
	})
	if errors.Is(err, errUnchanged) {
		return false, nil
	}
	return err == nil, err
}

// RefuseSidecar sends an attachment to attention because the sidecar that came for it cannot be used; detail says what is
// wrong and where. It reports whether that is news. An attachment that is being sent, is in attention for another reason, or
// is to be sent without a sidecar by a person's decision stays as it is.
func (q *Queue) RefuseSidecar(ctx context.Context, id attachment.ID, detail string) (changed bool, err error) {
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "")
	}
	return q.change(ctx, id, func(tx *store.Tx, m *attachment.Manifest) (Change, bool) {
		c := Change{Event: attachment.EventAttention, Reason: attachment.NeedsSidecarInvalid, Detail: detail}
		_, err := bindable(tx, id)
		if err != nil || m.Binding.Wait == 0 {
			return c, false
		}
		if m.Problem == nil {
			return c, m.State != attachment.Review
		}
		c.Event, c.Edit = attachment.EventBound, func(m *attachment.Manifest) { m.Problem.Detail = detail }
		return c, m.Problem.Code == attachment.NeedsSidecarInvalid && m.Problem.Detail != detail
	})
}

// sidecarRow is what the queue stores about a sidecar that bound something and lies where it was.
type sidecarRow struct {
	ID     attachment.ID     `json:"id"`
	SHA256 attachment.Digest `json:"sha256"`
}

func putSidecar(tx *store.Tx, m *attachment.Manifest) error {
	s := m.Binding.Sidecar
	if s == nil || s.Entry {
		return nil
	}
	return store.PutJSON(tx.Bucket(bSidecars), sidecarKey(m), sidecarRow{ID: m.ID, SHA256: s.SHA256})
}

func sidecarKey(m *attachment.Manifest) []byte {
	return []byte(sourceGroup(m.Source.Watch, m.Binding.Sidecar.RelPath.Exact()))
}

// SidecarAt returns which attachment was bound by the sidecar at a path of a watch, and the digest that the sidecar had.
func (q *Queue) SidecarAt(watch, relPath string) (id attachment.ID, sha256 attachment.Digest, found bool, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		row, there, err := store.GetJSON[sidecarRow](tx.Bucket(bSidecars), []byte(sourceGroup(watch, relPath)))
		if isBadValue(err) {
			return nil
		}
		id, sha256, found = row.ID, row.SHA256, there
		return err
	})
	return id, sha256, found, err
}

// SidecarReleased records that a sidecar which bound an attachment is gone from its directory.
func (q *Queue) SidecarReleased(ctx context.Context, id attachment.ID) error {
	return q.update(ctx, id, Change{
		Event: attachment.EventSourceGone, Detail: "its sidecar",
		Edit: func(m *attachment.Manifest) { m.Binding.Sidecar.ReleasePending, m.Binding.Sidecar.Kept = false, "" },
	}, func(tx *store.Tx, m *attachment.Manifest) error {
		row, found, err := store.GetJSON[sidecarRow](tx.Bucket(bSidecars), sidecarKey(m))
		if err == nil && found && row.ID != id {
			return nil
		}
		return tx.Bucket(bSidecars).Delete(sidecarKey(m))
	})
}

// SidecarKept records that the sidecar which bound an attachment stays where it is, and why.
func (q *Queue) SidecarKept(ctx context.Context, id attachment.ID, why string) error {
	return q.update(ctx, id, Change{
		Event: attachment.EventSourceKept, Detail: "its sidecar: " + why,
		Edit: func(m *attachment.Manifest) { m.Binding.Sidecar.ReleasePending, m.Binding.Sidecar.Kept = false, why },
	}, nil)
}
