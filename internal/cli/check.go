package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/control"
)

func (a *app) checkCommand() *cobra.Command {
	var request control.CheckRequest
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Hold the queue and the stored files against each other",
		Long: "check looks for records without files, files without records, damaged values, indexes and manifests, and names each with\n" +
			"what to do about it. It changes nothing unless --repair is given, and a repair deletes nothing. While the daemon is stopped,\n" +
			"fieldgwd check does the same.",
		Args: cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error { return a.check(ctx, request) }),
	}
	cmd.Flags().BoolVar(&request.Deep, "deep", false, "read every file and compare its SHA-256; takes as long as reading them")
	cmd.Flags().BoolVar(&request.Repair, "repair", false, "mend what can be mended without losing anything, and check again")
	return cmd
}

func (a *app) check(ctx context.Context, request control.CheckRequest) error {
	report, err := a.daemon.Check(ctx, request)
	if err != nil {
		return err
	}
	if a.structured() {
		err = a.print(report)
	} else {
		err = a.printCheck(&report)
	}
	if err == nil && len(report.Findings) > 0 {
		return &reported{exitAttention}
	}
	return err
}

func (a *app) printCheck(r *control.CheckReport) error {
	if len(r.Findings) > 0 {
		t := &table{color: a.color(), columns: []column{{title: "KIND"}, {title: "ID"}, {title: "DETAIL", limit: 70}, {title: "WHAT TO DO"}}}
		rows := make([][]cell, 0, len(r.Findings))
		for _, f := range r.Findings {
			id := none
			if f.ID != "" {
				id = control.ShortID(f.ID)
			}
			rows = append(rows, cells(text(f.Kind), text(id), text(f.Detail), text(f.Remedy)))
		}
		if err := t.print(a.env.Stdout, rows); err != nil {
			return err
		}
	}
	if r.Repaired > 0 {
		if err := a.message("%s acted on.", plural(int64(r.Repaired), "finding was", "findings were")); err != nil {
			return err
		}
	}
	if len(r.Findings) == 0 {
		_, err := fmt.Fprintln(a.env.Stdout, "Nothing is broken.")
		return err
	}
	return a.message("%s.", plural(int64(len(r.Findings)), "thing is broken", "things are broken"))
}
