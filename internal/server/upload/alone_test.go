package upload

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// A file is not verified, which gives it a name for ever, while an append may still write to it: one that began before
// its length was told.
func TestVerificationWaitsForAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, closed := newEngine(t, 4)
		defer closed()
		if err := e.store.Void(t.Context(), "acme", "a", 1, store.VoidLost); err != nil {
			t.Fatal(err)
		}
		e.limits.Room, e.limits.MaxLength, e.limits.SessionsPerAccount = func() (int64, error) { return 1 << 30, nil }, 1<<20, 1
		s, err := e.Create(t.Context(), device, Creation{Length: store.UnknownLength})
		if err != nil {
			t.Fatal(err)
		}
		body := Body{Reader: bytes.NewReader([]byte("0123")), Length: 4, Deadline: func(time.Time) error { return nil }}
		if _, err := e.Append(t.Context(), device, s.ID, 0, body); err != nil {
			t.Fatal(err)
		}
		older := newPace(body, time.Hour)
		if other, err := e.enter(device, s.ID, older); other != nil || err != nil {
			t.Fatal(other, err)
		}
		if _, err := e.SetLength(t.Context(), device, s.ID, 4); err != nil {
			t.Fatal(err)
		}
		state := func() wire.AttachmentState {
			a, err := e.store.Attachment(t.Context(), "acme", s.AttachmentID)
			if err != nil {
				t.Fatal(err)
			}
			return a.State
		}
		done := make(chan error, 1)
		go func() {
			_, err := e.Session(t.Context(), device, s.ID)
			done <- err
		}()
		synctest.Wait()
		if got := state(); got != wire.StateReserved {
			t.Errorf("%s while an append is in the session", got)
		}
		e.leave(device, s.ID, older)
		if err := <-done; err != nil || state() != wire.StateRegistered {
			t.Errorf("%s afterwards, %v", state(), err)
		}
	})
}
