package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/fieldgw/fieldgw/internal/clock"
)

// network is the way to the server: proxy, connections and the device's certificate.
type network struct {
	log     *slog.Logger
	idle    time.Duration
	dial    dialFunc
	proxy   func(*http.Request) (*url.URL, error)
	secret  *proxyKey // nil where the proxy asks for nothing
	roots   *x509.CertPool
	cert    *certificate // nil without one
	open    openConns
	running func() time.Duration

	mu     sync.Mutex
	planes *planes
	sleep  clock.SleepDetector
}

// planes are the two kinds of requests. A call may share a connection with others by HTTP/2 where the server offers it.
// An append then has a connection of its own (HTTP/1.1): one loss on the way, or one stream that nobody reads, stops no
// other; the receive window of one connection does not bound all of them; and the bytes that move on it are its own.
// Where the server offers HTTP/1.1 alone, both use the same connections, one request after another.
type planes struct {
	calls, appends, apart *retryablehttp.Client
	multiplexed           atomic.Bool // a call was sent by HTTP/2
}

// of returns the client to send with.
func (p *planes) of(stream bool) *retryablehttp.Client {
	switch {
	case !stream:
		return p.calls
	case p.multiplexed.Load():
		return p.apart
	}
	return p.appends
}

func newNetwork(o Options, endpoint *url.URL) (*network, error) {
	n := &network{log: o.Logger, idle: o.IdleTimeout, running: o.Running}
	var err error
	if n.roots, err = readRoots(o.CAFile); err != nil {
		return nil, err
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, fmt.Errorf("%w: a certificate without its key, or a key without its certificate", ErrBadOptions)
	}
	if o.CertFile != "" {
		n.cert = &certificate{certFile: o.CertFile, keyFile: o.KeyFile, check: o.CheckCertificate, log: o.Logger}
	}
	if n.running == nil {
		n.running = clock.Running
	}
	if n.proxy, n.secret, err = proxyOf(o, endpoint); err != nil {
		return nil, err
	}
	n.dial = n.open.watched(o.Dial, n.idle)
	n.sleep.Observe(time.Now(), n.running())
	n.planes = n.build()
	return n, nil
}

// ready is asked before each request. It returns the planes to send by, after it left behind what cannot be used any more:
// connections from before a suspension, and those that were made with a certificate which has been replaced.
func (n *network) ready() (*planes, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sleep.Observe(time.Now(), n.running()) > 0 {
		n.planes.closeIdle()
	}
	if n.cert == nil {
		return n.planes, nil
	}
	replaced, err := n.cert.refresh(time.Now())
	if replaced {
		n.planes.closeIdle()
		n.planes = n.build()
	}
	return n.planes, err
}

// changed reports whether a file of the way to the server is no longer what was last read.
func (n *network) changed() bool {
	return n.cert != nil && n.cert.changed() || n.secret != nil && n.secret.changed()
}

func (n *network) build() *planes {
	both := n.client(true)
	return &planes{calls: retrying(both, quickRetries), appends: retrying(both, 0), apart: retrying(n.client(false), 0)}
}

func (n *network) client(http2 bool) *http.Client {
	t := &http.Transport{
		DialContext:            n.dial,
		Proxy:                  n.proxy,
		OnProxyConnectResponse: proxyAnswered,
		TLSClientConfig:        &tls.Config{RootCAs: n.roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    n.idle,
		MaxResponseHeaderBytes: maxHeader,
		MaxConnsPerHost:        maxConns,
		MaxIdleConnsPerHost:    idleConns,
		IdleConnTimeout:        idleConnTime,
		ExpectContinueTimeout:  continueWait,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(http2)
	if n.cert != nil {
		t.TLSClientConfig.GetClientCertificate = n.cert.give
	}
	return &http.Client{
		Transport: t,
		// Portals redirect, and the token must not follow. Where a protocol has redirects, Client.follow looks at each.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// retrying wraps an HTTP client. Bodies are given to it as functions and lengths are set: it would rewind a file to its
// beginning, or hold a reader's content in memory.
func retrying(client *http.Client, retries int) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   client,
		RetryMax:     retries,
		RetryWaitMin: quickRetryFrom,
		RetryWaitMax: quickRetryTo,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
		CheckRetry: func(ctx context.Context, _ *http.Response, err error) (bool, error) {
			return err != nil && ctx.Err() == nil && wasConnected(ctx) && !isCertificate(err) && !isOwnCertificate(err), nil
		},
		Backoff: func(from, to time.Duration, _ int, _ *http.Response) time.Duration {
			return from + rand.N(to-from)
		},
	}
}

func (p *planes) closeIdle() {
	p.calls.HTTPClient.CloseIdleConnections()
	p.apart.HTTPClient.CloseIdleConnections()
}

// CloseIdle closes connections that are not in use.
func (c *Client) CloseIdle() { c.network.closeIdle() }

func (n *network) closeIdle() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.planes.closeIdle()
}

// LinkChanged is to be called when addresses or routes of this machine changed. It closes the connections that are not in
// use, and ends those that are in use and cannot get on: their address is gone, or the server is now reached by another
// interface. Their requests fail with ErrMoved, calls are repeated at once. It returns how many it ended.
func (c *Client) LinkChanged() int {
	c.network.closeIdle()
	return c.network.open.end(strandedNow())
}

// Woke is to be called when the machine was suspended: no connection of before is used any more.
func (c *Client) Woke() int {
	c.network.closeIdle()
	return c.network.open.end(func(*watchedConn) bool { return true })
}
