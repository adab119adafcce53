package server

import (
	"errors"
	"log/slog"
	"mime"
	"net/http"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// content answers GET and HEAD of /v1/attachments/{id}/content: the bytes of a registered attachment, whole or in ranges.
// An attachment that was never registered is not found; one whose content is lost is gone until it is sent again. The bytes are foreign: no browser is to show or run them.
func (s *Server) content(w http.ResponseWriter, r *http.Request, who store.Identity) {
	a, err := s.records.Attachment(r.Context(), who.Account, r.PathValue("id"))
	held := false
	switch {
	case err != nil:
	case a.Receipt == nil:
		err = store.ErrNotFound
	case a.State == wire.StateRegistered:
		held, err = s.engine.Held(a)
	}
	if err == nil && !held {
		err = store.ErrGone
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	file, err := s.files.OpenContent(a.Account, a.Facts.SHA256, a.Facts.Length)
	if errors.Is(err, store.ErrLost) {
		err = errors.Join(store.ErrGone, err)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer func() {
		if err := file.Close(); err != nil {
			s.log.Warn("content file could not be closed", slog.String(logging.KeyAttachment, a.ID), slog.Any(logging.KeyErr, err))
		}
	}()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	if _, _, err := mime.ParseMediaType(a.Facts.MediaType); err == nil {
		h.Set("Content-Type", a.Facts.MediaType)
	}
	h.Set("Content-Disposition", "attachment")
	if named := mime.FormatMediaType("attachment", map[string]string{"filename": a.Facts.Filename}); named != "" && a.Facts.Filename != "" {
		h.Set("Content-Disposition", named)
	}
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("ETag", `"`+a.Facts.SHA256+`"`)
	http.ServeContent(&download{ResponseWriter: w}, r, "", a.Receipt.RegisteredAt, file)
}

// download turns the refusals of http.ServeContent into problems.
type download struct {
	http.ResponseWriter
	refused bool
}

func (d *download) WriteHeader(status int) {
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		d.refuse(wire.CodeRange, "the range lies outside the content")
	case http.StatusPreconditionFailed:
		d.refuse(wire.CodePrecondition, "the condition does not hold")
	default:
		d.ResponseWriter.WriteHeader(status)
	}
}

func (d *download) refuse(code wire.Code, detail string) {
	d.refused = true
	d.Header().Del("ETag")
	reply.Problem(d.ResponseWriter, code, detail)
}

func (d *download) Write(p []byte) (int, error) {
	if d.refused {
		return len(p), nil // the text that the problem stands for
	}
	return d.ResponseWriter.Write(p)
}
