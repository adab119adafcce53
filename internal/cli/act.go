package cli

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
)

const (
	// maxStdinLine bounds one line of IDs on standard input, in bytes.
	maxStdinLine = 4 << 10
	// maxReferences bounds the IDs of one command.
	maxReferences = 100_000
)

// verb is one decision in the words of the command.
type verb struct {
	name    client.Verb
	done    string // "retried"
	short   string
	channel bool // without arguments it means all sending
	// to are the conditions whose files completion offers.
	to []attachment.Condition
}

func (a *app) retryCommand() *cobra.Command {
	return a.actCommand(verb{name: client.Retry, done: "retried", short: "Try files again now, also those that need a person",
		to: []attachment.Condition{attachment.ShownAttention, attachment.ShownWaiting, attachment.ShownUploading, attachment.ShownUploaded, attachment.ShownSent}})
}

func (a *app) prioritizeCommand() *cobra.Command {
	return a.actCommand(verb{name: client.Prioritize, done: "prioritized", short: "Send files before all others, now and outside the upload windows too",
		to: []attachment.Condition{attachment.ShownWaiting, attachment.ShownUploading, attachment.ShownUploaded, attachment.ShownPaused}})
}

func (a *app) pauseCommand() *cobra.Command {
	return a.actCommand(verb{name: client.Pause, done: "paused", short: "Pause files, or all sending when none is named", channel: true,
		to: slices.DeleteFunc(owed(), func(c attachment.Condition) bool { return c == attachment.ShownPaused })})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.actCommand(verb{name: client.Resume, done: "resumed", short: "Resume files, or all sending when none is named", channel: true,
		to: []attachment.Condition{attachment.ShownPaused}})
}

// actFlags select what a verb acts on.
type actFlags struct {
	all    bool
	record string
	reason string
	dryRun bool
}

func (a *app) actCommand(v verb) *cobra.Command {
	var f actFlags
	cmd := &cobra.Command{
		Use:   string(v.name) + " [ID... | - | --all | --record R]",
		Short: v.short,
		Long: v.short + ".\n\nIDs may be shortened to a beginning or an end that fits one file only; \"-\" reads IDs from standard input,\n" +
			"one on a line. The decision is recorded with your user ID and the reason.",
		RunE: a.run(func(ctx context.Context, args []string) error { return a.act(ctx, v, f, args) }),
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "every file that can be "+v.done)
	cmd.Flags().StringVar(&f.record, "record", "", "every file of this record, by its local ID")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the record")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say what would be done")
	cmd.ValidArgsFunction = a.completeIDs(maxReferences, v.to...)
	a.completeRecord(cmd, "record")
	return cmd
}

func (a *app) act(ctx context.Context, v verb, f actFlags, args []string) error {
	if err := together(flagGiven{"--all", f.all}, flagGiven{"--record", f.record != ""}, flagGiven{"IDs", len(args) > 0}); err != nil {
		return err
	}
	refs, err := a.references(args)
	if err != nil {
		return err
	}
	if err := a.knownRecord(ctx, f.record); err != nil {
		return err
	}
	switch {
	case f.all || f.record != "":
		action := control.Action{All: f.all, Record: attachment.NameOf(f.record), Reason: f.reason, DryRun: f.dryRun}
		return a.actOn(ctx, v, []control.Action{action})
	case len(args) == 0 && v.channel:
		return a.actOnChannel(ctx, v, f)
	case len(args) == 0:
		return usagef("%s what? Give IDs, --all or --record", v.name)
	}
	var batches []control.Action
	for batch := range slices.Chunk(refs, control.MaxActionIDs) {
		batches = append(batches, control.Action{IDs: batch, Reason: f.reason, DryRun: f.dryRun})
	}
	return a.actOn(ctx, v, batches)
}

// references returns the IDs of a command line, with "-" replaced by those on standard input.
func (a *app) references(args []string) ([]attachment.ID, error) {
	var refs []attachment.ID
	for _, arg := range args {
		switch arg {
		case "":
			return nil, usagef("an ID is empty")
		case "-":
			lines := bufio.NewScanner(a.env.Stdin)
			lines.Buffer(nil, maxStdinLine)
			for lines.Scan() && len(refs) <= maxReferences {
				if ref := strings.TrimSpace(lines.Text()); ref != "" {
					refs = append(refs, attachment.ID(ref))
				}
			}
			if err := lines.Err(); err != nil {
				return nil, fmt.Errorf("read IDs from standard input: %w", err)
			}
		default:
			refs = append(refs, attachment.ID(arg))
		}
	}
	if len(refs) > maxReferences {
		return nil, usagef("more than %d IDs", maxReferences)
	}
	return refs, nil
}

// actOn carries out the batches one after the other and reports them together. The daemon's refusals of single files set the
// exit code of the first one.
func (a *app) actOn(ctx context.Context, v verb, batches []control.Action) error {
	total := control.Outcome{Schema: control.SchemaAction, Results: []control.ActionResult{}}
	var refused *control.ActionResult
	for _, batch := range batches {
		out, err := a.daemon.Act(ctx, v.name, batch)
		if err != nil {
			return err
		}
		total.DryRun = out.DryRun
		merge(&total, &out)
		for i := range out.Results {
			r := &out.Results[i]
			if refused == nil && !r.Done {
				refused = r
			}
			if err := a.printResult(v, out.DryRun, r); err != nil {
				return err
			}
		}
	}
	if a.structured() {
		if err := a.print(total); err != nil {
			return err
		}
	} else if err := a.summary(v, &total); err != nil {
		return err
	}
	return refusedExit(&total, refused)
}

func refusedExit(total *control.Outcome, first *control.ActionResult) error {
	if total.Refused == 0 {
		return nil
	}
	if first != nil {
		if code, known := exitOf[first.Code]; known {
			return &reported{code}
		}
	}
	return &reported{exitFailed}
}

func merge(total, out *control.Outcome) {
	total.Results = append(total.Results, out.Results...)
	if len(total.Results) > control.MaxResults {
		total.Results = total.Results[:control.MaxResults]
		total.Cut = true
	}
	total.Done += out.Done
	total.Refused += out.Refused
	total.Cut = total.Cut || out.Cut
}

// printResult prints a line for one file: what was done is the answer, what was refused a message.
func (a *app) printResult(v verb, dryRun bool, r *control.ActionResult) error {
	if a.structured() {
		return nil
	}
	name := strings.TrimSpace(text(control.ShortID(r.ID)) + "  " + r.Filename.Printable())
	if !r.Done {
		_, err := fmt.Fprintf(a.env.Stderr, "fieldgwctl: not %s: %s: %s\n", v.done, name, attachment.Printable(r.Message))
		return err
	}
	if a.quiet {
		return nil
	}
	done := v.done
	if dryRun {
		done = "would be " + v.done + ":"
	}
	_, err := fmt.Fprintf(a.env.Stdout, "%s  %s\n", done, name)
	return err
}

func (a *app) summary(v verb, total *control.Outcome) error {
	switch {
	case total.Done+total.Refused == 0:
		return a.message("There is nothing that can be %s.", v.done)
	case total.Cut:
		return a.message("In all: %s %s, %d refused.", files(int64(total.Done)), v.done, total.Refused)
	}
	return nil
}

func (a *app) actOnChannel(ctx context.Context, v verb, f actFlags) error {
	out, err := a.daemon.ActOnChannel(ctx, v.name, control.ChannelAction{Reason: f.reason, DryRun: f.dryRun})
	if err != nil {
		return err
	}
	if a.structured() {
		if err := a.print(out); err != nil {
			return err
		}
	}
	if len(out.Results) == 1 && out.Refused > 0 {
		r := out.Results[0]
		return control.Refuse(r.Code, r.Message)
	}
	if a.structured() || a.quiet {
		return nil
	}
	form := "All sending is %s.\n"
	if out.DryRun {
		form = "All sending would be %s.\n"
	}
	_, err = fmt.Fprintf(a.env.Stdout, form, v.done)
	return err
}
