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
	"strings"
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

// usageError is a command line that cannot be meant.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e *usageError) Unwrap() error { return e.error }

func usagef(text string, args ...any) error { return &usageError{fmt.Errorf(text, args...)} }

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
	cmd, err := root.ExecuteContextC(ctx)
	if _, usage := errors.AsType[*usageError](err); usage {
		fmt.Fprintf(stderr, "fieldgw-server: Usage: %v\n  See: %s --help\n", err, cmd.CommandPath())
	} else if err != nil {
		fmt.Fprintln(stderr, "fieldgw-server:", err)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	_, usage := errors.AsType[*usageError](err)
	switch {
	case err == nil:
		return exitDone
	case usage, errors.Is(err, admin.ErrInvalid):
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
	c := &common{stdout: stdout, stderr: stderr, level: "info"}
	root := newServe(c, "fieldgw-server", "Receive attachments from fieldgw devices")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.Version = buildinfo.String()
	root.SetVersionTemplate("fieldgw-server {{.Version}}\n")
	c.addFlags(root)
	root.AddCommand(newServe(c, "serve", "Serve (what the program does without a command)"), newToken(c), newAttachment(c),
		&cobra.Command{
			Use: "version", Short: "Print the version", Args: noArgs,
			RunE: func(*cobra.Command, []string) error {
				_, err := fmt.Fprintln(stdout, "fieldgw-server", buildinfo.String())
				return err
			},
		})
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args = noArgs // an unknown shell is a mistake
		completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	return root
}

// noArgs and exactArgs are cobra's rules with errors that are told apart from failures.
func noArgs(cmd *cobra.Command, args []string) error { return exactArgs(0)(cmd, args) }

func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == n:
			return nil
		case n == 0 && cmd.HasAvailableSubCommands():
			return usagef("there is no command %q", strings.Join(append(strings.Fields(cmd.CommandPath())[1:], args[0]), " "))
		case n == 0:
			return usagef("%s takes no arguments, but there is %q", cmd.Name(), args[0])
		}
		return usagef("%s takes one ID", cmd.Name())
	}
}
