package daemon

import (
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/placement"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/fieldgw"
	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
	"github.com/fieldgw/fieldgw/internal/uplink/rufh"
	"github.com/fieldgw/fieldgw/internal/uplink/s3"
	"github.com/fieldgw/fieldgw/internal/uplink/tus"
	"github.com/fieldgw/fieldgw/internal/uplink/wholefile"
)

// kind is how one driver of the configuration is made.
type kind struct {
	protocol func(cfg *config.Config) *remote.Protocol
	driver   func(cfg *config.Config, client *remote.Client, registrar foreign.Registrar) (uplink.Driver, error)
}

// kinds are the drivers that there are.
var kinds = map[config.Driver]kind{
	config.DriverFieldgw: {always(remote.Fieldgw), func(_ *config.Config, client *remote.Client, _ foreign.Registrar) (uplink.Driver, error) {
		return fieldgw.New(client), nil
	}},
	config.DriverRUFH: {always(rufh.Protocol), func(cfg *config.Config, client *remote.Client, registrar foreign.Registrar) (uplink.Driver, error) {
		return rufh.New(rufh.Options{
			Client: client, LengthOnly: cfg.Uplink.Verify == config.VerifyLength, Registrar: registrar,
		}), nil
	}},
	config.DriverHTTP: {always(wholefile.Protocol), newWholeFile},
	config.DriverS3:   {func(cfg *config.Config) *remote.Protocol { return s3.Protocol(storeOf(cfg.Uplink)) }, newS3},
	config.DriverTus: {always(tus.Protocol), func(cfg *config.Config, client *remote.Client, registrar foreign.Registrar) (uplink.Driver, error) {
		return tus.New(tus.Options{
			Client: client, LengthOnly: cfg.Uplink.Verify == config.VerifyLength, Anonymous: cfg.Uplink.Credential == "",
			Registrar: registrar,
		}), nil
	}},
}

func newWholeFile(cfg *config.Config, client *remote.Client, registrar foreign.Registrar) (uplink.Driver, error) {
	o := wholefile.Options{Client: client, LengthOnly: cfg.Uplink.Verify == config.VerifyLength, Registrar: registrar}
	if cfg.Uplink.HTTP.Method == config.HTTPPut {
		path, err := placement.Parse(cfg.Uplink.HTTP.Path)
		if err != nil {
			return nil, err
		}
		o.Path = &path
	}
	return wholefile.New(o), nil
}

// always is a protocol that needs no configuration.
func always(protocol func() *remote.Protocol) func(*config.Config) *remote.Protocol {
	return func(*config.Config) *remote.Protocol { return protocol() }
}

func storeOf(u config.Uplink) s3.Store {
	return s3.Store{Bucket: u.S3.Bucket, Region: u.S3.Region, Virtual: u.S3.Virtual(u.Endpoint)}
}

func newS3(cfg *config.Config, client *remote.Client, registrar foreign.Registrar) (uplink.Driver, error) {
	u := cfg.Uplink
	key, err := placement.ParseKey(u.S3.Key, u.Account, cfg.Device.ID)
	if err != nil {
		return nil, err
	}
	return s3.New(client, s3.Options{
		Store: storeOf(u), Key: key, Part: u.ChunkSize.Max.Bytes(),
		LengthOnly: u.Verify == config.VerifyLength, Registrar: registrar,
	}), nil
}

// connect builds the uplink. It opens no connection.
func (s *session) connect() error {
	u := s.cfg.Uplink
	made, ok := kinds[u.Driver]
	if !ok {
		return fmt.Errorf("uplink: no driver %q", u.Driver)
	}
	client, err := s.client(u.Endpoint, made.protocol(s.cfg), s.credential())
	if err != nil {
		return fmt.Errorf("uplink: %w", err)
	}
	registrar, err := s.registrar()
	if err != nil {
		return fmt.Errorf("uplink: webhook: %w", err)
	}
	driver, err := made.driver(s.cfg, client, registrar)
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

// client makes a client of one of the servers that the configuration names, each reached in the same way.
func (s *session) client(endpoint string, protocol *remote.Protocol, credential remote.Credential) (*remote.Client, error) {
	u := s.cfg.Uplink
	o := remote.Options{
		Endpoint: endpoint, CAFile: u.CAFile, IdleTimeout: u.IdleTimeout.Std(), AnswerTimeout: u.AnswerTimeout.Std(),
		UserAgent: Program + "/" + buildinfo.String(), Logger: s.log, Protocol: protocol, Credential: credential,
		CertFile: u.ClientCert, KeyFile: u.ClientKey, CheckCertificate: s.checkCertificate,
		Proxy: u.Proxy, ProxyCredential: s.proxyCredential(),
	}
	if strings.HasPrefix(endpoint, "http:") {
		o.Proxy, o.ProxyCredential = remote.ProxyNone, nil // it is on this machine
	}
	c, err := remote.New(o)
	if err != nil {
		return nil, err
	}
	s.clients = append(s.clients, c)
	return c, nil
}

// registrar registers at the webhook, or, without one, by what the driver found.
func (s *session) registrar() (foreign.Registrar, error) {
	u := s.cfg.Uplink
	if u.Webhook == "" {
		return foreign.Registrar{}, nil
	}
	var credential remote.Credential
	if u.WebhookCredential != "" {
		credential = remote.CredentialFile(u.WebhookCredential)
	}
	hook, err := s.client(u.Webhook, foreign.Webhook(), credential)
	if err != nil {
		return foreign.Registrar{}, err
	}
	return foreign.NewRegistrar(hook), nil
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
