package uplinktest

import (
	"errors"
	"sync"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// A repeated reservation finds the session and what it holds.
func (s *suite) reservedAgain(t *testing.T) {
	content := fresh(t, contentSize)
	m := NewManifest(t, content)
	first := s.reserve(t, s.one, m)
	s.append(t, m, first, content, 0, 1000)
	again := s.reserve(t, s.two, m)
	if again.Session != first.Session || again.MediaID != first.MediaID || again.Offset != 1000 {
		t.Fatalf("reserved again: %+v, first %+v", again, first)
	}
	other := NewManifest(t, fresh(t, 10))
	other.ID = m.ID
	_, err := s.one.Reserve(t.Context(), other, attachment.Session{})
	if refused, ok := errors.AsType[*remote.Error](err); !ok || refused.Reason != attachment.NeedsIdentityConflict {
		t.Fatalf("the same ID with other content: %v", err)
	}
	s.append(t, m, again, content, 1000, m.Length)
	s.register(t, s.one, m)
}

// Many reservations of one attachment at one time get one session and one media item.
func (s *suite) reservedTogether(t *testing.T) {
	m := NewManifest(t, fresh(t, contentSize))
	got := make([]uplink.Reservation, 8)
	errs := make([]error, len(got))
	var wg sync.WaitGroup
	for i := range got {
		d := s.one
		if i%2 == 1 {
			d = s.two
		}
		wg.Go(func() { got[i], errs[i] = d.Reserve(t.Context(), m, attachment.Session{}) })
	}
	wg.Wait()
	for i := range got {
		if errs[i] != nil || got[i].Session != got[0].Session || got[i].MediaID != got[0].MediaID {
			t.Errorf("reservation %d: %+v, %v; the first %+v", i, got[i], errs[i], got[0])
		}
	}
}

// Two attachments with the same bytes are two registrations of one media item.
func (s *suite) sameContent(t *testing.T) {
	content := fresh(t, contentSize)
	first := s.deliver(t, NewManifest(t, content), content)
	second := s.deliver(t, NewManifest(t, content), content)
	if first.AttachmentID == second.AttachmentID || first.MediaID != second.MediaID {
		t.Errorf("receipts %+v and %+v", first, second)
	}
}
