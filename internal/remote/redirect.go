package remote

import (
	"context"
	"net/http"
	"net/url"
	"sync"
)

const (
	// maxRedirects bounds how often one request is sent elsewhere.
	maxRedirects = 3
	// maxMoves bounds the memory of moves; beyond it all are asked for again.
	maxMoves = 256
)

// follow sends, and sends again where the server says that the resource moved (307, 308), within its own origin and where
// the protocol has that. A permanent move is remembered.
func (c *Client) follow(ctx context.Context, t transfer, token string) (*Response, *Error) {
	t.url = c.moves.last(t.url)
	for hops := 0; ; hops++ {
		resp, failed := c.attempt(ctx, t, token)
		failed = failed.conceal(token)
		if failed == nil || failed.location == "" || hops == maxRedirects || !c.protocol.Redirects {
			return resp, failed
		}
		to, err := c.resolve(t.url, failed.location)
		if err != nil || to.String() == t.url.String() {
			return nil, failed
		}
		if failed.Status == http.StatusPermanentRedirect {
			c.moves.add(t.url, to)
		}
		t.url = to
	}
}

// moves are the resources that moved for good.
type moves struct {
	mu sync.Mutex
	to map[string]*url.URL
}

func (m *moves) add(from, to *url.URL) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.to == nil || len(m.to) >= maxMoves {
		m.to = map[string]*url.URL{}
	}
	m.to[from.String()] = to
}

// last is where a resource is now, as far as is known.
func (m *moves) last(u *url.URL) *url.URL {
	m.mu.Lock()
	defer m.mu.Unlock()
	for range maxRedirects {
		to, moved := m.to[u.String()]
		if !moved {
			break
		}
		u = to
	}
	return u
}
