// Command fieldgwd is the gateway daemon: it takes custody of captured files and delivers them.
//
// It only wires: flags, configuration, signals, exit codes. What it does is in internal/daemon.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	stdlog "log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/config"
	fieldgwd "github.com/fieldgw/fieldgw/internal/daemon"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/remote"
)

// The exit codes; fieldgwctl has the same table.
const (
	exitFailed = 1
	exitUsage  = 2
	exitConfig = 9
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// exitError carries an exit code through cobra.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := command(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "fieldgwd: %s\n", strings.TrimSuffix(err.Error(), "\n"))
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return exitUsage
}

func command(stdout, stderr io.Writer) *cobra.Command {
	var path string
	root := &cobra.Command{
		Use: "fieldgwd", Short: "Takes custody of captured files and delivers them", SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().StringVar(&path, "config", config.DefaultPath, "main configuration file; conf.d beside it is read too")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(&cobra.Command{
		Use: "run", Short: "Run until stopped", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), path, cmd.Flags().Changed("config"), stderr)
		},
	}, &cobra.Command{
		Use: "check-config", Short: "Say what is wrong with the configuration", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return checkConfig(path, stdout)
		},
	}, checkCommand(&path, stdout, stderr), rebuildCommand(&path, stdout, stderr), &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(stdout, "fieldgwd", buildinfo.String())
			return err
		},
	})
	return root
}

// checkConfig reads the configuration and then looks at the files that it names. What keeps the daemon from doing its work is
// a problem; what only is not there yet, such as a card or a credential, is said.
func checkConfig(path string, stdout io.Writer) error {
	cfg, err := config.Load(path, os.Getenv)
	if err != nil {
		return &exitError{exitConfig, err}
	}
	if file := cfg.Uplink.CAFile; file != "" {
		if _, err := os.ReadFile(file); err != nil {
			return &exitError{exitConfig, fmt.Errorf("uplink.ca_file: %w", err)}
		}
	}
	var notes []string
	if !cfg.Uplink.Configured() {
		notes = append(notes, "uplink.endpoint is not set: files are captured and kept, nothing is sent")
	}
	notes = append(notes, identityNotes(cfg.Uplink)...)
	for _, w := range cfg.Watches() {
		if info, err := os.Stat(w.Path); err != nil || !info.IsDir() {
			notes = append(notes, fmt.Sprintf("watch.%s.path: %s is not a directory now", w.Name, w.Path))
		}
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(stdout, "note:", note); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(stdout, "%s: no problem found\n", path)
	return err
}

// identityNotes says what is the matter with what the device shows of itself. It may be repaired while the daemon runs.
func identityNotes(u config.Uplink) (notes []string) {
	note := func(key string, err error) {
		if err != nil {
			notes = append(notes, "uplink."+key+": "+err.Error())
		}
	}
	if u.Credential != "" {
		text, err := config.ReadCredential(u.Credential)
		if err == nil && u.Driver.Names() {
			_, err = remote.ParseToken(text)
		}
		note("credential", err)
	}
	if u.ClientCert != "" {
		pair, err := remote.LoadCertificate(u.ClientCert, u.ClientKey)
		switch {
		case err != nil:
		case time.Now().After(pair.Leaf.NotAfter):
			err = fmt.Errorf("it expired on %s", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
		case u.Credential == "" && u.Driver.Names():
			_, err = remote.CertificateIdentity(pair.Leaf)
		}
		note("client_cert", err)
	}
	if u.ProxyCredential != "" {
		_, err := config.ReadCredential(u.ProxyCredential)
		note("proxy_credential", err)
	}
	if u.Configured() && !u.Identified() && u.Driver.Names() {
		notes = append(notes, "neither uplink.credential nor uplink.client_cert is set: nothing is sent")
	}
	return notes
}

// serve runs the daemon. Without a configuration file it captures nothing and says "not configured", unless the file was
// named: then its absence is a mistake.
func serve(ctx context.Context, path string, named bool, stderr io.Writer) error {
	sources := config.DefaultSources(path)
	sources.AllowMissing = !named
	cfg, err := sources.Load(os.Getenv)
	if err != nil {
		return &exitError{exitConfig, err}
	}
	signal.Ignore(syscall.SIGHUP) // there is nothing to reload yet, and a lost terminal must not stop custody
	log, _ := logging.New(logging.Options{Level: cfg.Log.Level.Slog(), Format: logging.Format(cfg.Log.Format), Writer: stderr})
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		log.Warn("there is no configuration file: nothing is captured and nothing is sent", logging.KeyPath, path)
	}
	stdlog.SetOutput(io.Discard) // net/http prints what a server sends unasked, which may be an echo of the credential
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the service manager's watchdog is not fed: WATCHDOG_USEC cannot be read", logging.KeyErr, err)
	}
	err = fieldgwd.Run(ctx, fieldgwd.Options{
		Config: cfg, FS: durable.OS(), Logger: log, Watchdog: watchdog,
		Notify: func(state string) {
			if _, err := daemon.SdNotify(false, state); err != nil {
				log.Debug("service manager not told", logging.KeyErr, err)
			}
		},
	})
	if err != nil {
		return &exitError{exitFailed, err}
	}
	return nil
}
