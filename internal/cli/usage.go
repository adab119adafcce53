package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// This file says in our own words what is wrong with a command line. Cobra's texts speak of its own terms.

// findCommand refuses a word that is no command, before cobra does.
func findCommand(root *cobra.Command, args []string) error {
	word := firstWord(root, args)
	if word == "" || word == cobra.ShellCompRequestCmd || word == cobra.ShellCompNoDescRequestCmd {
		return nil
	}
	_, _, err := root.Find([]string{word})
	if err == nil {
		return nil
	}
	root.SuggestionsMinimumDistance = 2
	if similar := root.SuggestionsFor(word); len(similar) > 0 {
		return usagef("there is no command %q; did you mean %s?", word, strings.Join(similar, " or "))
	}
	return usagef("there is no command %q", word)
}

// firstWord is the first argument that is neither a flag nor a flag's value; empty where there is none.
func firstWord(root *cobra.Command, args []string) string {
	flags := root.PersistentFlags()
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return ""
		case !strings.HasPrefix(arg, "-"):
			return arg
		case strings.Contains(arg, "="):
			continue
		}
		var f *pflag.Flag
		if name, long := strings.CutPrefix(arg, "--"); long {
			f = flags.Lookup(name)
		} else if len(arg) == 2 {
			f = flags.ShorthandLookup(arg[1:])
		}
		if f != nil && f.NoOptDefVal == "" {
			i++ // its value
		}
	}
	return ""
}

// ownArguments sees to it that the commands which name no arguments in their usage line take none.
func ownArguments(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		switch {
		case c.Name() == "completion":
			c.Args, c.RunE = cobra.ArbitraryArgs, completionHelp
			c.Use = "completion SHELL"
		case c.Use == c.Name():
			c.Args = noArgs
		}
		ownArguments(c)
	}
}

// completionHelp is what completion does without the name of a shell that it knows.
func completionHelp(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var shells []string
	for _, c := range cmd.Commands() {
		shells = append(shells, c.Name())
	}
	return usagef("there is no completion for %q, but for %s", args[0], strings.Join(shells, ", "))
}

// helpCommand is cobra's help command, but that an unknown topic is an error.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, c := range root.Commands() {
				words = append(words, cobra.CompletionWithDesc(c.Name(), c.Short))
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := findCommand(root, args); err != nil {
				return err
			}
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 && cmd.Name() != "completion" {
				return usagef("there is no help for %q", strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s takes no arguments, but there is %q", cmd.Name(), args[0])
}

// takes is the rule for a command that takes from least to most of what; most 0 means any number.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most == 0 || len(args) <= most) {
			return nil
		}
		return usagef("%s takes %s", cmd.Name(), what)
	}
}

// flagError says what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return usagef("%s has no flag %s", cmd.Name(), flagName(unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames()))
	}
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usagef("%s needs a value", flagName(bare.GetSpecifiedName(), bare.GetSpecifiedShortnames()))
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usagef("--%s cannot be %q: %w", wrong.GetFlag().Name, wrong.GetValue(), reasonOf(wrong))
	}
	return &usageError{err}
}

// reasonOf is why a value is refused. What pflag itself refuses are switches that were given a word.
func reasonOf(wrong *pflag.InvalidValueError) error {
	if wrong.GetFlag().Value.Type() == "bool" {
		return errors.New("it is a switch and takes no value")
	}
	return wrong.Unwrap()
}

func flagName(name, shorthands string) string {
	if shorthands != "" {
		return "-" + name
	}
	return "--" + name
}

// together refuses flags that contradict each other. Each is a name and whether it was given.
func together(flags ...flagGiven) error {
	given := slices.DeleteFunc(flags, func(f flagGiven) bool { return !f.given })
	if len(given) < 2 {
		return nil
	}
	return usagef("give %s or %s, not both", given[0].name, given[1].name)
}

type flagGiven struct {
	name  string
	given bool
}

// see is the hint of a usage error.
func see(command string) string { return fmt.Sprintf("See: %s --help", command) }
