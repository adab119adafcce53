package upload

import (
	"log/slog"
	"mime"
	"net/http"
	"strconv"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Tus answers for upload resources in the tus 1.0.0 core protocol: OPTIONS, HEAD and PATCH of one session, without
// extensions. Who asks is found out by the caller.
type Tus struct {
	engine *Engine
	log    *slog.Logger
}

// NewTus returns the handlers of an engine.
func NewTus(engine *Engine, log *slog.Logger) *Tus { return &Tus{engine: engine, log: log} }

// Options tells the protocol version (tus 1.0.0, OPTIONS). It needs no credential.
func (t *Tus) Options(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(wire.HeaderTusResumable, wire.TusVersion)
	w.Header().Set(wire.HeaderTusVersion, wire.TusVersion)
	w.WriteHeader(http.StatusNoContent)
}

// Head tells the confirmed offset and the length of a session (tus 1.0.0, HEAD). An append that is moving does not hold
// it up: what that has not confirmed yet does not count.
func (t *Tus) Head(w http.ResponseWriter, r *http.Request, who store.Identity, session string) {
	if !t.speaks(w, r) {
		return
	}
	s, err := t.engine.Session(r.Context(), who, session)
	if err != nil {
		t.refuse(w, r, err, Unknown, Unknown)
		return
	}
	w.Header().Set(wire.HeaderUploadOffset, strconv.FormatInt(s.Offset, 10))
	w.Header().Set(wire.HeaderUploadLength, strconv.FormatInt(s.Length, 10))
	w.WriteHeader(http.StatusOK)
}

// Patch appends the body (tus 1.0.0, PATCH). Where the session has a confirmed offset, every answer carries it.
func (t *Tus) Patch(w http.ResponseWriter, r *http.Request, who store.Identity, session string) {
	if !t.speaks(w, r) {
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != wire.ContentTypeOffset {
		reply.Problem(w, wire.CodeMediaType, "the body of an append is "+wire.ContentTypeOffset)
		return
	}
	at, err := strconv.ParseUint(r.Header.Get(wire.HeaderUploadOffset), 10, 63)
	if err != nil {
		reply.Problem(w, wire.CodeInvalid, "Upload-Offset is missing or not a number of bytes")
		return
	}
	body := Body{Reader: r.Body, Length: r.ContentLength, Deadline: http.NewResponseController(w).SetReadDeadline}
	offset, err := t.engine.Append(r.Context(), who, session, int64(at), body)
	if offset >= 0 {
		w.Header().Set(wire.HeaderUploadOffset, strconv.FormatInt(offset, 10))
	}
	if err != nil {
		t.refuse(w, r, err, offset, int64(at))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// speaks checks the version that the request demands and answers 412 to another one.
func (t *Tus) speaks(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set(wire.HeaderTusResumable, wire.TusVersion)
	if r.Header.Get(wire.HeaderTusResumable) == wire.TusVersion {
		return true
	}
	w.Header().Set(wire.HeaderTusVersion, wire.TusVersion)
	reply.Problem(w, wire.CodeTusVersion, "the only version of tus here is "+wire.TusVersion)
	return false
}

func (t *Tus) refuse(w http.ResponseWriter, r *http.Request, err error, confirmed, provided int64) {
	code, detail := Refusal(err)
	if code == wire.CodeInternal {
		t.log.Error("upload request could not be answered", slog.String(logging.KeyEvent, r.Method), slog.Any(logging.KeyErr, err))
	}
	p := wire.Problem{Code: code, Detail: detail}
	if code == wire.CodeOffsetMismatch {
		p.ExpectedOffset, p.ProvidedOffset = &confirmed, &provided
	}
	reply.Refuse(w, p)
}
