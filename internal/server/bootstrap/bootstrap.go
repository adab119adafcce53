// Package bootstrap makes what a server needs to be of use without any configuration: a certificate and one token.
//
// It owns the files that devices are pointed at: tls/cert.pem, tls/key.pem and device.token in the data directory. It
// promises that a file is made once and never replaced while it is whole, that secrets have mode 0600 and are not
// logged, and that a crash at any point is mended by the next start. Read it with the table in package server.
package bootstrap

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"time"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/admin"
)

// Names in the data directory.
const (
	tlsDir    = "tls"
	certFile  = "cert.pem"
	keyFile   = "key.pem"
	tokenFile = "device.token"
)

// The account and device of the token that the first start makes.
const (
	Account = "default"
	Device  = "device"
)

// lifetime is how long a self-signed certificate lasts; devices hold it as their CA and cannot be told of a new one.
const lifetime = 10 * 365 * 24 * time.Hour

// backdate makes up for devices whose clock is slow.
const backdate = 24 * time.Hour

// ErrKeyMissing is returned by Certificate when the certificate is there and its key is not: a new pair would shut out
// every device that trusts the old one.
var ErrKeyMissing = errors.New("certificate without its key; restore the key, or remove the certificate to make both anew")

// Certificate returns the paths of the self-signed certificate and its key, which it makes where they are missing. The
// certificate names 127.0.0.1, ::1 and localhost and is its own CA.
func Certificate(fs *durable.FS, dir string, now time.Time) (cert, key string, err error) {
	home := filepath.Join(dir, tlsDir)
	cert, key = filepath.Join(home, certFile), filepath.Join(home, keyFile)
	if err := fs.MkdirAll(home, 0o700); err != nil {
		return "", "", fmt.Errorf("make certificate: %w", err)
	}
	if err := fs.ClearTemps(home); err != nil {
		return "", "", fmt.Errorf("make certificate: %w", err)
	}
	have, err := fs.Exists(cert)
	if err != nil {
		return "", "", fmt.Errorf("look for certificate: %w", err)
	}
	if have {
		if have, err = fs.Exists(key); err == nil && !have {
			err = ErrKeyMissing
		}
		if err != nil {
			return "", "", fmt.Errorf("look for key of %s: %w", cert, err)
		}
		return cert, key, nil
	}
	pair, err := selfSigned(now)
	if err != nil {
		return "", "", fmt.Errorf("make certificate: %w", err)
	}
	if err := fs.WriteFile(key, pair.key, 0o600); err != nil {
		return "", "", fmt.Errorf("make certificate: %w", err)
	}
	if err := fs.WriteFile(cert, pair.cert, 0o644); err != nil {
		return "", "", fmt.Errorf("make certificate: %w", err)
	}
	return cert, key, nil
}

type pemPair struct{ cert, key []byte }

func selfSigned(now time.Time) (pemPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pemPair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pemPair{}, err
	}
	template := x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: "fieldgw-server"},
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},

		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return pemPair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pemPair{}, err
	}
	var pair pemPair
	var buf bytes.Buffer
	if err := pem.Encode(&buf, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return pemPair{}, err
	}
	pair.cert = bytes.Clone(buf.Bytes())
	buf.Reset()
	if err := pem.Encode(&buf, &pem.Block{Type: "PRIVATE KEY", Bytes: secret}); err != nil {
		return pemPair{}, err
	}
	pair.key = buf.Bytes()
	return pair, nil
}

// TLS returns the configuration to serve with: TLS 1.2 and later, HTTP/1.1 only. In HTTP/2 all appends of a device would
// share one connection, and one loss on the way would hold up all of them. With authorities clients are asked for a
// certificate, which is judged with each request: a handshake that fails could not tell them why.
func TLS(cert, key string, clients *x509.CertPool) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load certificate: %w", err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if clients != nil {
		conf.ClientAuth, conf.ClientCAs = tls.RequestClientCert, clients
	}
	return conf, nil
}

// Token returns the path of the first start's token file, or nothing where that was never made. With no token at all on
// record it makes one: the file first, since a recorded token whose text nobody has is of no use.
func Token(ctx context.Context, fs *durable.FS, dir string, a *admin.Admin) (path string, err error) {
	path = filepath.Join(dir, tokenFile)
	all, err := a.Tokens(ctx)
	if err != nil {
		return "", fmt.Errorf("look for tokens: %w", err)
	}
	if len(all) > 0 {
		have, err := fs.Exists(path)
		if err != nil || !have {
			return "", err
		}
		return path, nil
	}
	t, err := admin.GenerateToken(Account, Device)
	if err != nil {
		return "", err
	}
	if err := fs.WriteFile(path, []byte(t.Text()+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write token file: %w", err)
	}
	if _, err := a.Adopt(ctx, t, nil); err != nil {
		return "", err
	}
	return path, nil
}
