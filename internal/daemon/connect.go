package daemon

import (
	"crypto/x509"
	"fmt"

	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/fieldgw"
)

// kind is how one driver of the configuration is made.
type kind struct {
	protocol func() *remote.Protocol
	driver   func(cfg *config.Config, client *remote.Client) (uplink.Driver, error)
}

// kinds are the drivers that there are.
var kinds = map[config.Driver]kind{
	config.DriverFieldgw: {remote.Fieldgw, func(_ *config.Config, client *remote.Client) (uplink.Driver, error) {
		return fieldgw.New(client), nil
	}},
}

// connect builds the uplink. It opens no connection.
func (s *session) connect() error {
	u := s.cfg.Uplink
	made, ok := kinds[u.Driver]
	if !ok {
		return fmt.Errorf("uplink: no driver %q", u.Driver)
	}
	client, err := remote.New(remote.Options{
		Endpoint: u.Endpoint, CAFile: u.CAFile, IdleTimeout: u.IdleTimeout.Std(), AnswerTimeout: u.AnswerTimeout.Std(),
		UserAgent: Program + "/" + buildinfo.String(), Logger: s.log, Protocol: made.protocol(), Credential: s.credential(),
		CertFile: u.ClientCert, KeyFile: u.ClientKey, CheckCertificate: s.checkCertificate,
		Proxy: u.Proxy, ProxyCredential: s.proxyCredential(),
	})
	if err != nil {
		return fmt.Errorf("uplink: %w", err)
	}
	driver, err := made.driver(s.cfg, client)
	if err != nil {
		return fmt.Errorf("uplink: %w", err)
	}
	options := uplink.Options{Driver: driver, ChunkMax: u.ChunkSize.Max.Bytes(), Logger: s.log,
		Limiter: uplink.NewLimiter(u.RateLimit.BytesPerSecond()),
	}
	if u.ChunkSize.Auto {
		options.ChunkTime = uplink.DefaultChunkTime
	}
	up, err := uplink.New(options)
	if err != nil {
		return fmt.Errorf("uplink: %w", err)
	}
	s.dispatcher.client, s.dispatcher.uplink = client, up
	return s.dispatcher.loadChannel()
}

// credential is the credential's file, held to this account where it names one; nil where none is configured.
func (s *session) credential() remote.Credential {
	u := s.cfg.Uplink
	switch {
	case u.Credential == "":
		return nil
	case !u.Driver.Names():
		return remote.CredentialFile(u.Credential)
	}
	return accountCredential{remote.CredentialFile(u.Credential), s.acc.name, s.askRebind}
}

// proxyCredential is the file of the proxy's user and password; nil where none is configured.
func (s *session) proxyCredential() remote.Credential {
	if s.cfg.Uplink.ProxyCredential == "" {
		return nil
	}
	return remote.CredentialFile(s.cfg.Uplink.ProxyCredential)
}

// checkCertificate holds a certificate to this account, where it is what the server knows the device by.
func (s *session) checkCertificate(c *x509.Certificate) error {
	if u := s.cfg.Uplink; u.Credential != "" || !u.Driver.Names() {
		return nil
	}
	named, err := remote.CertificateIdentity(c)
	if err != nil {
		return err
	}
	if named.Account != s.acc.name {
		s.askRebind()
		return errOtherAccount
	}
	return nil
}
