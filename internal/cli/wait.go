package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
)

const (
	defaultTimeout = 10 * time.Minute
	// reread bounds how long a lost event can go unnoticed.
	reread = 30 * time.Second
	// absence is how long the daemon may be gone before wait gives up, reconnect the pause between two tries.
	absence   = time.Minute
	reconnect = 500 * time.Millisecond
	// grace is how long something that only a person can end may last before wait gives up: a state in passing is none.
	grace = 2 * time.Second
)

type waitFlags struct {
	all     bool
	record  string
	target  string
	timeout duration
}

func (a *app) waitCommand() *cobra.Command {
	f := waitFlags{timeout: duration(defaultTimeout)}
	cmd := &cobra.Command{
		Use:   "wait [ID... | - | --record R | --all]",
		Short: "Wait until files are delivered, or in another condition",
		Long: "Wait until every named file is in a condition or, on the way to delivery, past it.\n\n" +
			"--record waits until the record has a file and none of its undelivered files is short of the condition; --all\n" +
			"until no undelivered file of this device is. A file that needs a person, or sending that cannot go on without\n" +
			"one (paused, not configured, certificate or credential not accepted), ends the wait with exit code 8, a file\n" +
			"that cannot get there any more with 6, the timeout with 7.\n\n" + conditionHelp(),
		RunE: a.run(func(ctx context.Context, args []string) error { return a.wait(ctx, f, args) }),
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "every undelivered file")
	cmd.Flags().StringVar(&f.record, "record", "", "the files of this record, by its local ID")
	cmd.Flags().StringVar(&f.target, "for", string(attachment.ShownDelivered), "the condition to wait for")
	cmd.Flags().Var(&f.timeout, "timeout", "give up after this time; 0s means never")
	cmd.ValidArgsFunction = a.completeIDs(control.MaxActionIDs, owed()...)
	a.completeRecord(cmd, "record")
	complete(cmd, "for", conditions())
	return cmd
}

// errTimedOut is the cause of the context's end when the time that --timeout gives is over.
var errTimedOut = errors.New("timed out")

func (a *app) wait(ctx context.Context, f waitFlags, args []string) error {
	target, err := parseCondition(f.target)
	if err != nil {
		return err
	}
	if err := together(flagGiven{"--all", f.all}, flagGiven{"--record", f.record != ""}, flagGiven{"IDs", len(args) > 0}); err != nil {
		return err
	}
	refs, err := a.references(args)
	if err != nil {
		return err
	}
	selected := f.all || f.record != ""
	if !selected && len(args) == 0 {
		return usagef("wait for what? Give IDs, --all or --record")
	}
	if len(refs) > control.MaxActionIDs {
		return usagef("%d IDs, at most %d", len(refs), control.MaxActionIDs)
	}
	w := &waiter{app: a, target: target}
	if selected {
		w.goal = &setGoal{waiter: w, record: attachment.NameOf(f.record)}
	} else if w.goal, err = w.namedGoal(ctx, refs); err != nil {
		return err
	}
	waiting := ctx
	if f.timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, time.Duration(f.timeout), errTimedOut)
		defer cancel()
		waiting = limited
	}
	err = w.run(waiting)
	if err != nil && errors.Is(context.Cause(waiting), errTimedOut) && waiting.Err() != nil {
		return w.timedOut(ctx, f.timeout)
	}
	if err != nil {
		return err
	}
	if a.structured() {
		return a.print(waitAnswer{Schema: "fieldgw.wait/v1", For: target, Result: "reached"})
	}
	return nil
}

// waitAnswer is the answer of wait, as JSON.
type waitAnswer struct {
	Schema string               `json:"schema"`
	For    attachment.Condition `json:"for"`
	Result string               `json:"result"`
}

// verdict is what a condition means for the one that is waited for.
type verdict string

const (
	pending    verdict = "pending"
	reached    verdict = "reached"
	stuck      verdict = "stuck"      // a person is needed first
	impossible verdict = "impossible" // it will never be
)

// ladder is the way to delivery: who waits for one step is content with a later one.
var ladder = []attachment.Condition{
	attachment.ShownCaptured, attachment.ShownWaiting, attachment.ShownUploading, attachment.ShownUploaded, attachment.ShownSent,
	attachment.ShownDelivered,
}

func judge(target, now attachment.Condition) verdict {
	want, have := slices.Index(ladder, target), slices.Index(ladder, now)
	switch {
	case now == target, want >= 0 && have >= want:
		return reached
	case !now.Owed():
		return impossible
	case want >= 0 && (now == attachment.ShownAttention || now == attachment.ShownReview):
		return stuck
	}
	return pending
}

// goal is what a wait is for.
type goal interface {
	// read looks at the present state; done: the goal is reached. Where it is not and something is in the way that only a
	// person can end, read says so to waiter.blocked.
	read(ctx context.Context) (done bool, err error)
	// hear takes a transition; again: only reading can tell.
	hear(t control.Transition) (done, again bool, err error)
	// rest names something that is missing.
	rest(ctx context.Context) (string, error)
}

type waiter struct {
	*app
	target attachment.Condition
	goal   goal
	// blocked is what was in the way when the state was last read; nil when nothing was.
	blocked error
}

// run subscribes before it reads, so that nothing can happen unseen between the two. A daemon that goes away in the meantime is
// waited for a while.
func (w *waiter) run(ctx context.Context) error {
	var gone time.Time
	for {
		seen, err := w.follow(ctx)
		if err == nil || !lostContact(err) || ctx.Err() != nil {
			return err
		}
		switch {
		case !seen && gone.IsZero():
			return err // it was not there to begin with
		case seen:
			gone = time.Now()
			if err := w.message("The daemon went away; waiting for it to come back."); err != nil {
				return err
			}
		case time.Since(gone) > absence:
			return err
		}
		pause := time.NewTimer(reconnect)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// errStreamEnded is returned when the daemon ended the stream of events.
var errStreamEnded = fmt.Errorf("the events ended: %w", client.ErrNotRunning)

func lostContact(err error) bool {
	if problem, ok := errors.AsType[*control.Error](err); ok {
		return problem.Code == control.CodeShuttingDown
	}
	return errors.Is(err, client.ErrNotRunning)
}

// follow waits as long as one subscription lasts. seen: there was one.
func (w *waiter) follow(ctx context.Context) (seen bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	events, err := w.daemon.Subscribe(ctx)
	if err != nil {
		cancel()
		return false, err
	}
	heard := make(chan client.Event)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			e, err := events.Next()
			if err != nil {
				return // whatever it was: the state is read again with the next subscription
			}
			select {
			case heard <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-ended
		_ = events.Close() // the stream is over
	}()
	return true, w.listen(ctx, heard, ended)
}

func (w *waiter) listen(ctx context.Context, heard <-chan client.Event, ended <-chan struct{}) error {
	again := time.NewTicker(reread)
	defer again.Stop()
	patience := newPatience(w.app)
	defer patience.Stop()
	done, err := w.read(ctx, patience)
	for err == nil && !done {
		stale := true
		select {
		case <-patience.C:
			if done, err = w.goal.read(ctx); err == nil && !done {
				err = w.blocked
			}
			patience.running, stale = false, false
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return errStreamEnded
		case <-again.C:
		case e := <-heard:
			if !e.Gap {
				done, stale, err = w.goal.hear(e.Transition)
			}
		}
		if stale && err == nil && !done {
			done, err = w.read(ctx, patience)
		}
	}
	return err
}

// read looks at the state, and lets patience run while something is in the way.
func (w *waiter) read(ctx context.Context, p *patience) (done bool, err error) {
	done, err = w.goal.read(ctx)
	p.set(w.blocked != nil)
	return done, err
}

// patience is a timer that runs while something is in the way.
type patience struct {
	*time.Timer
	length  time.Duration
	running bool
}

func newPatience(a *app) *patience {
	p := &patience{length: grace}
	if a.env.grace != 0 {
		p.length = a.env.grace
	}
	p.Timer = time.NewTimer(p.length)
	p.Stop()
	return p
}

// set starts the timer, lets it run on, or stops it.
func (p *patience) set(run bool) {
	switch {
	case run && !p.running:
		p.Reset(p.length)
	case !run:
		p.Stop()
	}
	p.running = run
}

// timedOut says what is missing; the time for that is short.
func (w *waiter) timedOut(ctx context.Context, after duration) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	p := &control.Error{
		Schema: control.SchemaError, Code: codeTimedOut, Title: "Timed out",
		Detail: fmt.Sprintf("not %s after %s", w.target, after.String()), Hint: "fieldgwctl status says what is waited for.",
	}
	if rest, err := w.goal.rest(ctx); err == nil && rest != "" {
		p.Detail += "; " + rest
	}
	return p
}
