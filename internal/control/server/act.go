package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

// act answers a decision on attachments. References that mean nothing or too much are refused one by one; the rest is done.
func (s *Server) act(do func(context.Context, Caller, control.Action) (control.Outcome, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		caller, err := requireCaller(r.Context())
		if err != nil {
			return err
		}
		var a control.Action
		if err := s.decode(w, r, &a); err != nil {
			return err
		}
		a.Record = attachment.NameOf(a.Record.Exact())
		if err := a.Validate(); err != nil {
			return err
		}
		refused, err := s.resolveAll(r.Context(), &a)
		if err != nil {
			return err
		}
		var out control.Outcome
		if len(a.IDs) > 0 || a.All || !a.Record.Empty() {
			if out, err = do(r.Context(), caller, a); err != nil {
				return err
			}
		}
		for _, result := range refused {
			out.Add(result)
		}
		out.Schema, out.DryRun, out.Results = control.SchemaAction, a.DryRun, orEmpty(out.Results)
		return s.answer(w, out)
	}
}

// resolveAll replaces the references in a by the IDs they mean, each once, and returns the refusals.
func (s *Server) resolveAll(ctx context.Context, a *control.Action) (refused []control.ActionResult, err error) {
	refs := a.IDs
	a.IDs = nil
	for _, ref := range refs {
		id, err := s.resolve(ctx, string(ref))
		if problem, ok := errors.AsType[*control.Error](err); ok && problem.Status < http.StatusInternalServerError {
			refused = append(refused, control.ActionResult{ID: ref, Code: problem.Code, Message: problem.Error()})
			continue
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(a.IDs, id) {
			a.IDs = append(a.IDs, id)
		}
	}
	return refused, nil
}

func (s *Server) actOnChannel(do func(context.Context, Caller, control.ChannelAction) (control.ActionResult, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		caller, err := requireCaller(r.Context())
		if err != nil {
			return err
		}
		var a control.ChannelAction
		if err := s.decode(w, r, &a); err != nil {
			return err
		}
		if err := a.Validate(); err != nil {
			return err
		}
		result, err := do(r.Context(), caller, a)
		if err != nil {
			return err
		}
		out := control.Outcome{Schema: control.SchemaAction, DryRun: a.DryRun}
		out.Add(result)
		return s.answer(w, out)
	}
}
