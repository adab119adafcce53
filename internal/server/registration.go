package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// register answers POST /v1/attachments/{id}/registration with the receipt.
func (s *Server) register(w http.ResponseWriter, r *http.Request, who store.Identity) {
	// A message without the member is refused: that there is no parent must be said, and stays for ever.
	var message struct {
		Parent *receipt.Parent `json:"parent"`
	}
	if !s.receive(w, r, &message) {
		return
	}
	if message.Parent == nil {
		reply.Problem(w, wire.CodeInvalid, "parent is missing; an empty object says that there is none")
		return
	}
	if err := wire.ValidateParent(*message.Parent); err != nil {
		reply.Problem(w, wire.CodeInvalid, err.Error())
		return
	}
	rec, err := s.bind(r.Context(), who, r.PathValue("id"), *message.Parent)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply.JSON(w, http.StatusOK, rec)
}

// bind verifies what is still to be verified, makes sure of the content, and records the registration. A receipt that is
// given anew rests on bytes that this process has read. Where one exists and its content is lost, the device is told that
// bytes are missing, and the same receipt comes back with them.
func (s *Server) bind(ctx context.Context, who store.Identity, id string, parent receipt.Parent) (receipt.Receipt, error) {
	a, err := s.engine.Verify(ctx, who.Account, id)
	if err == nil && a.State == wire.StateVerified {
		var sound bool
		if sound, err = s.engine.Sound(a.Account, a.Facts.SHA256, a.Facts.Length); err == nil && !sound {
			err = store.ErrGone
		}
	}
	if errors.Is(err, store.ErrGone) && a.Receipt != nil {
		err = store.ErrNotVerified
	}
	if err != nil {
		return receipt.Receipt{}, err
	}
	rec, fresh, err := s.records.Register(ctx, store.Registration{By: who, ID: id, Parent: parent, Now: s.now()})
	if err == nil && fresh {
		s.log.Info("attachment registered", slog.String(logging.KeyAccount, who.Account), slog.String(logging.KeyDevice, who.Device),
			slog.String(logging.KeyAttachment, id), slog.Int64(logging.KeyBytes, rec.Length), slog.String(logging.KeyParent, parent.LocalID))
	}
	return rec, err
}
