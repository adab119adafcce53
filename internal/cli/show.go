package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show everything about one file",
		Long: "Show everything about one file: its condition, why it waits and what to do, its identity, where its bytes are, what\n" +
			"the server confirmed, the last error, the receipt, and its history.\n\n" +
			"The ID is the whole one, or its beginning or end of at least 4 characters that fits one file only.",
		Args:              takes(1, 1, "one ID"),
		ValidArgsFunction: a.completeIDs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if args[0] == "" {
				return usagef("the ID is empty")
			}
			item, err := a.daemon.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if a.structured() {
				return a.print(item)
			}
			return a.printItem(&item)
		}),
	}
}

// sheet collects labelled lines; empty values are left out.
type sheet struct{ strings.Builder }

func (s *sheet) line(label, value string) {
	if value != "" {
		fmt.Fprintf(s, "  %-11s  %s\n", label, value)
	}
}

func (a *app) printItem(d *control.ItemDetail) error {
	var s sheet
	fmt.Fprintf(&s, "%s   %s\n", strong.paint(text(control.ShortID(d.ID)), a.color()), d.Filename.Printable())
	a.showCondition(&s, d)
	a.showIdentity(&s, d)
	a.showDelivery(&s, d)
	if err := a.showJournal(&s, d); err != nil {
		return err
	}
	_, err := fmt.Fprint(a.env.Stdout, s.String())
	return err
}

// showCondition says what is the matter and what to do.
func (a *app) showCondition(s *sheet, d *control.ItemDetail) {
	c := condition(d.Condition, string(d.Grade))
	s.line("condition", c.style.paint(c.text, a.color())+"  (state "+attachment.Printable(string(d.State))+")")
	if w := d.Waiting; w != nil {
		s.line("why", cause(w)+a.since(w.Since))
		s.line("next", a.nextAttempt(w))
		for _, u := range w.Unblock {
			s.line("what to do", attachment.Printable(string(u.Who))+": "+attachment.Printable(u.Action))
			s.line("", attachment.Printable(u.Command))
		}
	}
	if d.Problem != nil && d.Problem.Detail != "" {
		s.line("detail", attachment.Printable(d.Problem.Detail))
	}
	if e := d.LastError; e != nil {
		status := ""
		if e.Status != 0 {
			status = fmt.Sprintf(" (HTTP status %d)", e.Status)
		}
		s.line("last error", attachment.Printable(string(e.Code))+": "+attachment.Printable(e.Message)+status+", "+a.exactTime(e.At))
	}
	if d.Discard != nil {
		s.line("discarded", fmt.Sprintf("by %s, %s: %s", text(d.Discard.By), a.exactTime(d.Discard.At), text(d.Discard.Reason)))
	}
}

func (a *app) nextAttempt(w *control.Waiting) string {
	if w.NextAttempt == nil {
		return attachment.Printable(w.NextTrigger)
	}
	return a.exactTime(*w.NextAttempt) + " (" + a.next(w) + ")"
}

func (a *app) showIdentity(s *sheet, d *control.ItemDetail) {
	s.line("id", text(string(d.ID)))
	s.line("parent", parentText(d.Parent)+bindingText(d.Binding))
	if d.Binding.ReleasePending {
		s.line("", "the sidecar is still to be removed there")
	}
	if d.Binding.Kept != "" {
		s.line("", "the sidecar was left in place: "+attachment.Printable(d.Binding.Kept))
	}
	s.line("description", attachment.Printable(d.Description))
	s.line("supersedes", attachment.Printable(string(d.Supersedes)))
	s.line("size", exactBytes(d.Length))
	s.line("sha256", d.SHA256.String())
	s.line("media type", text(d.MediaType))
	role := text(string(d.Role))
	if d.Of != "" {
		role += " of " + text(string(d.Of))
	}
	s.line("role", role+", structure "+text(d.Structure))
	s.line("captured", a.exactTime(d.CapturedAt)+" ("+text(d.CapturedAtSource)+")")
	s.line("taken", a.exactTime(d.AdoptedAt)+" by "+text(string(d.Custody))+", complete because "+text(string(d.Source.Evidence)))
	source := d.Source.Path.Printable()
	if d.Source.Watch != "" {
		source += " (watch " + attachment.Printable(d.Source.Watch) + ")"
	}
	s.line("source", source)
	if d.Source.ReleasePending {
		s.line("", "still to be removed there")
	}
	if d.Source.Released {
		s.line("", "removed there after it was taken")
	}
	if d.Source.Kept != "" {
		s.line("", "left in place: "+attachment.Printable(d.Source.Kept))
	}
	if d.Repeats != "" {
		s.line("repeats", text(string(d.Repeats))+", taken earlier with the same bytes")
	}
	s.line("submission", attachment.Printable(d.Submission))
	place := attachment.Printable(d.LocalCopy)
	if d.PayloadPath != "" {
		place += ", " + attachment.Printable(d.PayloadPath)
	}
	s.line("local copy", place)
}

func (a *app) showDelivery(s *sheet, d *control.ItemDetail) {
	s.line("confirmed", confirmedText(&d.Item))
	s.line("attempts", fmt.Sprintf("%d, of these failed since the last success: %d", d.Attempts, d.Failures))
	if d.Priority != 0 {
		text := fmt.Sprintf("%d of %d", d.Priority, attachment.MaxPriority)
		if d.Priority > attachment.MaxPriority {
			text = "first: a person put it there"
		}
		s.line("priority", text)
	}
	if d.Session != nil {
		s.line("session", fmt.Sprintf("%s, generation %d", text(d.Session.ID), d.Session.Generation))
	}
	s.line("media ID", attachment.Printable(d.MediaID))
	if r := d.Receipt; r != nil {
		from := ""
		if r.Server != "" {
			from = " from " + attachment.Printable(r.Server)
		}
		s.line("receipt", attachment.Printable(string(r.Grade))+from+", "+a.exactTime(r.RegisteredAt))
		if r.Takeover != nil {
			s.line("", "finished by "+text(r.Takeover.Device)+", "+a.exactTime(r.Takeover.At))
		}
	}
	if d.DeliveredAt != nil {
		s.line("delivered", a.exactTime(*d.DeliveredAt))
	}
}

// confirmedText is what the server confirmed, in words. Once it verified or registered the file it confirmed all of it.
func confirmedText(i *control.Item) string {
	all := "all " + exactBytes(i.Length)
	switch {
	case i.Condition == attachment.ShownDelivered:
		return all + ", registered"
	case i.Condition == attachment.ShownSent:
		return all + ", grade " + text(string(i.Grade))
	case i.State == attachment.Uploaded:
		return all + ", verified; not registered yet"
	case i.Restarts:
		return "no part of it; whatever interrupts it, a pause too, begins it anew"
	case i.ConfirmedBytes == nil:
		return "nothing yet"
	}
	return exactBytes(*i.ConfirmedBytes) + " of " + grouped(i.Length)
}

func parentText(p attachment.Parent) string {
	switch {
	case p.LocalID.Empty() && p.ServerID == "":
		return "none"
	case p.ServerID == "":
		return p.LocalID.Printable()
	}
	return text(p.LocalID.Text) + " (on the server " + attachment.Printable(p.ServerID) + ")"
}

// bindingText says what named the parent.
func bindingText(b control.Binding) string {
	switch {
	case b.Rule == "":
		return ""
	case !b.Sidecar.Empty():
		return " (by sidecar " + b.Sidecar.Printable() + ")"
	case b.Rule == attachment.BindSidecar:
		return " (no sidecar)"
	case b.Rule == attachment.BindNone:
		return " (by the watch's rule)"
	}
	return " (by " + attachment.Printable(string(b.Rule)) + ")"
}

func (a *app) showJournal(s *sheet, d *control.ItemDetail) error {
	if len(d.Journal) == 0 {
		return nil
	}
	title := "\n  journal\n"
	if d.JournalCut {
		title = fmt.Sprintf("\n  journal, the last %d rows\n", len(d.Journal))
	}
	s.WriteString(title)
	t := &table{indent: "  ", color: a.color(), columns: []column{
		{title: "SEQ", right: true}, {title: "AT"}, {title: "EVENT"}, {title: "STATE"}, {title: "BY"}, {title: "REASON"},
	}}
	var rows [][]cell
	for _, j := range d.Journal {
		state := attachment.Printable(string(j.To))
		if j.From != "" && j.From != j.To {
			state = attachment.Printable(string(j.From)) + " > " + state
		}
		why := attachment.Printable(j.Reason)
		if why != "" && j.Detail != "" {
			why += ": "
		}
		why += attachment.Printable(j.Detail)
		rows = append(rows, cells(fmt.Sprint(j.Seq), a.exactTime(j.At), text(string(j.Event)), state, text(j.By), orNone(why)))
	}
	return t.print(s, rows)
}

func orNone(printable string) string {
	if printable == "" {
		return none
	}
	return printable
}
