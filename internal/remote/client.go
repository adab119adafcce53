package remote

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"
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
	// CertFile and KeyFile are the paths of the device's own certificate and its key in PEM, for servers that know devices
	// by them; both or none. They are read again when they change. A certificate that CheckCertificate refuses is not used.
	CertFile, KeyFile string
	CheckCertificate  func(*x509.Certificate) error
	// Proxy is the URL of an HTTP or SOCKS5 proxy without user and password, ProxyNone, or empty for what the environment
	// says (http.ProxyFromEnvironment). ProxyCredential gives its user:password; nil: it asks for none.
	Proxy           string
	ProxyCredential Credential
	// Protocol is that of the server; nil is Fieldgw().
	Protocol *Protocol
	// Credential gives the device's token; nil where the protocol needs none, or the certificate stands for it.
	Credential Credential
	// IdleTimeout is the longest time without a byte in either direction; it also bounds dialling and handshake.
	IdleTimeout time.Duration
	// AnswerTimeout is the longest wait for the whole answer after the last byte of a request that makes the server work
	// through stored bytes. Other answers may take that long only as long as bytes move.
	AnswerTimeout time.Duration
	// UserAgent is sent with every request.
	UserAgent string
	Logger    *slog.Logger
	// Dial replaces the network, for tests; nil dials TCP. With it the environment names no proxy.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Running is the time since the machine booted, suspension included; nil: clock.Running.
	Running func() time.Duration
}

// Endpoint is the server's base URL as it was typed.
func (c *Client) Endpoint() *url.URL {
	u := *c.typed
	return &u
}

// Client sends requests to one server. Its methods may be called by several goroutines.
type Client struct {
	endpoint     *url.URL // its path ends with a slash
	typed        *url.URL // as it was typed
	protocol     *Protocol
	keys         keyring
	idle, answer time.Duration
	userAgent    string
	log          *slog.Logger
	network      *network
	moves        moves
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
	if o.Credential == nil && o.CertFile == "" && !o.Protocol.Anonymous || o.Logger == nil {
		return nil, fmt.Errorf("%w: no credential or no logger", ErrBadOptions)
	}
	if o.IdleTimeout < 0 || o.AnswerTimeout < 0 {
		return nil, fmt.Errorf("%w: a timeout is negative", ErrBadOptions)
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = DefaultIdleTimeout
	}
	if o.AnswerTimeout == 0 {
		o.AnswerTimeout = DefaultAnswerTimeout
	}
	network, err := newNetwork(o, typed)
	if err != nil {
		return nil, err
	}
	return &Client{
		endpoint: typed.JoinPath("/"), typed: typed, protocol: o.Protocol,
		keys: keyring{source: o.Credential, check: o.Protocol.check}, userAgent: o.UserAgent, log: o.Logger,
		idle: o.IdleTimeout, answer: o.AnswerTimeout, network: network,
	}, nil
}

// CredentialChanged reports whether the credential is no longer what was last read: after a refused one, trying again
// makes sense. The device's certificate and the proxy's credential count too.
func (c *Client) CredentialChanged() bool { return c.keys.changed() || c.network.changed() }

func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the endpoint is not a URL", ErrBadOptions)
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return nil, fmt.Errorf("%w: the endpoint needs a host, and takes no user, query or fragment", ErrBadOptions)
	case strings.Contains(u.Hostname(), "%"):
		return nil, fmt.Errorf("%w: no certificate names an address with a zone", ErrBadOptions)
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
