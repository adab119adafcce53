package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"syscall"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// ErrNotRunning is returned by Dial when no server answers on the directory's control socket.
var ErrNotRunning = errors.New("no server runs on this directory")

// maxAnswer bounds an answer over the socket, in bytes: a page of attachments, or all tokens.
const maxAnswer = 64 << 20

// Client asks a running server over its control socket.
type Client struct{ http http.Client }

// Dial returns a client of the server that runs on a data directory. Errors: ErrNotRunning.
func Dial(ctx context.Context, dir string) (*Client, error) {
	path := filepath.Join(dir, socketName)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		address, done, err := reachable(path)
		if err != nil {
			return nil, err
		}
		conn, err := new(net.Dialer).DialContext(ctx, "unix", address)
		return conn, errors.Join(err, done())
	}
	probe, err := dial(ctx, "", "")
	if durable.IsNotExist(err) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("ask server in %s: %w", dir, ErrNotRunning)
	}
	if err != nil {
		return nil, fmt.Errorf("ask server: %w", err)
	}
	if err := probe.Close(); err != nil {
		return nil, fmt.Errorf("ask server: %w", err)
	}
	return &Client{http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}, nil
}

// CreateToken makes a token.
func (c *Client) CreateToken(ctx context.Context, r TokenRequest) (NewToken, error) {
	return ask[NewToken](ctx, c, http.MethodPost, "/tokens", r)
}

// RevokeToken ends a token.
func (c *Client) RevokeToken(ctx context.Context, id string) (Token, error) {
	return ask[Token](ctx, c, http.MethodPost, "/tokens/"+url.PathEscape(id)+"/revoke", nil)
}

// Tokens lists all tokens.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	return ask[[]Token](ctx, c, http.MethodGet, "/tokens", nil)
}

// Attachments lists a page of attachments.
func (c *Client) Attachments(ctx context.Context, q Query) ([]store.Attachment, error) {
	values := url.Values{"account": {q.Account}, "after": {q.After}, "after_id": {q.AfterID}}
	return ask[[]store.Attachment](ctx, c, http.MethodGet, "/attachments?"+values.Encode(), nil)
}

// Attachment shows one attachment.
func (c *Client) Attachment(ctx context.Context, account, id string) (store.Attachment, error) {
	return ask[store.Attachment](ctx, c, http.MethodGet, attachmentPath(account, id), nil)
}

// VerifyAttachment has a content read back.
func (c *Client) VerifyAttachment(ctx context.Context, account, id string) (Finding, error) {
	return ask[Finding](ctx, c, http.MethodPost, attachmentPath(account, id)+"/verify", nil)
}

func attachmentPath(account, id string) string {
	return "/attachments/" + url.PathEscape(account) + "/" + url.PathEscape(id)
}

// ask does one request and turns a problem back into its error.
func ask[T any](ctx context.Context, c *Client, method, path string, message any) (answer T, err error) {
	var body io.Reader
	if message != nil {
		text, err := json.Marshal(message)
		if err != nil {
			return answer, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://control"+path, body)
	if err != nil {
		return answer, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer, fmt.Errorf("ask server: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	dec := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		var p wire.Problem
		if err := dec.Decode(&p); err != nil {
			return answer, fmt.Errorf("ask server: %s: %w", resp.Status, err)
		}
		return answer, refusal(p)
	}
	if err := dec.Decode(&answer); err != nil {
		return answer, fmt.Errorf("ask server: %w", err)
	}
	return answer, nil
}

// refusal is the error that a problem over the socket stands for.
func refusal(p wire.Problem) error {
	for _, r := range refusals {
		if p.Code == r.code {
			return &told{text: p.Detail, err: r.err}
		}
	}
	return fmt.Errorf("server answered %s: %s", p.Code, p.Detail)
}

// told is a refusal with the server's own words.
type told struct {
	text string
	err  error
}

func (t *told) Error() string { return t.text }

// Unwrap is the error of the refusal.
func (t *told) Unwrap() error { return t.err }
