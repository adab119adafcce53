// Package client asks the daemon over its control socket.
//
// It owns the connection and the meaning of its failures: whether the daemon is not running, the user may not ask, or the
// daemon refused. It promises bounded memory: lists come page by page, answers have a largest size, submitted files are
// streamed. A request whose connection broke is sent once more: every request of the control API may be repeated. A Client may be
// used from several goroutines.
//
// Read client.go first, then submit.go and events.go for the two streams. The messages are in package control.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/fieldgw/fieldgw/internal/control"
)

// DefaultSocket is where an installed daemon listens.
const DefaultSocket = "/run/fieldgw/control.sock"

const (
	dialTimeout = 5 * time.Second
	// retryAfter is the pause before the one repetition: a restarting daemon is back, or it is not coming.
	retryAfter = 300 * time.Millisecond
)

// Client is a typed client of one daemon.
type Client struct {
	http   *http.Client
	socket string
}

// New makes a client of the daemon at a socket and connects to nothing yet.
func New(socket string) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "unix", socket)
			if err != nil {
				return nil, dialError(socket, err)
			}
			return conn, nil
		},
		MaxIdleConns:    2,
		IdleConnTimeout: 30 * time.Second,
	}
	return &Client{http: &http.Client{Transport: transport}, socket: socket}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the daemon's status.
func (c *Client) Status(ctx context.Context) (control.Status, error) {
	return get[control.Status](ctx, c, "/v1/status", nil)
}

// List returns one page of attachments.
func (c *Client) List(ctx context.Context, q control.ListQuery) (control.Page[control.Item], error) {
	values := paging(q.Cursor, q.Limit)
	for _, condition := range q.Conditions {
		values.Add("condition", string(condition))
	}
	if !q.Parent.Empty() {
		values.Set("parent", q.Parent.Exact())
	}
	if !q.AdoptedBefore.IsZero() {
		values.Set("adopted_before", q.AdoptedBefore.UTC().Format(time.RFC3339Nano))
	}
	return get[control.Page[control.Item]](ctx, c, "/v1/attachments", values)
}

// Get returns everything about the attachment that ref refers to.
func (c *Client) Get(ctx context.Context, ref string) (control.ItemDetail, error) {
	return get[control.ItemDetail](ctx, c, "/v1/attachments/"+url.PathEscape(ref), nil)
}

// NotTaken returns one page of the paths that were not taken.
func (c *Client) NotTaken(ctx context.Context, cursor string, limit int) (control.Page[control.NotTaken], error) {
	return get[control.Page[control.NotTaken]](ctx, c, "/v1/not-taken", paging(cursor, limit))
}

// Records returns one page of records.
func (c *Client) Records(ctx context.Context, q control.RecordQuery) (control.Page[control.Record], error) {
	values := paging(q.Cursor, q.Limit)
	if !q.Parent.Empty() {
		values.Set("parent", q.Parent.Exact())
	}
	return get[control.Page[control.Record]](ctx, c, "/v1/records", values)
}

// Verb is a decision on attachments.
type Verb string

// The verbs.
const (
	Retry      Verb = "retry"
	Prioritize Verb = "prioritize"
	Pause      Verb = "pause"
	Resume     Verb = "resume"
)

// Act has a decision carried out. The outcome tells the refusals of single attachments.
func (c *Client) Act(ctx context.Context, verb Verb, a control.Action) (control.Outcome, error) {
	return post[control.Outcome](ctx, c, "/v1/attachments/"+string(verb), a)
}

// ActOnChannel pauses or resumes all sending.
func (c *Client) ActOnChannel(ctx context.Context, verb Verb, a control.ChannelAction) (control.Outcome, error) {
	return post[control.Outcome](ctx, c, "/v1/channel/"+string(verb), a)
}

// Pages goes through the pages of a list: load is asked for one page after the other. It ends with the list or with an
// error, which is the last thing it yields. A cursor that does not move is ErrBadAnswer.
func Pages[T any](load func(cursor string) (control.Page[T], error)) iter.Seq2[control.Page[T], error] {
	return func(yield func(control.Page[T], error) bool) {
		for cursor := ""; ; {
			p, err := load(cursor)
			if err == nil && p.NextCursor != "" && p.NextCursor == cursor {
				err = fmt.Errorf("%w: the cursor does not move", ErrBadAnswer)
			}
			if !yield(p, err) || err != nil || p.NextCursor == "" {
				return
			}
			cursor = p.NextCursor
		}
	}
}

func paging(cursor string, limit int) url.Values {
	values := url.Values{}
	if cursor != "" {
		values.Set("cursor", cursor)
	}
	if limit > 0 {
		values.Set("limit", strconv.Itoa(limit))
	}
	return values
}

func get[T any](ctx context.Context, c *Client, path string, values url.Values) (T, error) {
	target := "http://fieldgwd" + path
	if len(values) > 0 {
		target += "?" + values.Encode()
	}
	return call[T](ctx, c, func() (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	})
}

func post[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	data, err := json.Marshal(body)
	if err != nil {
		var none T
		return none, fmt.Errorf("encode request: %w", err)
	}
	return call[T](ctx, c, func() (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://fieldgwd"+path, bytes.NewReader(data))
		if err == nil {
			r.Header.Set("Content-Type", "application/json")
		}
		return r, err
	})
}

// call sends a request and decodes the answer.
func call[T any](ctx context.Context, c *Client, request func() (*http.Request, error)) (answer T, err error) {
	response, err := c.send(ctx, request)
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	data, err := readAnswer(response.Body)
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return answer, fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	return answer, nil
}

// send returns a successful response, the daemon's refusal as *control.Error, or what is wrong with the connection.
func (c *Client) send(ctx context.Context, request func() (*http.Request, error)) (*http.Response, error) {
	response, err := c.try(request)
	if err != nil && brokenConnection(err) {
		again := time.NewTimer(retryAfter)
		defer again.Stop()
		select {
		case <-again.C:
			response, err = c.try(request)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	return nil, errors.Join(refusal(response), response.Body.Close())
}

func (c *Client) try(request func() (*http.Request, error)) (*http.Response, error) {
	r, err := request()
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	response, err := c.http.Do(r)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // its text repeats a made-up address
	}
	return response, err
}

// brokenConnection reports whether a second try can help: the daemon restarts, or closed the connection just now.
func brokenConnection(err error) bool {
	for _, cause := range []error{ErrNotRunning, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

func readAnswer(from io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, control.MaxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if len(data) > control.MaxAnswer {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrBadAnswer, control.MaxAnswer)
	}
	return data, nil
}

// refusal reads a problem answer. What is none is ErrBadAnswer.
func refusal(response *http.Response) error {
	data, err := readAnswer(response.Body)
	if err != nil {
		return err
	}
	problem := new(control.Error)
	if err := json.Unmarshal(data, problem); err != nil || problem.Code == "" {
		return fmt.Errorf("%w: status %d without a problem code", ErrBadAnswer, response.StatusCode)
	}
	return problem
}
