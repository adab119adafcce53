package server

import (
	"log/slog"
	"net/http"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// reserve answers PUT /v1/attachments/{id}: 201 for a new attachment, 200 for one that is known with the same length,
// digest and role.
func (s *Server) reserve(w http.ResponseWriter, r *http.Request, who store.Identity) {
	id := r.PathValue("id")
	if !store.IsUUID(id) {
		reply.Problem(w, wire.CodeInvalid, "the attachment ID is not a UUID in its canonical text")
		return
	}
	if key := r.Header.Get(wire.HeaderIdempotencyKey); key != "" && key != id && key != `"`+id+`"` {
		reply.Problem(w, wire.CodeInvalid, "Idempotency-Key is not the attachment ID")
		return
	}
	var facts wire.Reserve
	if !s.receive(w, r, &facts) {
		return
	}
	if facts.Length > s.limits.MaxLength {
		reply.Problem(w, wire.CodeSizeLimit, "the attachment is larger than this server takes")
		return
	}
	if err := facts.Validate(); err != nil {
		reply.Problem(w, wire.CodeInvalid, err.Error())
		return
	}
	out, err := s.engine.Reserve(r.Context(), who, id, facts)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	status := http.StatusOK
	if out.Created {
		status = http.StatusCreated
	}
	a := out.Attachment
	s.log.Info("attachment reserved", slog.String(logging.KeyAccount, a.Account), slog.String(logging.KeyDevice, who.Device),
		slog.String(logging.KeyAttachment, a.ID), slog.String(logging.KeyState, string(a.State)),
		slog.Int(logging.KeyAttempt, a.Generation), slog.Int(logging.KeyStatus, status))
	reply.JSON(w, status, s.present(a, out.Session))
}
