package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server"
	"github.com/fieldgw/fieldgw/internal/server/bootstrap"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// serveFlags are the flags of serving.
type serveFlags struct {
	listen               string
	cert, key            string
	clientCA             string
	plain                bool
	maxLength, maxAppend config.Size
	expire               config.Duration
}

func newServe(c *common, use, short string) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), c, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8443", "address to serve on")
	flags.StringVar(&f.cert, "tls-cert", "", "certificate chain in PEM; without it a self-signed one is made")
	flags.StringVar(&f.key, "tls-key", "", "its private key in PEM")
	flags.StringVar(&f.clientCA, "client-ca", "", "authorities in PEM whose client certificates identify devices, besides tokens")
	flags.BoolVar(&f.plain, "http", false, "serve plain http; only on a loopback address")
	flags.TextVar(&f.maxLength, "max-length", config.Size(wire.MaxLength), "largest attachment")
	flags.TextVar(&f.maxAppend, "max-append", config.Size(8<<20), "largest body of one append of a device")
	flags.TextVar(&f.expire, "expire", config.Duration(7*24*time.Hour), "end an upload that got no byte for this long")
	return cmd
}

func serve(ctx context.Context, c *common, f serveFlags) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	log, err := c.logger()
	if err != nil {
		return err
	}
	clients, err := readAuthorities(f.clientCA)
	if err != nil {
		return err
	}
	ln, err := listen(ctx, f)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := ln.Close(); !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}()
	if f.cert == "" && !f.plain && !loopback(ln.Addr()) {
		log.Warn("self-signed certificate names loopback addresses only; use --tls-cert and --tls-key for others")
	}
	log.Info("server starts", slog.String(logging.KeyVersion, buildinfo.String()), slog.String(logging.KeyPath, c.data))
	var uplink string
	s, err := server.New(ctx, server.Options{
		Dir: c.data, Logger: log, ClientCAs: clients,
		Limits: server.Limits{
			MaxLength: f.maxLength.Bytes(), MaxAppend: f.maxAppend.Bytes(), Expire: time.Duration(f.expire),
		},
		Notify: func(state string) {
			_, err := daemon.SdNotify(false, state)
			if state == daemon.SdNotifyReady {
				// On standard output, since it is the answer to "how do I use this".
				_, perr := fmt.Fprint(c.stdout, uplink)
				err = errors.Join(err, perr)
			}
			if err != nil {
				log.Warn("nobody could be told of the server's state", slog.String(logging.KeyState, state), slog.Any(logging.KeyErr, err))
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var secured net.Listener
	if secured, uplink, err = prepare(ctx, c.data, f, s, ln, clients); err != nil {
		return err
	}
	return s.Run(ctx, secured)
}

// prepare makes what the first start lacks and puts TLS over the listener. It returns what a device must be told, too.
func prepare(
	ctx context.Context, data string, f serveFlags, s *server.Server, ln net.Listener, clients *x509.CertPool,
) (net.Listener, string, error) {
	token, err := bootstrap.Token(ctx, durable.OS(), data, s.Admin())
	if err != nil {
		return nil, "", err
	}
	scheme, ca := "http", ""
	if !f.plain {
		scheme = "https"
		if f.cert == "" {
			if f.cert, f.key, err = bootstrap.Certificate(durable.OS(), data, time.Now()); err != nil {
				return nil, "", err
			}
			ca = f.cert
		}
		conf, err := bootstrap.TLS(f.cert, f.key, clients)
		if err != nil {
			return nil, "", err
		}
		ln = tls.NewListener(ln, conf)
	}
	uplink, err := uplinkConfig(scheme+"://"+reachable(ln.Addr()), token, ca)
	return ln, uplink, err
}

// readAuthorities reads certificates in PEM; no path, none.
func readAuthorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, usagef("--client-ca: %s has no certificate in PEM", path)
	}
	return pool, nil
}

// uplinkConfig is the part of a device's configuration that leads here. The token itself stays in its file.
func uplinkConfig(endpoint, token, ca string) (string, error) {
	lines := fmt.Sprintf("[uplink]\nendpoint = %q\n", endpoint)
	for _, line := range []struct{ key, path string }{{"credential", token}, {"ca_file", ca}} {
		if line.path == "" {
			continue
		}
		path, err := filepath.Abs(line.path)
		if err != nil {
			return "", err
		}
		lines += fmt.Sprintf("%s = %q\n", line.key, path)
	}
	return lines, nil
}

func (f serveFlags) check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usagef("--tls-cert and --tls-key are given together")
	case f.plain && f.cert != "":
		return usagef("--http serves without the certificate")
	case f.plain && f.clientCA != "":
		return usagef("--client-ca needs TLS: with --http nobody shows a certificate")
	case f.maxLength < 1 || f.maxLength > wire.MaxLength:
		return usagef("--max-length is 1B to %s", config.Size(wire.MaxLength))
	case f.maxAppend < 1:
		return usagef("--max-append is at least 1B")
	case time.Duration(f.expire) < time.Second:
		return usagef("--expire is at least 1s")
	}
	if !f.plain {
		return nil
	}
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usagef("--listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usagef("--http only with a loopback address in --listen, not %q", host)
	}
	return nil
}

// listen opens the address. What localhost means is up to the machine, so that plain http looks at what came of it.
func listen(ctx context.Context, f serveFlags) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if f.plain && !loopback(ln.Addr()) {
		return nil, errors.Join(usagef("--http only on a loopback address, not %s", ln.Addr()), ln.Close())
	}
	return ln, nil
}

func loopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// reachable is an address by which this machine reaches a listener, also one that listens on all addresses.
func reachable(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return addr.String()
}
