package daemon

import (
	"sync"

	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// subscriber is one stream of transitions. Its channel is closed once: by its end, or because it is full.
type subscriber struct {
	mu     sync.Mutex
	closed bool
	events chan control.Transition
}

func (s *subscriber) send(t queue.Transition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	event := control.Transition{
		Seq: t.Seq, At: t.At.UTC(), ID: t.ID, Event: t.Event, From: t.From, To: t.To, Reason: string(t.Reason), Condition: t.Condition,
	}
	select {
	case s.events <- event:
	default:
		s.closed = true
		close(s.events)
	}
}

func (s *subscriber) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.events)
	}
}
