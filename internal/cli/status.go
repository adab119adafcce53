package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

func (a *app) statusCommand() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether anything is wrong, what waits and why",
		RunE:  a.run(func(ctx context.Context, _ []string) error { return a.status(ctx, check) }),
	}
	cmd.Flags().BoolVar(&check, "check", false, fmt.Sprintf("exit with %d when a person is needed", exitAttention))
	return cmd
}

func (a *app) status(ctx context.Context, check bool) error {
	st, err := a.daemon.Status(ctx)
	if err != nil {
		return err
	}
	if a.structured() {
		err = a.print(st)
	} else {
		err = a.printStatus(&st)
	}
	if err == nil && check && st.NeedsAttention() {
		return &reported{exitAttention}
	}
	return err
}

func (a *app) printStatus(st *control.Status) error {
	h := a.headline(st)
	var b strings.Builder
	fmt.Fprintf(&b, "%s   %s\n", h.style.paint(h.mark+" "+h.word, a.color()), h.sentence)
	for _, line := range a.facts(st) {
		fmt.Fprintf(&b, "  %-9s  %s\n", line[0], line[1])
	}
	if len(st.Counts) > 0 {
		b.WriteString("\n")
		if err := a.printCounts(&b, st.Counts); err != nil {
			return err
		}
	}
	writeProblems(&b, st)
	_, err := fmt.Fprint(a.env.Stdout, b.String())
	return err
}

type headline struct {
	mark, word, sentence string
	style                style
}

// headline answers the first question: is anything wrong, is the evidence safe and moving? The worst comes first.
func (a *app) headline(st *control.Status) headline {
	items, bytes := st.Owed()
	owed := fmt.Sprintf("%s, %s", files(items), siBytes(bytes))
	channel := st.Sending.Channel
	wrong := func(word, text string) headline { return headline{"!", word, text, bad} }
	persons := st.Of(attachment.ShownAttention).Items + st.Of(attachment.ShownReview).Items
	switch {
	case st.Degraded != nil:
		return wrong("DAMAGED", "The queue cannot be used. No file is taken; new ones stay where they are.")
	case !st.Configured && items == 0:
		return wrong("NOT CONFIGURED", "There is no server to send to. No file waits.")
	case !st.Configured:
		return wrong("NOT CONFIGURED", "There is no server to send to: "+owed+", kept on this device. Nothing is lost.")
	case st.Capture.Blocked != nil:
		return wrong("BLOCKED", attachment.Printable(st.Capture.Blocked.Message)+" "+waitingFiles(items, owed))
	case persons > 0:
		return wrong("ATTENTION", a.attentionSentence(persons, items, channel))
	case firstError(st) != "":
		return wrong("ATTENTION", attachment.Printable(firstError(st))+" "+waitingFiles(items, owed))
	case channel != nil && channel.NeedsPerson():
		return wrong("ATTENTION", attachment.Printable(channel.Message)+" "+waitingFiles(items, owed))
	case st.Sending.Paused:
		return headline{"=", "PAUSED", "All sending is paused" + a.channelSince(channel) + ". " + waitingFiles(items, owed), waits}
	case channel != nil && items > 0:
		return headline{"~", "WAITING", fmt.Sprintf("%s: %s%s. Nothing is lost.", owed, sentence(channel.Message), a.since(channel.Since)), waits}
	case channel != nil:
		return headline{"~", "OK", fmt.Sprintf("No file waits. %s%s.", sentence(channel.Message), a.since(channel.Since)), good}
	case st.Of(attachment.ShownUploading).Items > 0:
		return headline{">", "SENDING", owed + ", on the way. Nothing is lost.", working}
	case items > 0:
		return headline{"~", "WAITING", waitingFiles(items, owed), waits}
	case st.Of(attachment.ShownDelivered).Items == 0:
		return headline{"+", "OK", "No file waits.", good}
	}
	return headline{"+", "OK", "Everything is delivered.", good}
}

func waitingFiles(items int64, owed string) string {
	switch items {
	case 0:
		return "No file waits."
	case 1:
		return owed + ", waits. Nothing is lost."
	}
	return owed + ", wait. Nothing is lost."
}

func (a *app) channelSince(channel *control.Waiting) string {
	if channel == nil {
		return ""
	}
	return a.since(channel.Since)
}

// attentionSentence does not say that nothing is lost: a missing payload is one of the reasons.
func (a *app) attentionSentence(persons, owed int64, channel *control.Waiting) string {
	need := "needs"
	if persons > 1 {
		need = "need"
	}
	text := fmt.Sprintf("%s %s a person; nothing is deleted.", files(persons), need)
	switch rest := owed - persons; {
	case rest > 0 && channel != nil:
		text += fmt.Sprintf(" %s more: %s%s.", files(rest), sentence(channel.Message), a.since(channel.Since))
	case rest > 0:
		text += fmt.Sprintf(" %s more on the way.", files(rest))
	}
	return text
}

func firstError(st *control.Status) string {
	for _, p := range st.Problems {
		if p.Severity == control.SeverityError {
			return p.Message
		}
	}
	return ""
}

// facts are the lines between the headline and the counts.
func (a *app) facts(st *control.Status) [][2]string {
	device := text(st.Device)
	if st.Account != "" {
		device += " (account " + attachment.Printable(st.Account) + ")"
	}
	var facts [][2]string
	if st.Degraded != nil {
		facts = append(facts, [2]string{"damage", attachment.Printable(*st.Degraded)})
	}
	facts = append(facts, [][2]string{
		{"device", fmt.Sprintf("%s, fieldgwd %s, up %s", device, text(st.Version), a.age(st.StartedAt))},
		{"sending", a.sending(st)},
		{"server", text(st.Sending.Endpoint)},
		{"capture", capture(st)},
		{"storage", storage(st.Storage)},
	}...)
	for _, w := range st.Watches {
		if !w.Available {
			why := w.Message
			if why == "" {
				why = attachment.Explain(w.Reason).Sentence
			}
			since := ""
			if w.Since != nil {
				since = a.since(*w.Since)
			}
			if w.Detail != "" {
				why = sentence(why) + " (" + attachment.Printable(w.Detail) + ")"
			}
			facts = append(facts, [2]string{"watch", fmt.Sprintf("%s, %s: %s%s", text(w.Name), w.Path.Printable(), sentence(why), since)})
		} else if w.Polled != "" {
			facts = append(facts, [2]string{"watch", fmt.Sprintf("%s, %s: scanned every few seconds (%s)",
				text(w.Name), w.Path.Printable(), attachment.Printable(w.Polled))})
		}
	}
	return facts
}

func (a *app) sending(st *control.Status) string {
	s := "on"
	switch {
	case st.Degraded != nil:
		s = "off"
	case st.Sending.Paused:
		s = "paused"
	case !st.Configured:
		s = "not configured"
	case st.Sending.Channel != nil:
		s = "waits (" + attachment.Printable(string(st.Sending.Channel.Reason)) + behind(": ", st.Sending.Channel, "") + ")"
	}
	if st.Sending.LastDelivery != nil {
		s += ", last delivery " + a.clock(*st.Sending.LastDelivery)
	}
	if next := st.NextAttempt; next != nil {
		s += ", next try " + a.clock(*next)
		if wait := next.Sub(a.env.Now()); wait > 0 {
			s += " (in " + span(wait) + ")"
		}
	}
	return s
}

func capture(st *control.Status) string {
	s := "on, " + plural(int64(len(st.Watches)), "directory", "directories")
	if len(st.Watches) == 0 {
		s = "no directory is watched"
	}
	if st.Capture.Blocked != nil {
		s = "blocked (" + attachment.Printable(string(st.Capture.Blocked.Reason)) + ")"
	}
	if st.Degraded != nil {
		s = "off"
	}
	if st.NotTaken > 0 {
		s += fmt.Sprintf("; %s not taken (fieldgwctl list --not-taken)", plural(int64(st.NotTaken), "path", "paths"))
	}
	return s
}

func storage(s control.Storage) string {
	if s.State == control.StorageUnknown {
		return "free space is not known"
	}
	line := fmt.Sprintf("%s of %s free", siBytes(s.FreeBytes), siBytes(s.TotalBytes))
	switch s.State {
	case control.StorageWarn:
		line += fmt.Sprintf(", little: below %s no file is taken", siBytes(s.ReserveBytes))
	case control.StorageBlocked:
		line += fmt.Sprintf(", too little: no file is taken below %s", siBytes(s.ReserveBytes))
	}
	return line
}

func (a *app) printCounts(b *strings.Builder, counts []control.Count) error {
	t := &table{indent: "  ", color: a.color(), columns: []column{
		{title: "STATE"}, {title: "FILES", right: true}, {title: "SIZE", right: true}, {title: "OLDEST", right: true}, {title: "WHY"},
	}}
	order := attachment.Conditions()
	slices.SortStableFunc(counts, func(x, y control.Count) int {
		return slices.Index(order, x.Condition) - slices.Index(order, y.Condition)
	})
	var rows [][]cell
	for _, n := range counts {
		oldest, why := none, none
		if n.Oldest != nil {
			oldest = a.age(*n.Oldest)
		}
		if n.Waiting != nil {
			why = reason(n.Waiting)
		}
		rows = append(rows, append([]cell{condition(n.Condition, "")}, cells(grouped(n.Items), siBytes(n.Bytes), oldest, why)...))
	}
	return t.print(b, rows)
}

// behind is the cause behind a wait between two texts, or nothing where there is none.
func behind(before string, w *control.Waiting, after string) string {
	if w.Detail == "" {
		return ""
	}
	return before + sentence(w.Detail) + after
}

// cause is reason with what is behind it.
func cause(w *control.Waiting) string {
	if w == nil {
		return none
	}
	return reason(w) + behind(" (", w, ")")
}

// reason is code and sentence of a wait.
func reason(w *control.Waiting) string {
	if w == nil {
		return none
	}
	text := attachment.Printable(string(w.Reason)) + ": " + sentence(w.Message)
	if w.Rule != "" {
		text += " (" + attachment.Printable(w.Rule) + ")"
	}
	return text
}

// writeProblems ends the screen with what is wrong and what a person can do.
func writeProblems(b *strings.Builder, st *control.Status) {
	problems := slices.DeleteFunc(slices.Clone(st.Problems), func(p control.Problem) bool {
		return st.Degraded != nil && p.Message == *st.Degraded // it stands above
	})
	if len(problems) > 0 {
		b.WriteString("\n")
	}
	for _, p := range problems {
		fmt.Fprintf(b, "  %s: %s\n", attachment.Printable(p.Severity), attachment.Printable(p.Message))
	}
	todo := remedies(st)
	if len(todo) > 0 {
		b.WriteString("\n  What you can do:\n")
	}
	for _, line := range todo {
		fmt.Fprintf(b, "    %s\n", line)
	}
}

// rebuild is what to type when the queue is damaged.
const rebuild = "sudo systemctl stop fieldgwd; sudo fieldgwd rebuild; sudo systemctl start fieldgwd"

// remedies lists what a person can do, each once: for capture, for the channel, for the files that wait for a person, and
// for the problems.
func remedies(st *control.Status) (todo []string) {
	add := func(what, action, command string) {
		line := what + attachment.Printable(action)
		if command != "" {
			line += " (" + attachment.Printable(command) + ")"
		}
		if action != "" && !slices.Contains(todo, line) {
			todo = append(todo, line)
		}
	}
	if st.Degraded != nil { // the same is what blocks capture, and nothing else can be done before
		for _, p := range st.Problems {
			add("", p.Action, "")
		}
		if len(todo) > 0 {
			return todo
		}
		add("", "Rebuild the queue from the stored files, then start the daemon again.", rebuild)
		return todo
	}
	for _, w := range []*control.Waiting{st.Capture.Blocked, st.Sending.Channel} {
		for _, u := range unblock(w) {
			add("", u.Action, u.Command)
		}
	}
	for _, c := range []attachment.Condition{attachment.ShownAttention, attachment.ShownReview, attachment.ShownPaused} {
		n := st.Of(c)
		for _, u := range unblock(n.Waiting) {
			action, command := u.Action, u.Command
			switch {
			case n.Items > 1 && c == attachment.ShownPaused:
				action, command = "Resume them.", "fieldgwctl resume --all"
			case n.Items > 1: // what is known is the oldest one's; the others may have other reasons
				command = "fieldgwctl list --condition " + string(c)
			}
			add(string(c)+": ", action, command)
		}
	}
	for _, p := range st.Problems {
		add("", p.Action, "")
	}
	return todo
}

// unblock is what somebody can do about a wait; there may be none.
func unblock(w *control.Waiting) (can []control.Unblock) {
	if w == nil {
		return nil
	}
	for _, u := range w.Unblock {
		if u.Who != attachment.WhoNobody {
			can = append(can, u)
		}
	}
	return can
}
