package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// ProxyNone is the option's value that goes past every proxy, also one that the environment names.
const ProxyNone = "none"

// proxyOf reads the options of the proxy. The credential is read again whenever its file changes, and put into the URL
// only as the transport takes it.
func proxyOf(o Options, endpoint *url.URL) (func(*http.Request) (*url.URL, error), *proxyKey, error) {
	switch {
	case o.Proxy == ProxyNone, o.Proxy == "" && o.Dial != nil:
		return nil, nil, nil
	case o.Proxy == "":
		return http.ProxyFromEnvironment, nil, nil
	case endpoint.Scheme != "https":
		return nil, nil, fmt.Errorf("%w: a proxy would see what is sent without TLS", ErrBadOptions)
	}
	u, err := url.Parse(o.Proxy)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, nil, fmt.Errorf("%w: the proxy is a URL of scheme and host, without user and password", ErrBadOptions)
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
	default:
		return nil, nil, fmt.Errorf("%w: the proxy is neither http, https nor socks5", ErrBadOptions)
	}
	if o.ProxyCredential == nil {
		return http.ProxyURL(u), nil, nil
	}
	key := &proxyKey{url: u, source: o.ProxyCredential}
	return key.proxy, key, nil
}

// proxyKey is a proxy that asks for a password.
type proxyKey struct {
	url    *url.URL
	source Credential

	mu    sync.Mutex
	stamp string // of the last reading, successful or not
}

var errProxyCredential = errors.New("its credential is not user:password")

func (p *proxyKey) proxy(*http.Request) (*url.URL, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stamp = p.source.Stamp()
	text, err := p.source.Read()
	user, password, ok := strings.Cut(text, ":")
	if err == nil && !ok {
		err = errProxyCredential
	}
	if err != nil {
		return nil, &proxyError{err: err}
	}
	u := *p.url
	u.User = url.UserPassword(user, password)
	return &u, nil
}

func (p *proxyKey) changed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.source.Stamp() != p.stamp
}

// proxyError is a proxy that does not let this device through. Status is its answer to CONNECT, 0 where it was another.
type proxyError struct {
	status int
	err    error
}

// Error says who refused.
func (e *proxyError) Error() string {
	if e.err != nil {
		return "proxy: " + e.err.Error()
	}
	return fmt.Sprintf("the proxy answered %d %s", e.status, http.StatusText(e.status))
}

// Unwrap returns what was the matter with the credential.
func (e *proxyError) Unwrap() error { return e.err }

// proxyAnswered looks at the answer to CONNECT, whose words are the proxy's and not kept.
func proxyAnswered(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{status: resp.StatusCode}
}

// refusedByProxy finds out whether a proxy refused, and with which status. A SOCKS proxy has none: what it says about
// authentication counts as 407, and anything else says that it cannot reach the server (RFC 1928, 6).
func refusedByProxy(err error) (status int, refused bool) {
	if p, ok := errors.AsType[*proxyError](err); ok {
		if p.status == 0 {
			return http.StatusProxyAuthRequired, true
		}
		return p.status, true
	}
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "socks connect" || op.Err == nil {
		return 0, false
	}
	if text := op.Err.Error(); strings.Contains(text, "authentication") || strings.Contains(text, "username/password") {
		return http.StatusProxyAuthRequired, true
	}
	return 0, false
}
