package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fieldgw/fieldgw/internal/control"
)

// events answers GET /v1/events: server-sent events (the HTML standard, section 9.2) of kind "transition" with a
// control.Transition as data, and "gap" when transitions were lost: the client must read again what it cares about. The
// answer's header is sent when the subscription stands, so what a client reads afterwards misses nothing. A comment line
// is the sign of life.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	release, err := s.subscribers.take()
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(r.Context())
	backlog := newBacklog(maxBacklog)
	filled := make(chan struct{})
	transitions := s.backend.Subscribe(ctx)
	go func() {
		defer close(filled)
		backlog.fill(ctx, transitions)
	}()
	defer func() { cancel(); <-filled }()

	out := &eventWriter{w: w, control: http.NewResponseController(w), limit: s.timing.answer}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	beat := time.NewTicker(s.timing.heartbeat)
	defer beat.Stop()
	for err := out.send(": subscribed\n\n"); err == nil; {
		select {
		case <-s.stopping:
			return nil
		case <-ctx.Done():
			return nil
		case <-beat.C:
			err = out.send(": alive\n\n")
		case <-backlog.ready:
			batch, lost, ended := backlog.take()
			err = out.sendBatch(batch, lost || ended)
			if ended {
				return nil
			}
		}
	}
	return nil // the client is gone or too slow for one event: there is nobody to tell
}

// eventWriter writes events, each within a time limit.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

func (e *eventWriter) send(text string) error {
	if err := e.control.SetWriteDeadline(time.Now().Add(e.limit)); err != nil {
		return err
	}
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.control.Flush()
}

// sendBatch writes transitions. Lost ones are older than those in the batch, so their gap comes first.
func (e *eventWriter) sendBatch(batch []control.Transition, gap bool) error {
	if gap {
		if err := e.send("event: gap\ndata: {}\n\n"); err != nil {
			return err
		}
	}
	for _, t := range batch {
		t.Schema = control.SchemaTransition
		data, err := json.Marshal(t)
		if err != nil {
			return fmt.Errorf("encode transition %d: %w", t.Seq, err)
		}
		if err := e.send(fmt.Sprintf("id: %d\nevent: transition\ndata: %s\n\n", t.Seq, data)); err != nil {
			return err
		}
	}
	return nil
}

// backlog takes transitions from the backend without ever making it wait, and keeps a bounded number for the client.
type backlog struct {
	ready chan struct{} // one token: there is something to take
	limit int

	mu    sync.Mutex
	kept  []control.Transition
	lost  bool
	ended bool
}

func newBacklog(limit int) *backlog {
	return &backlog{ready: make(chan struct{}, 1), limit: limit}
}

// fill runs until the backend ends the subscription or ctx ends.
func (b *backlog) fill(ctx context.Context, from <-chan control.Transition) {
	for {
		select {
		case <-ctx.Done():
			return
		case t, open := <-from:
			b.put(t, open)
			if !open {
				return
			}
		}
	}
}

// put keeps a transition. When there is no room, all that was kept is lost: the client has to read again anyway.
func (b *backlog) put(t control.Transition, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !open:
		b.ended = true
	case len(b.kept) == b.limit:
		b.kept = append(b.kept[:0], t)
		b.lost = true
	default:
		b.kept = append(b.kept, t)
	}
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take hands over what was kept. lost: something before it was dropped; ended: nothing more will come.
func (b *backlog) take() (batch []control.Transition, lost, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch, lost, ended = b.kept, b.lost, b.ended
	b.kept, b.lost = nil, false
	return batch, lost, ended
}
