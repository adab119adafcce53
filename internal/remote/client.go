package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// Limits that no option changes.
const (
	// DefaultIdleTimeout and DefaultAnswerTimeout stand for zero options.
	DefaultIdleTimeout   = 30 * time.Second
	DefaultAnswerTimeout = 5 * time.Minute
	// MaxRetryAfter bounds what is believed of a Retry-After.
	MaxRetryAfter = 24 * time.Hour

	maxHeader      = 64 << 10         // bytes of an answer's header
	maxConns       = 32               // at one time; four for each of the most workers, and some for the control plane
	idleConns      = 8                // kept for the next request
	idleConnTime   = 90 * time.Second // how long
	continueWait   = 2 * time.Second  // for 100 Continue, before the body is sent anyway
	continueAbove  = 64 << 10         // bytes of a body that is announced by Expect: 100-continue (RFC 9110, 10.1.1)
	quickRetries   = 1                // of a call whose connection broke
	quickRetryFrom = 100 * time.Millisecond
	quickRetryTo   = 500 * time.Millisecond
)

// Options are what a Client needs.
type Options struct {
	// Endpoint is the server's base URL: https, or http to a loopback address; it may have a path.
	Endpoint string
	// CAFile is the path of PEM certificates that the server's must lead to; empty: the system's. It is read once.
	CAFile string
	// Protocol is that of the server; nil is Fieldgw().
	Protocol *Protocol
	// Credential gives the device's token; nil where the protocol needs none.
	Credential Credential
	// IdleTimeout is the longest time without a byte in either direction; it also bounds dialling and handshake.
	IdleTimeout time.Duration
	// AnswerTimeout is the longest wait for the whole answer after the last byte of a request that makes the server work
	// through stored bytes. Other answers may take that long only as long as bytes move.
	AnswerTimeout time.Duration
	// UserAgent is sent with every request.
	UserAgent string
	Logger    *slog.Logger
	// Dial replaces the network, for tests; nil dials TCP, through the proxy that the environment names.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Endpoint is the server's base URL as it was typed.
func (c *Client) Endpoint() *url.URL {
	u := *c.typed
	return &u
}

// Client sends requests to one server. Its methods may be called by several goroutines.
type Client struct {
	endpoint      *url.URL // its path ends with a slash
	typed         *url.URL // as it was typed
	protocol      *Protocol
	keys          keyring
	idle, answer  time.Duration
	userAgent     string
	log           *slog.Logger
	http          *http.Client
	calls, stream *retryablehttp.Client
}

// New makes a client and reads the CA file. It connects to nothing and does not read the credential. Errors wrap
// ErrBadOptions, or are those of reading the CA file.
func New(o Options) (*Client, error) {
	if o.Protocol == nil {
		o.Protocol = Fieldgw()
	}
	typed, err := parseEndpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	if o.Credential == nil && !o.Protocol.Anonymous || o.Logger == nil {
		return nil, fmt.Errorf("%w: no credential or no logger", ErrBadOptions)
	}
	if o.IdleTimeout < 0 || o.AnswerTimeout < 0 {
		return nil, fmt.Errorf("%w: a timeout is negative", ErrBadOptions)
	}
	roots, err := readRoots(o.CAFile)
	if err != nil {
		return nil, err
	}
	c := &Client{
		endpoint: typed.JoinPath("/"), typed: typed, protocol: o.Protocol,
		keys: keyring{source: o.Credential, check: o.Protocol.check}, userAgent: o.UserAgent, log: o.Logger,
		idle: o.IdleTimeout, answer: o.AnswerTimeout,
	}
	if c.idle == 0 {
		c.idle = DefaultIdleTimeout
	}
	if c.answer == 0 {
		c.answer = DefaultAnswerTimeout
	}
	c.http = &http.Client{
		Transport: c.transport(o.Dial, roots),
		// Our server redirects nobody. A portal does, and the token must not follow.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.calls, c.stream = c.retrying(quickRetries), c.retrying(0)
	return c, nil
}

// CloseIdle closes connections that are not in use. Call it when the way to the server changed: they may be dead without
// knowing it.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// CredentialChanged reports whether the credential is no longer what was last read: after a refused one, trying again
// makes sense.
func (c *Client) CredentialChanged() bool { return c.keys.changed() }

func (c *Client) transport(dial dialFunc, roots *x509.CertPool) *http.Transport {
	t := &http.Transport{
		DialContext:            watchedDial(dial, c.idle),
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    c.idle,
		MaxResponseHeaderBytes: maxHeader,
		MaxConnsPerHost:        maxConns,
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        idleConnTime,
		ExpectContinueTimeout:  continueWait,
		Protocols:              new(http.Protocols),
	}
	// One connection for each request under way: bytes that move belong to that request, and a stalled transfer stops
	// no other.
	t.Protocols.SetHTTP1(true)
	if dial == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	return t
}

// retrying wraps the HTTP client. Bodies are given to it as functions and lengths are set: it would rewind a file to its
// beginning, or hold a reader's content in memory.
func (c *Client) retrying(retries int) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   c.http,
		RetryMax:     retries,
		RetryWaitMin: quickRetryFrom,
		RetryWaitMax: quickRetryTo,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
		CheckRetry: func(ctx context.Context, _ *http.Response, err error) (bool, error) {
			return err != nil && ctx.Err() == nil && wasConnected(ctx) && !isCertificate(err), nil
		},
		Backoff: func(from, to time.Duration, _ int, _ *http.Response) time.Duration {
			return from + rand.N(to-from)
		},
	}
}

func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the endpoint is not a URL", ErrBadOptions)
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return nil, fmt.Errorf("%w: the endpoint needs a host, and takes no user, query or fragment", ErrBadOptions)
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return nil, fmt.Errorf("%w: the endpoint is neither https nor http to this machine", ErrBadOptions)
	}
	return u, nil
}

func isLoopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

func readRoots(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read CA file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: the CA file %s has no certificate in PEM", ErrBadOptions, path)
	}
	return roots, nil
}

// Resolve checks an address that was resolved before and stored, and reads one relative to the endpoint. The token is sent
// there, so another scheme or host than the endpoint's is refused with ErrForeign.
func (c *Client) Resolve(address string) (*url.URL, error) { return c.resolve(c.endpoint, address) }

func (c *Client) resolve(base *url.URL, address string) (*url.URL, error) {
	ref, err := url.Parse(address)
	if err != nil || address == "" {
		return nil, fmt.Errorf("resolve address: %w: not a URL", ErrForeign)
	}
	u := base.ResolveReference(ref)
	if u.Scheme != c.endpoint.Scheme || hostPort(u) != hostPort(c.endpoint) || u.User != nil || u.Opaque != "" {
		return nil, fmt.Errorf("resolve address: %w: it leads elsewhere than the endpoint", ErrForeign)
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// hostPort is the host with the port that is really used.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
