package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

func (a *app) submitCommand() *cobra.Command {
	var record string
	cmd := &cobra.Command{
		Use:   "submit --record ID FILE...",
		Short: "Hand files over to be kept and delivered for a record",
		Long: "Hand files over. When the command succeeds every file is secured on this device and will be delivered, whatever\n" +
			"happens to the originals, which stay where they are. Either all files are taken or none.\n\n" +
			"What is not there or is not a regular file is a mistake of the command line (exit code " + strconv.Itoa(exitUsage) + "); a file that cannot\n" +
			"be read is a failure (" + strconv.Itoa(exitFailed) + ").",
		Args: takes(1, 0, "the files to hand over"),
		RunE: a.run(func(ctx context.Context, args []string) error { return a.submit(ctx, record, args) }),
	}
	cmd.Flags().StringVar(&record, "record", "", "the record that the files belong to, by its local ID (required)")
	a.completeRecord(cmd, "record")
	return cmd
}

func (a *app) submit(ctx context.Context, record string, paths []string) error {
	if record == "" {
		return usagef("--record is missing: which record do the files belong to?")
	}
	if len(paths) > control.MaxSubmissionFiles {
		return usagef("%d files, at most %d at once", len(paths), control.MaxSubmissionFiles)
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("make submission ID: %w", err)
	}
	sub := control.Submission{SubmissionID: id.String(), Record: attachment.NameOf(record)}
	for _, path := range paths {
		f, err := describe(path)
		if err != nil {
			return err
		}
		sub.Files = append(sub.Files, f)
	}
	if err := sub.Validate(); err != nil {
		return err
	}
	result, err := a.daemon.Submit(ctx, sub, func(i int) (io.ReadCloser, error) { return os.Open(paths[i]) })
	if err != nil {
		return err
	}
	return a.printSubmission(record, &result)
}

// describe announces a file. Only a regular file has a length that can be announced.
func describe(path string) (control.SubmissionFile, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return control.SubmissionFile{}, usagef("there is no file %s", path)
	case err != nil:
		return control.SubmissionFile{}, fmt.Errorf("look at the file: %w", err)
	case info.IsDir():
		return control.SubmissionFile{}, usagef("%s is a directory; name the files in it", path)
	case !info.Mode().IsRegular():
		return control.SubmissionFile{}, usagef("%s is not a regular file", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return control.SubmissionFile{}, err
	}
	return control.SubmissionFile{
		Name: attachment.NameOf(filepath.Base(abs)), Length: info.Size(), ModifiedAt: info.ModTime().UTC(),
		SourcePath: attachment.NameOf(abs),
	}, nil
}

func (a *app) printSubmission(record string, result *control.SubmissionResult) error {
	if a.structured() {
		return a.print(result)
	}
	if a.quiet {
		for _, i := range result.Items {
			if _, err := fmt.Fprintln(a.env.Stdout, text(string(i.ID))); err != nil {
				return err
			}
		}
		return nil
	}
	var size int64
	var rows [][]cell
	for _, i := range result.Items {
		size += i.Length
		rows = append(rows, cells(text(string(i.ID)), siBytes(i.Length), text(i.Filename.Text)))
	}
	t := &table{color: a.color(), columns: []column{{title: "ID"}, {title: "SIZE", right: true}, {title: "FILE"}}}
	if err := t.print(a.env.Stdout, rows); err != nil {
		return err
	}
	promise := "They will be delivered; the originals stay where they are."
	if len(rows) == 1 {
		promise = "It will be delivered; the original stays where it is."
	}
	return a.message("Secured for record %s: %s, %s. %s", attachment.Printable(record), files(int64(len(rows))), siBytes(size), promise)
}
