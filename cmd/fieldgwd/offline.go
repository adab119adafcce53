package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/config"
	fieldgwd "github.com/fieldgw/fieldgw/internal/daemon"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/intake"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/store"
)

// exitAttention is the exit code of a check that found something.
const exitAttention = 8

// offlineOptions load the configuration for a command that works on the state directory without a daemon.
func offlineOptions(path string, stderr io.Writer) (fieldgwd.Options, error) {
	cfg, err := config.Load(path, os.Getenv)
	if err != nil {
		return fieldgwd.Options{}, &exitError{exitConfig, err}
	}
	log, _ := logging.New(logging.Options{Level: slog.LevelWarn, Format: logging.FormatText, Writer: stderr})
	return fieldgwd.Options{Config: cfg, FS: durable.OS(), Logger: log}, nil
}

func checkCommand(path *string, stdout, stderr io.Writer) *cobra.Command {
	var deep, repair bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check the stopped daemon's queue and files (while it runs: fieldgwctl check)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := offlineOptions(*path, stderr)
			if err != nil {
				return err
			}
			findings, err := fieldgwd.Check(cmd.Context(), opts, deep, repair)
			if err != nil {
				return offlineError(err)
			}
			for _, f := range findings {
				fmt.Fprintf(stdout, "%s %s %s\n    %s\n", f.Kind, f.ID, f.Detail, f.Remedy)
			}
			if len(findings) > 0 {
				return &exitError{exitAttention, fmt.Errorf("%d findings", len(findings))}
			}
			_, err = fmt.Fprintln(stdout, "Nothing is broken.")
			return err
		},
	}
	cmd.Flags().BoolVar(&deep, "deep", false, "read every file and compare its SHA-256")
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what can be mended without losing anything, and check again")
	return cmd
}

func rebuildCommand(path *string, stdout, stderr io.Writer) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "rebuild", Short: "Make a new queue from the stored files, for one that is damaged or missing", Args: cobra.NoArgs,
		Long: "rebuild makes a new queue from the manifests beside the payloads, the receipts and the standing decisions, and keeps the\n" +
			"old queue file beside it. IDs stay the same, so the server recognizes what it has. Nothing is deleted. The daemon must be\n" +
			"stopped. A queue that can be used is left alone unless --force is given.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := offlineOptions(*path, stderr)
			if err != nil {
				return err
			}
			r, err := fieldgwd.Rebuild(cmd.Context(), opts, force)
			if err != nil {
				return offlineError(err)
			}
			return printRebuilt(stdout, r)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "rebuild although the queue can be used")
	return cmd
}

// printRebuilt says what the new queue holds, and what in the old files a person may want to look at.
func printRebuilt(stdout io.Writer, r fieldgwd.Rebuilt) error {
	var b strings.Builder
	if r.Kept != "" {
		fmt.Fprintf(&b, "The old queue file is kept as %s\n", r.Kept)
	}
	fmt.Fprintf(&b, "The new queue was made from %d stored files and %d delivered copies:\n",
		r.Report[intake.Unrecorded]+r.Report[intake.Unnamed]+r.Report[intake.DamagedOnlyCopy], r.Report[intake.RebuiltDelivered])
	for _, c := range attachment.Conditions() {
		if n := r.Counts[c]; n.Items > 0 {
			fmt.Fprintf(&b, "  %-34s %8d files %14d bytes\n", c, n.Items, n.Bytes)
		}
	}
	for _, look := range []struct {
		at   intake.Situation
		what string
	}{
		{intake.Unnamed, "without a readable manifest: a person must look at them"},
		{intake.DamagedOnlyCopy, "whose custody was not complete: a person must look at them"},
		{intake.Stray, "left alone, because nothing tells what they are: fieldgwd check names them"},
	} {
		if n := r.Report[look.at]; n > 0 {
			fmt.Fprintf(&b, "  %d files %s\n", n, look.what)
		}
	}
	b.WriteString("It is in place; start fieldgwd.\n")
	_, err := io.WriteString(stdout, b.String())
	return err
}

// offlineError adds what to do to the errors of working on the state directory.
func offlineError(err error) error {
	switch {
	case errors.Is(err, store.ErrLocked):
		err = fmt.Errorf("%w; stop the daemon first, or wait for the end of another check or rebuild", err)
	case errors.Is(err, store.ErrDamaged):
		err = fmt.Errorf("%w; run: fieldgwd rebuild", err)
	}
	return &exitError{exitFailed, err}
}
