// Package cli is fieldgwctl: what a technician types.
//
// It owns the commands, what they print and their exit codes. It asks the daemon over the control socket and never opens the
// queue. It promises that standard output carries the answer and nothing else, that JSON and YAML follow the schema of
// package control, that a name from outside cannot move the cursor or hide (in tables it is escaped), that lists are
// printed as they come and never collected, and that colour is never the only sign of anything.
//
// Read exit.go first (the codes), then cli.go (how a command runs) and the file of a verb. docs/cli.md is for users.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/control/client"
)

// Env is the part of the world that a command sees.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Now            func() time.Time
	Local          *time.Location
	// Terminal: Stdout is a terminal that a person looks at.
	Terminal bool

	// grace replaces the time for which wait lets pass what needs a person; 0 means the usual one. It is for tests.
	grace time.Duration
}

// app is one run of fieldgwctl.
type app struct {
	env     Env
	output  format
	socket  string
	noColor bool
	quiet   bool
	daemon  *client.Client
	// command is the path of the command that runs, such as "fieldgwctl list".
	command string
}

// Run carries out one command and returns the exit code. The end of ctx is an interruption by the user.
func Run(ctx context.Context, args []string, env Env) int {
	a := &app{env: env, output: formatTable}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	err := a.execute(ctx, root, args)
	if a.daemon != nil {
		a.daemon.Close()
	}
	if err == nil {
		return exitDone
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	if _, ran := errors.AsType[*commandError](err); !ran && !errors.Is(err, errInterrupted) {
		if _, ours := errors.AsType[*usageError](err); !ours {
			err = &usageError{err}
		}
		a.guessOutput(args)
	}
	return a.fail(err)
}

// execute finds the command, remembers which one it is for the hint of a usage error, and runs it.
func (a *app) execute(ctx context.Context, root *cobra.Command, args []string) error {
	a.command = root.CommandPath()
	if err := findCommand(root, args); err != nil {
		return err
	}
	cmd, err := root.ExecuteContextC(ctx)
	a.command = cmd.CommandPath()
	return err
}

// guessOutput finds a wish for JSON in a command line that was not parsed to its end: cobra looks for the command first.
func (a *app) guessOutput(args []string) {
	line := " " + strings.Join(args, " ") + " "
	for _, wish := range []string{" -o json ", " -ojson ", " -o=json ", " --output json ", " --output=json "} {
		if strings.Contains(line, wish) {
			a.output = formatJSON
		}
	}
}

// commandError marks what a command returned; every other error is a usageError, from parsing the command line.
type commandError struct{ error }

// Unwrap returns the command's error.
func (e *commandError) Unwrap() error { return e.error }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "fieldgwctl",
		Short:         "Look after the files that fieldgw keeps and delivers",
		Long:          "fieldgwctl asks fieldgwd, the daemon of the field gateway, what became of each file, and tells it what to do.\n\n" + exitHelp(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       buildinfo.String(),
	}
	root.SetVersionTemplate("fieldgwctl  {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.HiddenDefaultCmd = false
	flags := root.PersistentFlags()
	flags.VarP(&a.output, "output", "o", "form of the answer: "+strings.Join(formats, ", "))
	flags.StringVar(&a.socket, "socket", "", "the daemon's control socket (default "+client.DefaultSocket+", or $FIELDGW_SOCKET)")
	flags.BoolVar(&a.noColor, "no-color", false, "no colours, also with $NO_COLOR set")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "no messages but errors; list and submit print IDs (or paths) only")
	complete(root, "output", formats)
	root.AddCommand(
		a.statusCommand(), a.listCommand(), a.showCommand(), a.recordsCommand(), a.submitCommand(), a.waitCommand(),
		a.retryCommand(), a.prioritizeCommand(), a.pauseCommand(), a.resumeCommand(), a.checkCommand(), a.versionCommand(),
	)
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	ownArguments(root)
	return root
}

// connect makes the client of the daemon; it does not connect yet.
func (a *app) connect() {
	if a.socket == "" {
		a.socket = a.env.Getenv("FIELDGW_SOCKET")
	}
	if a.socket == "" {
		a.socket = client.DefaultSocket
	}
	a.daemon = client.New(a.socket)
}

// run adapts a command's function to cobra.
func (a *app) run(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.connect()
		if err := do(cmd.Context(), args); err != nil {
			return &commandError{err}
		}
		return nil
	}
}

// usagef is a command line that cannot be meant; commands return it as their own parsing goes on.
func usagef(text string, args ...any) error { return &usageError{fmt.Errorf(text, args...)} }

// complete offers words for a flag. It fails only for a flag that the command does not have.
func complete(cmd *cobra.Command, flag string, words []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// message tells the person something that is not the answer.
func (a *app) message(text string, args ...any) error {
	if a.quiet {
		return nil
	}
	_, err := fmt.Fprintf(a.env.Stderr, text+"\n", args...)
	return err
}

func (a *app) color() bool {
	return a.env.Terminal && !a.noColor && a.env.Getenv("NO_COLOR") == "" && a.env.Getenv("TERM") != "dumb"
}

// structured reports whether the answer is for programs.
func (a *app) structured() bool { return a.output == formatJSON || a.output == formatYAML }

// The forms of an answer.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

var formats = []string{string(formatTable), string(formatWide), string(formatJSON), string(formatYAML)}

// String implements pflag.Value.
func (f *format) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *format) Set(text string) error {
	if !slices.Contains(formats, text) {
		return fmt.Errorf("want %s", strings.Join(formats, ", "))
	}
	*f = format(text)
	return nil
}

// Type implements pflag.Value.
func (f *format) Type() string { return "form" }
