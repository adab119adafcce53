package server

import (
	"net/http"

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
	rec, err := s.engine.Register(r.Context(), who, r.PathValue("id"), *message.Parent)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply.JSON(w, http.StatusOK, rec)
}
