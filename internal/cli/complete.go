package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

// completionTime bounds what a shell waits for the daemon after a press of the tab key.
const completionTime = time.Second

// completer offers words for what is being typed.
type completer = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// owed are the conditions of files that are not delivered and not decided upon.
func owed() (conditions []attachment.Condition) {
	for _, c := range attachment.Conditions() {
		if c.Owed() {
			conditions = append(conditions, c)
		}
	}
	return conditions
}

// completeIDs offers the IDs of files in these conditions, or in any, with their names, as long as fewer than most are given: from one
// page, and none when the daemon does not answer soon.
func (a *app) completeIDs(most int, conditions ...attachment.Condition) completer {
	return func(cmd *cobra.Command, args []string, typed string) (words []string, _ cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		a.connect()
		page, err := a.daemon.List(ctx, control.ListQuery{Conditions: conditions, Limit: control.MaxPage})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, i := range page.Items {
			word := control.ShortID(i.ID)
			if !strings.HasPrefix(word, typed) {
				word = string(i.ID)
			}
			if strings.HasPrefix(word, typed) && !slices.Contains(args, word) {
				about := i.Filename.Printable() + ", " + attachment.Printable(string(i.Condition))
				words = append(words, cobra.CompletionWithDesc(attachment.Printable(word), about))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// recordIDs offers the local IDs of records in the same way. One that a terminal cannot show as it is cannot be typed.
func (a *app) recordIDs(cmd *cobra.Command, args []string, typed string) (words []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	a.connect()
	page, err := a.daemon.Records(ctx, control.RecordQuery{Limit: control.MaxPage})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, r := range page.Items {
		id := r.Parent.LocalID.Exact()
		if id != "" && id == r.Parent.LocalID.Printable() && strings.HasPrefix(id, typed) {
			words = append(words, id)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeRecord offers records for a flag. It fails only for a flag that the command does not have.
func (a *app) completeRecord(cmd *cobra.Command, flag string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.recordIDs(cmd, nil, typed)
	})
}
