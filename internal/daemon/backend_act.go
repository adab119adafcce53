package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/server"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
)

// retrySpread is the largest random delay after a person's retry or a returned server: a fleet told so at one moment
// does not arrive at one moment.
const retrySpread = 2 * time.Second

// verb is one decision about one attachment. It reports whether something changed.
type verb struct {
	// event is what the decision is called in the journal, for a dry run.
	event attachment.Event
	// needed tells whether it would change anything, for selections that do not name the attachment.
	needed func(*attachment.Manifest) bool
	do     func(ctx context.Context, id attachment.ID, by, reason string) error
}

// Retry ends backoff and attention of the selected attachments, and the channel's wait.
func (s *session) Retry(ctx context.Context, by server.Caller, a control.Action) (control.Outcome, error) {
	out, err := s.act(ctx, by, a, verb{
		event: attachment.EventRetried,
		needed: func(m *attachment.Manifest) bool {
			return m.State == attachment.Attention || m.State.Sendable() && !m.Paused
		},
		do: func(ctx context.Context, id attachment.ID, by, reason string) error {
			err := s.travel(id, func(m *attachment.Manifest) bool {
				if m.State != attachment.Attention || !m.Retryable() {
					return false
				}
				m.State, m.Problem = attachment.Captured, nil
				return true
			})
			if err != nil {
				return err
			}
			return s.queue.Retry(ctx, id, by, reason)
		},
	})
	if out.Done > 0 && !a.DryRun {
		s.dispatcher.channel.Reset(retrySpread)
		s.dispatcher.keepChannel(ctx)
		s.dispatcher.spread()
		s.dispatcher.poke()
	}
	return out, err
}

// Prioritize puts the selected attachments before all others, at once and outside the upload windows too.
func (s *session) Prioritize(ctx context.Context, by server.Caller, a control.Action) (control.Outcome, error) {
	out, err := s.act(ctx, by, a, verb{
		event:  attachment.EventPrioritized,
		needed: func(m *attachment.Manifest) bool { return m.State.Sendable() && m.Priority < attachment.PriorityFront },
		do: func(ctx context.Context, id attachment.ID, by, reason string) error {
			err := s.travel(id, func(m *attachment.Manifest) bool {
				m.Priority = attachment.PriorityFront
				return true
			})
			if err == nil {
				_, err = s.queue.Prioritize(ctx, id, by, reason)
			}
			if err == nil {
				s.dispatcher.trust(id)
			}
			return err
		},
	})
	s.dispatcher.poke()
	return out, err
}

// Pause holds the selected attachments.
func (s *session) Pause(ctx context.Context, by server.Caller, a control.Action) (control.Outcome, error) {
	return s.act(ctx, by, a, verb{
		event:  attachment.EventPaused,
		needed: func(m *attachment.Manifest) bool { return m.State.Undelivered() && !m.Paused },
		do: func(ctx context.Context, id attachment.ID, by, reason string) error {
			if err := s.travel(id, func(m *attachment.Manifest) bool { m.Paused = true; return true }); err != nil {
				return err
			}
			_, err := s.queue.Pause(ctx, id, by, reason)
			return err
		},
	})
}

// Resume lifts Pause.
func (s *session) Resume(ctx context.Context, by server.Caller, a control.Action) (control.Outcome, error) {
	out, err := s.act(ctx, by, a, verb{
		event:  attachment.EventResumed,
		needed: func(m *attachment.Manifest) bool { return m.Paused && m.State.Undelivered() },
		do: func(ctx context.Context, id attachment.ID, by, reason string) error {
			if err := s.travel(id, func(m *attachment.Manifest) bool { m.Paused = false; return true }); err != nil {
				return err
			}
			_, err := s.queue.Resume(ctx, id, by, reason)
			return err
		},
	})
	s.dispatcher.poke()
	s.waits.poke()
	return out, err
}

// travel writes a decision about one attachment into the manifest beside its payload, before the queue knows it: that copy
// is what a queue is rebuilt from. edit reports whether there is anything to write. A payload that is missing carries nothing.
func (s *session) travel(id attachment.ID, edit func(*attachment.Manifest) bool) error {
	e, err := s.queue.Get(id)
	if err != nil || e.Manifest == nil || !edit(e.Manifest) {
		return err
	}
	segments, err := s.queue.Segments(id)
	if err != nil {
		return err
	}
	err = s.spool.RewriteManifest(&attachment.Travelling{Manifest: *e.Manifest, Segments: segments})
	if errors.Is(err, spool.ErrMissing) {
		return nil
	}
	return err
}

// act applies a verb to what an action selects. One attachment never stops another.
func (s *session) act(ctx context.Context, by server.Caller, a control.Action, v verb) (control.Outcome, error) {
	out := control.Outcome{DryRun: a.DryRun}
	for _, id := range a.IDs {
		e, err := s.queue.Get(id)
		if err == nil {
			err = s.actOn(ctx, by, a, v, e)
		}
		if err := addResult(&out, id, e, err); err != nil {
			return out, err
		}
	}
	if len(a.IDs) > 0 {
		return out, nil
	}
	return out, s.each(ctx, a, func(e queue.Entry) error {
		if !v.needed(e.Manifest) {
			return nil
		}
		return addResult(&out, e.ID, e, s.actOn(ctx, by, a, v, e))
	})
}

func (s *session) actOn(ctx context.Context, by server.Caller, a control.Action, v verb, e queue.Entry) error {
	if e.Manifest == nil {
		return e.Err
	}
	if _, err := attachment.Next(e.Manifest.State, v.event, e.Manifest.Facts()); err != nil || a.DryRun {
		return err
	}
	return v.do(ctx, e.ID, by.String(), a.Reason)
}

// addResult turns an item's error into its refusal; an error that is not about the item is returned.
func addResult(out *control.Outcome, id attachment.ID, e queue.Entry, err error) error {
	r := control.ActionResult{ID: id, Done: err == nil}
	if e.Manifest != nil {
		r.Filename = e.Manifest.Filename
	}
	var refused *control.Error
	switch {
	case err == nil:
	case errors.As(refusal(err), &refused):
		r.Code, r.Message = refused.Code, refused.Title
		if e.Manifest != nil {
			r.Message += ": it is " + string(e.Manifest.Condition())
		}
	case e.Err != nil:
		r.Code, r.Message = control.CodeNotPossible, attachment.Explain(attachment.NeedsManifestDamaged).Sentence
	case errors.Is(err, store.ErrNoSpace), errors.Is(err, store.ErrUnknownOutcome), errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled):
		return err
	default:
		r.Code, r.Message = control.CodeInternal, attachment.Printable(err.Error())
	}
	out.Add(r)
	return nil
}

// each visits the owed attachments that All or Record selects, a page at a time.
func (s *session) each(ctx context.Context, a control.Action, visit func(queue.Entry) error) error {
	query := queue.Query{Limit: queue.MaxPage}
	if !a.All {
		query.Parent = a.Record.Exact()
	}
	for {
		page, next, err := s.queue.List(query)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := ctx.Err(); err != nil {
				return err
			}
			if e.Manifest == nil || !e.Manifest.State.Undelivered() {
				continue
			}
			if err := visit(e); err != nil {
				return err
			}
		}
		if query.Cursor = next; next == "" {
			return nil
		}
	}
}

// PauseChannel stops all sending until ResumeChannel. The decision is durable in the outbox before the queue knows it.
func (s *session) PauseChannel(ctx context.Context, by server.Caller, a control.ChannelAction) (control.ActionResult, error) {
	if a.DryRun {
		return control.ActionResult{Done: true}, nil
	}
	d := queue.Decision{Name: queue.DecisionPauseChannel, By: by.String(), Reason: a.Reason, At: time.Now().UTC().Round(0)}
	data, err := json.Marshal(d)
	if err != nil {
		return control.ActionResult{}, err
	}
	if err := s.spool.WriteDecision(d.Name, data); err != nil {
		return control.ActionResult{}, err
	}
	if err := s.queue.PutDecision(ctx, d); err != nil {
		return control.ActionResult{}, err
	}
	s.dispatcher.paused.Store(true)
	s.queue.InterruptAll(errHeld)
	return control.ActionResult{Done: true}, nil
}

// ResumeChannel lifts PauseChannel. The outbox file goes first: found alone it would pause again.
func (s *session) ResumeChannel(ctx context.Context, by server.Caller, a control.ChannelAction) (control.ActionResult, error) {
	if a.DryRun {
		return control.ActionResult{Done: true}, nil
	}
	if err := s.spool.RemoveDecision(queue.DecisionPauseChannel); err != nil {
		return control.ActionResult{}, err
	}
	if _, err := s.queue.LiftDecision(ctx, queue.DecisionPauseChannel, by.String(), a.Reason); err != nil {
		return control.ActionResult{}, err
	}
	s.dispatcher.paused.Store(false)
	s.dispatcher.poke()
	return control.ActionResult{Done: true}, nil
}

// restoreDecisions applies at start what stands in the outbox, also when the queue does not know it.
func (s *session) restoreDecisions(ctx context.Context) error {
	err := s.spool.Decisions(func(name string, data []byte) error {
		d := queue.Decision{Name: name}
		if err := json.Unmarshal(data, &d); err != nil || d.Name != name {
			d = queue.Decision{Name: name, Reason: "read from a damaged decision file"}
		}
		return s.queue.PutDecision(ctx, d)
	})
	if err != nil {
		return err
	}
	_, paused, err := s.queue.StandingDecision(queue.DecisionPauseChannel)
	s.dispatcher.paused.Store(paused)
	return err
}
