package daemon

import (
	"crypto/x509"
	"fmt"

	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/objectkey"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/fieldgw"
	"github.com/fieldgw/fieldgw/internal/uplink/s3"
	"github.com/fieldgw/fieldgw/internal/uplink/tus"
)

// kind is how one driver of the configuration is made.
type kind struct {
	protocol func(cfg *config.Config) *remote.Protocol
	driver   func(cfg *config.Config, client *remote.Client) (uplink.Driver, error)
}

// kinds are the drivers that there are.
var kinds = map[config.Driver]kind{
	config.DriverFieldgw: {always(remote.Fieldgw), func(_ *config.Config, client *remote.Client) (uplink.Driver, error) {
		return fieldgw.New(client), nil
	}},
	config.DriverS3: {func(cfg *config.Config) *remote.Protocol { return s3.Protocol(storeOf(cfg.Uplink)) }, newS3},
	config.DriverTus: {always(tus.Protocol), func(cfg *config.Config, client *remote.Client) (uplink.Driver, error) {
		return tus.New(tus.Options{
			Client: client, LengthOnly: cfg.Uplink.Verify == config.VerifyLength, Anonymous: cfg.Uplink.Credential == "",
		}), nil
	}},
}

// always is a protocol that needs no configuration.
func always(protocol func() *remote.Protocol) func(*config.Config) *remote.Protocol {
	return func(*config.Config) *remote.Protocol { return protocol() }
}

func storeOf(u config.Uplink) s3.Store {
	return s3.Store{Bucket: u.S3.Bucket, Region: u.S3.Region, Virtual: u.S3.Virtual(u.Endpoint)}
}

func newS3(cfg *config.Config, client *remote.Client) (uplink.Driver, error) {
	u := cfg.Uplink
	key, err := objectkey.Parse(u.S3.Key)
	if err != nil {
		return nil, err
	}
	return s3.New(client, s3.Options{
		Store: storeOf(u), Key: key, Account: u.Account, Device: cfg.Device.ID, Part: u.ChunkSize.Max.Bytes(),
		LengthOnly: u.Verify == config.VerifyLength,
	}), nil
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
		UserAgent: Program + "/" + buildinfo.String(), Logger: s.log, Protocol: made.protocol(s.cfg), Credential: s.credential(),
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
	options := uplink.Options{Driver: driver, ChunkMax: u.ChunkSize.Max.Bytes(), Logger: s.log}
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
