package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(1000 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.cert, a.key = a.issue(t, a.cert)
	return a
}

// issue signs a template, by itself where there is no key yet.
func (a authority) issue(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return cert, key
}

// device issues a certificate of a device.
func (a authority) device(t *testing.T, change func(*x509.Certificate), uris ...string) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, text := range uris {
		u, err := url.Parse(text)
		check(t, err)
		template.URIs = append(template.URIs, u)
	}
	if change != nil {
		change(template)
	}
	cert, _ := a.issue(t, template)
	return cert
}

// Without a token the certificate tells account and device. Every other certificate is refused like a wrong token, and a
// token that is there decides alone.
func TestClientCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	now := time.Now()
	r := newRig(t, func(o *Options) { o.ClientCAs, o.Now = pool, func() time.Time { return now } })
	intermediate, key := ours.issue(t, &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "between"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	between := authority{intermediate, key}
	const uri = "fieldgw:acme:tablet-9"
	for name, c := range map[string]struct {
		chain  []*x509.Certificate
		token  string
		status int
		who    string
	}{
		"ours":                    {[]*x509.Certificate{ours.device(t, nil, uri)}, "", 200, "acme/tablet-9"},
		"other URIs beside":       {[]*x509.Certificate{ours.device(t, nil, "https://x.example/", uri)}, "", 200, "acme/tablet-9"},
		"through another":         {[]*x509.Certificate{between.device(t, nil, uri), intermediate}, "", 200, "acme/tablet-9"},
		"the one between missing": {[]*x509.Certificate{between.device(t, nil, uri)}, "", 401, ""},
		"another authority's":     {[]*x509.Certificate{theirs.device(t, nil, uri)}, "", 401, ""},
		"without URI":             {[]*x509.Certificate{ours.device(t, nil)}, "", 401, ""},
		"two devices":             {[]*x509.Certificate{ours.device(t, nil, uri, "fieldgw:acme:tablet-8")}, "", 401, ""},
		"no account":              {[]*x509.Certificate{ours.device(t, nil, "fieldgw:unassigned:tablet-8")}, "", 401, ""},
		"expired":                 {[]*x509.Certificate{ours.device(t, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }, uri)}, "", 401, ""},
		"a server's": {[]*x509.Certificate{ours.device(t, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}, uri)}, "", 401, ""},
		"none":                    {nil, "", 401, ""},
		"token beside":            {[]*x509.Certificate{ours.device(t, nil, uri)}, r.token, 200, "acme/tablet-1"},
		"wrong token beside ours": {[]*x509.Certificate{ours.device(t, nil, uri)}, r.token + "x", 401, ""},
	} {
		req := httptest.NewRequest(http.MethodGet, "/v1/attachments", nil)
		req.TLS = &tls.ConnectionState{PeerCertificates: c.chain}
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		answer := httptest.NewRecorder()
		r.server.Handler().ServeHTTP(answer, req)
		who, err := r.server.identify(req)
		if answer.Code != c.status || (err == nil) != (c.status == 200) || err == nil && who.Account+"/"+who.Device != c.who {
			t.Errorf("%s: %d, %+v, %v", name, answer.Code, who, err)
		}
	}
	r.reopen(func(o *Options) { o.ClientCAs = nil })
	req := httptest.NewRequest(http.MethodGet, "/v1/attachments", nil)
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{ours.device(t, nil, uri)}}
	if _, err := r.server.identify(req); err == nil {
		t.Error("a server without authorities takes a certificate")
	}
}
