package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/control"
)

// source is a backend's end of one subscription.
type source struct {
	c     chan control.Transition
	ended chan struct{} // closed when the server let go
}

func newSource() (*source, *stub) {
	s := &source{c: make(chan control.Transition), ended: make(chan struct{})}
	return s, &stub{subscribe: func(ctx context.Context) <-chan control.Transition {
		context.AfterFunc(ctx, func() { close(s.ended) })
		return s.c
	}}
}

// stream opens an event stream and returns its lines.
func stream(t *testing.T, v *served) *bufio.Scanner {
	t.Helper()
	c, err := net.Dial("unix", v.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprint(c, "GET /v1/events HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(c)
	expect(t, lines, ": subscribed")
	return lines
}

// expect reads up to a line that begins with text and returns it.
func expect(t *testing.T, lines *bufio.Scanner, text string) string {
	t.Helper()
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), text) {
			return lines.Text()
		}
	}
	t.Fatalf("the stream ended before %q: %v", text, lines.Err())
	return ""
}

// A transition reaches a subscriber complete, with its number as the event's ID, and a silent stream gives signs of life.
func TestEvents(t *testing.T) {
	from, b := newSource()
	v := serve(t, b, func(w *timing) { w.heartbeat = 20 * time.Millisecond })
	lines := stream(t, v)
	expect(t, lines, ": alive")
	want := control.Transition{Seq: 7, ID: someIDs[0], Event: "adopted", To: "captured", Condition: "captured"}
	from.c <- want
	expect(t, lines, "id: 7")
	expect(t, lines, "event: transition")
	var got control.Transition
	if err := json.Unmarshal([]byte(strings.TrimPrefix(expect(t, lines, "data: "), "data: ")), &got); err != nil {
		t.Fatal(err)
	}
	want.Schema = control.SchemaTransition
	if got != want {
		t.Errorf("got %+v", got)
	}
}

// A subscriber that does not read never delays the backend; when it reads again it is told of the gap and then gets the latest.
func TestSlowSubscriberGetsGap(t *testing.T) {
	from, b := newSource()
	lines := stream(t, serve(t, b, nil))
	const last = 20_000 // some megabytes: more than the socket's buffer and the backlog hold
	for i := range uint64(last) {
		from.c <- control.Transition{Seq: i + 1, ID: someIDs[0], Reason: strings.Repeat("x", 200)}
	}
	expect(t, lines, "event: gap")
	expect(t, lines, fmt.Sprintf("id: %d", last))
}

// When the backend ends a subscription the client hears of a gap and the stream ends.
func TestBackendEndsSubscription(t *testing.T) {
	from, b := newSource()
	lines := stream(t, serve(t, b, nil))
	close(from.c)
	expect(t, lines, "event: gap")
	for lines.Scan() {
		if lines.Text() != "data: {}" && lines.Text() != "" {
			t.Errorf("after the end: %q", lines.Text())
		}
	}
	receive(t, from.ended)
}

// A client that goes away ends its subscription; a daemon that stops ends the streams at once.
func TestEventsEnd(t *testing.T) {
	from, b := newSource()
	v := serve(t, b, nil)
	c, err := net.Dial("unix", v.socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(c, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	receive(t, from.ended)

	from, b = newSource()
	v = serve(t, b, func(w *timing) { w.drain = time.Hour })
	lines := stream(t, v)
	if err := v.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	for lines.Scan() {
	}
	receive(t, from.ended)
}

// The number of subscribers is bounded.
func TestSubscribersAreBounded(t *testing.T) {
	v := serve(t, &stub{subscribe: func(context.Context) <-chan control.Transition { return nil }}, nil)
	for range maxSubscribers {
		stream(t, v)
	}
	v.refused(t, control.CodeBusy, http.MethodGet, "/v1/events", "", nil)
}
