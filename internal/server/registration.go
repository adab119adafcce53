package server

import (
	"context"
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
	var message wire.Register
	if !s.receive(w, r, &message) {
		return
	}
	if err := wire.ValidateParent(message.Parent); err != nil {
		reply.Problem(w, wire.CodeInvalid, err.Error())
		return
	}
	rec, err := s.bind(r.Context(), who, r.PathValue("id"), message.Parent)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply.JSON(w, http.StatusOK, rec)
}

// bind verifies what is still to be verified, makes sure of the content, and records the registration.
func (s *Server) bind(ctx context.Context, who store.Identity, id string, parent receipt.Parent) (receipt.Receipt, error) {
	a, err := s.engine.Verify(ctx, who.Account, id)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if a.State == wire.StateVerified {
		stored, err := s.files.Stored(a.Account, a.Facts.SHA256, a.Facts.Length)
		if err != nil {
			return receipt.Receipt{}, err
		}
		if !stored {
			return receipt.Receipt{}, s.engine.Lost(ctx, a)
		}
	}
	rec, fresh, err := s.records.Register(ctx, store.Registration{By: who, ID: id, Parent: parent, Now: s.now()})
	if err == nil && fresh {
		s.log.Info("attachment registered", slog.String(logging.KeyAccount, who.Account), slog.String(logging.KeyDevice, who.Device),
			slog.String(logging.KeyAttachment, id), slog.Int64(logging.KeyBytes, rec.Length), slog.String(logging.KeyParent, parent.LocalID))
	}
	return rec, err
}
