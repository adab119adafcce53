package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

// namedGoal resolves the references of a wait for single files.
func (w *waiter) namedGoal(ctx context.Context, refs []attachment.ID) (goal, error) {
	g := &namedGoal{waiter: w, missing: map[attachment.ID]attachment.Name{}}
	for _, ref := range refs {
		item, err := w.daemon.Get(ctx, string(ref))
		if err != nil {
			return nil, err
		}
		g.missing[item.ID] = item.Filename
	}
	return g, nil
}

// namedGoal is reached when each of the files was seen in the condition once.
type namedGoal struct {
	*waiter
	missing map[attachment.ID]attachment.Name
}

func (g *namedGoal) read(ctx context.Context) (bool, error) {
	g.blocked = nil
	for _, id := range slices.Sorted(maps.Keys(g.missing)) {
		item, err := g.daemon.Get(ctx, string(id))
		if err != nil {
			return false, err
		}
		if err := g.consider(id, item.Condition, item.Waiting); err != nil {
			return false, err
		}
	}
	return len(g.missing) == 0, nil
}

func (g *namedGoal) hear(t control.Transition) (done, again bool, err error) {
	if _, ours := g.missing[t.ID]; !ours {
		return false, false, nil
	}
	// What a person must do is not in the transition: read.
	if v := judge(g.target, t.Condition); v != reached {
		return false, v != pending, nil
	}
	err = g.consider(t.ID, t.Condition, nil)
	return len(g.missing) == 0, false, err
}

func (g *namedGoal) consider(id attachment.ID, c attachment.Condition, why *control.Waiting) error {
	switch judge(g.target, c) {
	case reached:
		name := g.missing[id]
		delete(g.missing, id)
		return g.tell(c, text(control.ShortID(id))+"  "+name.Printable())
	case pending:
		if g.blocked == nil && g.obstructs(c, why) {
			g.blocked = g.stopped(id, g.missing[id], c, why)
		}
		return nil
	case stuck:
		if !passing(why) {
			break
		}
		if g.blocked == nil {
			g.blocked = g.stopped(id, g.missing[id], c, why)
		}
		return nil
	}
	return g.stopped(id, g.missing[id], c, why)
}

func (g *namedGoal) rest(ctx context.Context) (string, error) {
	if len(g.missing) == 0 {
		return "", nil
	}
	first := slices.Min(slices.Collect(maps.Keys(g.missing)))
	item, err := g.daemon.Get(ctx, string(first))
	if err != nil {
		return "", err
	}
	return missingText(int64(len(g.missing)), &item.Item), nil
}

// setGoal is reached when no undelivered file of a record, or of the device, is short of the condition.
type setGoal struct {
	*waiter
	record attachment.Name // empty: the device
}

// short lists the conditions that are not there yet or never will be without a person.
func (g *setGoal) short() (conditions []attachment.Condition) {
	for _, c := range attachment.Conditions() {
		if v := judge(g.target, c); c.Owed() && v != reached {
			conditions = append(conditions, c)
		}
	}
	return conditions
}

// read asks one question for all, so that a file which changes its condition between two questions cannot slip through.
func (g *setGoal) read(ctx context.Context) (bool, error) {
	g.blocked = nil
	page, err := g.daemon.List(ctx, control.ListQuery{Conditions: g.short(), Parent: g.record, Limit: 1})
	if err != nil {
		return false, err
	}
	if len(page.Items) == 0 {
		return g.complete(ctx)
	}
	if first := &page.Items[0]; g.obstructs(first.Condition, first.Waiting) {
		g.blocked = g.stopped(first.ID, first.Filename, first.Condition, first.Waiting)
	}
	stopped := slices.DeleteFunc(g.short(), func(c attachment.Condition) bool {
		return judge(g.target, c) != stuck && !g.obstructs(c, nil)
	})
	if len(stopped) == 0 {
		return false, nil
	}
	page, err = g.daemon.List(ctx, control.ListQuery{Conditions: stopped, Parent: g.record, Limit: 1})
	if err != nil || len(page.Items) == 0 {
		return false, err
	}
	i := page.Items[0]
	end := g.stopped(i.ID, i.Filename, i.Condition, i.Waiting)
	if judge(g.target, i.Condition) == stuck && !passing(i.Waiting) {
		return false, end
	}
	g.blocked = end
	return false, nil
}

// complete is asked when nothing is short. A record without files has not begun: they are still on their way here.
func (g *setGoal) complete(ctx context.Context) (bool, error) {
	whose := "all files"
	if !g.record.Empty() {
		page, err := g.daemon.List(ctx, control.ListQuery{Parent: g.record, Limit: 1})
		if err != nil || len(page.Items) == 0 {
			return false, err
		}
		whose = "all files of record " + g.record.Printable()
	}
	return true, g.tell(g.target, whose)
}

// hear cannot tell whose file it was and how many there are left.
func (g *setGoal) hear(control.Transition) (done, again bool, err error) { return false, true, nil }

func (g *setGoal) rest(ctx context.Context) (string, error) {
	page, err := g.daemon.List(ctx, control.ListQuery{Conditions: g.short(), Parent: g.record, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(page.Items) == 0 {
		return "the record has no files", nil
	}
	return "first of the rest: " + itemText(&page.Items[0]), nil
}

// tell prints what was reached.
func (w *waiter) tell(c attachment.Condition, what string) error {
	if w.structured() || w.quiet {
		return nil
	}
	_, err := fmt.Fprintf(w.env.Stdout, "%s  %s\n", attachment.Printable(string(c)), what)
	return err
}

// stopped is the end of a wait that cannot be successful.
func (w *waiter) stopped(id attachment.ID, name attachment.Name, c attachment.Condition, why *control.Waiting) error {
	i := control.Item{ID: id, Filename: name, Condition: c, Waiting: why}
	if judge(w.target, c) == impossible {
		return control.Refuse(control.CodeNotPossible, itemText(&i)+", and will not be "+string(w.target))
	}
	hint := "fieldgwctl show " + attachment.Printable(string(id))
	if can := unblock(why); passing(why) && len(can) > 0 {
		hint = can[0].Action
		if can[0].Command != "" {
			hint += " (" + can[0].Command + ")"
		}
	}
	return &control.Error{
		Schema: control.SchemaError, Code: codeAttention, Title: "A person is needed", Detail: itemText(&i), Hint: hint,
	}
}

// obstructs reports whether a file that is not there yet cannot get there without a person: it is paused, or must be sent
// and sending waits for one.
func (w *waiter) obstructs(c attachment.Condition, why *control.Waiting) bool {
	step := slices.Index(ladder, w.target)
	switch {
	case step < 0:
		return false
	case c == attachment.ShownPaused:
		return true
	case why == nil || step <= slices.Index(ladder, attachment.ShownWaiting):
		return false
	}
	return why.NeedsPerson() || why.Reason == attachment.HoldChannelPaused
}

// passing reports whether a wait may end without a decision about the file: it is not the file's own.
func passing(why *control.Waiting) bool {
	return why != nil && attachment.Explain(why.Reason).Kind == attachment.KindHold
}

func missingText(n int64, first *control.Item) string {
	if n == 1 {
		return itemText(first)
	}
	return fmt.Sprintf("%s missing, one of them: %s", files(n), itemText(first))
}

// itemText is one file in a sentence. Its name is quoted by the one who prints errors, so it is left as it is.
func itemText(i *control.Item) string {
	s := fmt.Sprintf("%s %s is %s", control.ShortID(i.ID), i.Filename.Text, i.Condition)
	if i.Waiting != nil {
		s += fmt.Sprintf(" (%s: %s", i.Waiting.Reason, strings.TrimSuffix(i.Waiting.Message, "."))
		if i.Waiting.Detail != "" {
			s += "; " + i.Waiting.Detail
		}
		s += ")"
	}
	return s
}
