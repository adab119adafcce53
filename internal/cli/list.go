package cli

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
)

// listFlags are what list was asked for.
type listFlags struct {
	conditions []string
	parent     string
	olderThan  duration
	notTaken   bool
}

func (a *app) listCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List files, oldest first",
		Long: "List files in the order in which fieldgw took them, oldest first.\n\n" +
			"The ID shown is the end of the whole one (-o wide shows it all); commands take the whole ID, or its\n" +
			"beginning or end of at least 4 characters that fits one file only.\n\n" + conditionHelp(),
		RunE: a.run(func(ctx context.Context, _ []string) error { return a.list(ctx, f) }),
	}
	cmd.Flags().StringSliceVar(&f.conditions, "condition", nil, "only files in these conditions, several with commas")
	cmd.Flags().StringVar(&f.parent, "parent", "", "only files of this record, by its local ID")
	cmd.Flags().Var(&f.olderThan, "older-than", "only files taken longer ago, such as 2h or 3d")
	cmd.Flags().BoolVar(&f.notTaken, "not-taken", false, "paths in capture directories that were not taken, and why")
	a.completeRecord(cmd, "parent")
	complete(cmd, "condition", conditions())
	return cmd
}

func (a *app) list(ctx context.Context, f listFlags) error {
	for _, other := range []flagGiven{
		{"--condition", len(f.conditions) > 0}, {"--parent", f.parent != ""}, {"--older-than", f.olderThan > 0},
	} {
		if err := together(flagGiven{"--not-taken", f.notTaken}, other); err != nil {
			return err
		}
	}
	if f.notTaken {
		return a.listNotTaken(ctx)
	}
	q := control.ListQuery{Parent: attachment.NameOf(f.parent), Limit: control.MaxPage}
	for _, word := range f.conditions {
		c, err := parseCondition(word)
		if err != nil {
			return err
		}
		q.Conditions = append(q.Conditions, c)
	}
	if f.olderThan > 0 {
		q.AdoptedBefore = a.env.Now().Add(-time.Duration(f.olderThan))
	}
	if err := a.knownRecord(ctx, f.parent); err != nil {
		return err
	}
	pages := client.Pages(func(cursor string) (control.Page[control.Item], error) {
		q.Cursor = cursor
		return a.daemon.List(ctx, q)
	})
	var count, size int64
	row := func(i control.Item) []cell {
		count++
		size += i.Length
		return a.itemRow(i)
	}
	if a.quiet && !a.structured() {
		return printWords(a, pages, func(i control.Item) string { return string(i.ID) })
	}
	if err := printPages(a, control.SchemaItemList, a.itemTable(), pages, row); err != nil || a.structured() {
		return err
	}
	if count == 0 {
		return a.message("No file is listed.")
	}
	return a.message("%s, %s", files(count), siBytes(size))
}

// printPages prints a list page by page, for people or for programs.
func printPages[T any](a *app, schema string, t *table, pages iter.Seq2[control.Page[T], error], row func(T) []cell) error {
	list := &listPrinter{w: a.env.Stdout, yaml: a.output == formatYAML, schema: schema}
	for page, err := range pages {
		if err != nil {
			return err
		}
		var rows [][]cell
		for _, item := range page.Items {
			if !a.structured() {
				rows = append(rows, row(item))
				continue
			}
			if err := list.row(item); err != nil {
				return err
			}
		}
		if len(rows) > 0 {
			if err := t.print(a.env.Stdout, rows); err != nil {
				return err
			}
		}
	}
	if a.structured() {
		return list.end()
	}
	return nil
}

// printWords prints one word of each row and nothing else.
func printWords[T any](a *app, pages iter.Seq2[control.Page[T], error], word func(T) string) error {
	for page, err := range pages {
		if err != nil {
			return err
		}
		for _, i := range page.Items {
			if _, err := fmt.Fprintln(a.env.Stdout, attachment.Printable(word(i))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) itemTable() *table {
	t := &table{color: a.color()}
	if a.output == formatWide {
		t.columns = []column{
			{title: "ID"}, {title: "FILE"}, {title: "PARENT"}, {title: "SIZE", right: true}, {title: "CONDITION"},
			{title: "CONFIRMED", right: true}, {title: "PRIORITY"}, {title: "NEXT"}, {title: "TAKEN"}, {title: "TRIES", right: true}, {title: "COPY"},
			{title: "REPEATS"}, {title: "SHA256"}, {title: "REASON"},
		}
		return t
	}
	t.columns = []column{
		{title: "ID"}, {title: "FILE", limit: 32}, {title: "PARENT", limit: 20}, {title: "SIZE", right: true}, {title: "CONDITION"},
		{title: "CONFIRMED", right: true}, {title: "PRIO"}, {title: "NEXT"}, {title: "REASON", limit: 64},
	}
	return t
}

func (a *app) itemRow(i control.Item) []cell {
	id, why := control.ShortID(i.ID), none
	if i.Waiting != nil {
		why = string(i.Waiting.Reason)
		if i.Waiting.Detail != "" {
			why += ": " + i.Waiting.Detail
		}
	}
	why = text(why)
	if a.output == formatWide {
		id, why = string(i.ID), cause(i.Waiting)
	}
	row := cells(text(id), text(i.Filename.Text), text(i.Parent.LocalID.Text), siBytes(i.Length))
	row = append(row, condition(i.Condition, string(i.Grade)))
	row = append(row, cells(confirmed(confirmedBytes(&i), i.Length), priority(i.Priority), a.next(i.Waiting))...)
	if a.output == formatWide {
		return append(row, cells(a.clock(i.AdoptedAt), fmt.Sprint(i.Attempts), text(i.LocalCopy), text(control.ShortID(i.Repeats)), i.SHA256.String(), why)...)
	}
	return append(row, cell{text: why})
}

// priority is how lists show one: what was said by a sidecar is a number.
func priority(n int) string {
	switch {
	case n > attachment.MaxPriority:
		return "first"
	case n > 0:
		return strconv.Itoa(n)
	}
	return none
}

func (a *app) listNotTaken(ctx context.Context) error {
	pages := client.Pages(func(cursor string) (control.Page[control.NotTaken], error) {
		return a.daemon.NotTaken(ctx, cursor, control.MaxPage)
	})
	if a.quiet && !a.structured() {
		return printWords(a, pages, func(n control.NotTaken) string { return n.Path.Text })
	}
	t := &table{color: a.color(), columns: []column{
		{title: "WATCH", limit: 16}, {title: "SINCE"}, {title: "SIZE", right: true}, {title: "PATH", limit: 40, middle: true}, {title: "REASON"},
		{title: "WHAT TO DO"},
	}}
	why := func(w *control.Waiting) string { return sentence(w.Message) }
	if a.output == formatWide {
		why = cause
		for i := range t.columns {
			t.columns[i].limit = 0
		}
	}
	var count int64
	err := printPages(a, control.SchemaNotTakenList, t, pages, func(n control.NotTaken) []cell {
		count++
		since := none
		if !n.Waiting.Since.IsZero() {
			since = a.clock(n.Waiting.Since)
		}
		return cells(text(n.Watch), since, siBytes(n.Size), text(n.Path.Text), why(&n.Waiting), remedy(&n.Waiting))
	})
	if err != nil || a.structured() {
		return err
	}
	if count == 0 {
		return a.message("No directory has anything that was not taken.")
	}
	return a.message("%s not taken. They stay where they are.", plural(count, "path", "paths"))
}

// remedy is the best thing to do.
func remedy(w *control.Waiting) string {
	if len(w.Unblock) == 0 {
		return none
	}
	return sentence(w.Unblock[0].Action)
}

func (a *app) recordsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "records [ID]",
		Short: "List records with what is not delivered yet",
		Long: "List records, such as inspections, with the number and size of their files that are not delivered yet. A record is\n" +
			"known from its first file on, by its local ID: the name of its directory in a capture directory, or what was given\n" +
			"to submit --record. Files without a record are counted together. With an ID, only that record; when no file\n" +
			"belongs to it, the exit code is " + strconv.Itoa(exitNoSuchItem) + ". fieldgwctl list --parent ID shows the files of one record.",
		Args:              takes(0, 1, "the ID of one record, or nothing"),
		RunE:              a.run(a.records),
		ValidArgsFunction: a.recordIDs,
	}
}

func (a *app) records(ctx context.Context, args []string) error {
	q := control.RecordQuery{Limit: control.MaxPage}
	if len(args) == 1 {
		if args[0] == "" {
			return usagef("the record's ID is empty")
		}
		q.Parent = attachment.NameOf(args[0])
	}
	t := &table{color: a.color(), columns: []column{
		{title: "RECORD", limit: 40}, {title: "SERVER ID"}, {title: "UNDELIVERED", right: true}, {title: "SIZE", right: true},
		{title: "DELIVERED", right: true}, {title: "STATE"},
	}}
	found := false
	load := func(cursor string) (control.Page[control.Record], error) {
		q.Cursor = cursor
		page, err := a.daemon.Records(ctx, q)
		found = found || len(page.Items) > 0
		if err == nil && len(args) == 1 && !found && page.NextCursor == "" {
			err = noSuchRecord(args[0])
		}
		return page, err
	}
	err := printPages(a, control.SchemaRecordList, t, client.Pages(load), recordRow)
	if err != nil || a.structured() || found {
		return err
	}
	return a.message("There are no records.")
}

// knownRecord refuses a record that no file belongs to, so that a wrong ID does not look like a record with nothing to do.
// The empty ID stands for no record.
func (a *app) knownRecord(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	page, err := a.daemon.Records(ctx, control.RecordQuery{Parent: attachment.NameOf(id), Limit: 1})
	if err == nil && len(page.Items) == 0 {
		err = noSuchRecord(id)
	}
	return err
}

func noSuchRecord(id string) error {
	problem := control.Refuse(control.CodeNoSuchItem, "no file belongs to "+id)
	problem.Title, problem.Hint = "No such record", "fieldgwctl records shows what there is."
	return problem
}

func recordRow(r control.Record) []cell {
	name := r.Parent.LocalID.Printable()
	if r.Parent.LocalID.Empty() {
		name = "(no record)"
	}
	state := cell{"+ delivered", good}
	switch {
	case r.NeedsAttention > 0:
		state = cell{fmt.Sprintf("! %d need a person", r.NeedsAttention), bad}
		if r.NeedsAttention == 1 {
			state.text = "! 1 needs a person"
		}
	case r.Unreconciled.Items > 0:
		state = cell{"~ waiting", waits}
	}
	row := cells(name, text(r.Parent.ServerID), grouped(r.Unreconciled.Items), siBytes(r.Unreconciled.Bytes), grouped(r.Delivered.Items))
	return append(row, state)
}
