// Command linkproxy runs a TCP proxy on loopback whose link can be cut, and gives it orders. It owns
// the command line only; read package linkproxy for what the orders do and promise.
//
// As a proxy (-target) its first line on stdout is "listening HOST:PORT", printed when both that
// address and the control socket accept connections; it runs until SIGINT or SIGTERM. As a client
// (-do) it prints the answer of the proxy at -control. Exit status: 0 done, 1 failed or refused,
// 2 wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/fieldgw/fieldgw/test/linkproxy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("linkproxy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:0", "loopback `HOST:PORT` to listen on; port 0 takes a free one")
	target := flags.String("target", "", "`HOST:PORT` of the server to forward to")
	control := flags.String("control", "", "`path` of the control socket (required)")
	do := flags.String("do", "", "send a `command` to a running proxy: cut, restore, stall, cut-after N, rate N, stats")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if *control == "" || (*target == "") == (*do == "") || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "linkproxy: want -control PATH, either -target HOST:PORT or -do COMMAND, and no further arguments")
		return 2
	}
	var err error
	if *do != "" {
		err = order(ctx, *control, *do, stdout)
	} else {
		err = serve(ctx, linkproxy.Options{Listen: *listen, Target: *target}, *control, stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "linkproxy: %v\n", err)
		return 1
	}
	return 0
}

func order(ctx context.Context, path, command string, stdout io.Writer) error {
	answer, err := linkproxy.Do(ctx, path, command)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, answer)
	return err
}

func serve(ctx context.Context, opts linkproxy.Options, path string, stdout io.Writer) error {
	proxy, err := linkproxy.New(opts)
	if err != nil {
		return err
	}
	control, err := linkproxy.NewControl(path, proxy)
	if err != nil {
		return errors.Join(err, proxy.Close())
	}
	if _, err := fmt.Fprintf(stdout, "listening %s\n", proxy.Addr()); err != nil {
		return errors.Join(fmt.Errorf("print address: %w", err), control.Close(), proxy.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return proxy.Run(ctx) })
	group.Go(func() error { return control.Run(ctx) })
	return group.Wait()
}
