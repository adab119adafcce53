package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/fieldgw/fieldgw/internal/control"
)

// maxLine bounds one line of an event stream, in bytes.
const maxLine = 256 << 10

// Event is one message of the stream.
type Event struct {
	// Gap: transitions were lost; read again what matters. Transition is empty then.
	Gap        bool
	Transition control.Transition
}

// Events is a subscription.
type Events struct {
	body  io.ReadCloser
	lines *bufio.Scanner
}

// Subscribe begins to receive transitions. When it returns, every later transition will be told or be a gap. The stream ends
// with ctx.
func (c *Client) Subscribe(ctx context.Context) (*Events, error) {
	response, err := c.send(ctx, func() (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, "http://fieldgwd/v1/events", nil)
	})
	if err != nil {
		return nil, err
	}
	return newEvents(response.Body), nil
}

func newEvents(body io.ReadCloser) *Events {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	return &Events{body: body, lines: lines}
}

// Next waits for the next message. It returns io.EOF when the daemon ended the stream, and errors that wrap ErrBadAnswer when
// the stream is not what it should be.
func (e *Events) Next() (Event, error) {
	var kind string
	var data []byte
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			if event, ok, err := parse(kind, data); ok || err != nil {
				return event, err
			}
			kind, data = "", nil
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			kind = string(value)
		case "data":
			data = append(data, value...)
		}
		if len(data) > maxLine {
			return Event{}, fmt.Errorf("%w: an event larger than %d bytes", ErrBadAnswer, maxLine)
		}
	}
	switch err := e.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return Event{}, fmt.Errorf("%w: %w", ErrBadAnswer, err)
	case err != nil:
		return Event{}, fmt.Errorf("read events: %w", err)
	}
	return Event{}, io.EOF
}

// parse makes an event of what stood between two empty lines; kinds it does not know are skipped.
func parse(kind string, data []byte) (event Event, ok bool, err error) {
	switch kind {
	case "gap":
		return Event{Gap: true}, true, nil
	case "transition":
		if err := json.Unmarshal(data, &event.Transition); err != nil {
			return Event{}, false, fmt.Errorf("%w: %w", ErrBadAnswer, err)
		}
		return event, true, nil
	}
	return Event{}, false, nil
}

// Close ends the subscription.
func (e *Events) Close() error { return e.body.Close() }
