// Command fieldgw-server is the receiving server of fieldgw. Without any flag it serves ./fieldgw-server-data on
// https://127.0.0.1:8443 and prints what a device's configuration needs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/server/admin"
	"github.com/fieldgw/fieldgw/internal/server/store"
)

// Exit codes, shared with fieldgwctl as far as they apply.
const (
	exitDone      = 0
	exitFailed    = 1
	exitUsage     = 2
	exitNotFound  = 5
	exitState     = 6
	exitAttention = 8
)

// errUsage marks errors of the command line.
var errUsage = errors.New("usage")

// errAttention is returned by a command that did its work and found what a person must look at.
var errAttention = errors.New("stored content is damaged")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program without more ado
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: arguments in, exit code out.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "fieldgw-server:", err)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage), errors.Is(err, admin.ErrInvalid):
		return exitUsage
	case errors.Is(err, store.ErrNotFound):
		return exitNotFound
	case errors.Is(err, store.ErrNotVerified):
		return exitState
	case errors.Is(err, errAttention):
		return exitAttention
	}
	return exitFailed
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	c := &common{stdout: stdout, stderr: stderr}
	root := newServe(c, "fieldgw-server", "Receive attachments from fieldgw devices")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	c.addFlags(root)
	root.AddCommand(newServe(c, "serve", "Serve (what the program does without a command)"), newToken(c), newAttachment(c),
		&cobra.Command{
			Use: "version", Short: "Print the version", Args: noArgs,
			RunE: func(*cobra.Command, []string) error {
				_, err := fmt.Fprintln(stdout, "fieldgw-server", buildinfo.String())
				return err
			},
		})
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	return root
}

// noArgs and exactArgs are cobra's rules with errors that are told apart from failures.
func noArgs(cmd *cobra.Command, args []string) error { return exactArgs(0)(cmd, args) }

func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%w: %s takes %d arguments, got %q", errUsage, cmd.CommandPath(), n, args)
		}
		return nil
	}
}
