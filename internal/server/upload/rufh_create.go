package upload

import (
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Create opens an upload with the bytes that the request brings, all or the first of them. Where it is comes first, in a
// 104 to who understands it, so that the upload can be resumed whatever becomes of this request.
func (u *RUFH) Create(w http.ResponseWriter, r *http.Request, who store.Identity) {
	req, err := readRequest(w, r)
	var c Creation
	if err == nil {
		c, err = req.creation(r, who)
	}
	var s store.Session
	if err == nil {
		s, err = u.engine.Create(r.Context(), who, c)
	}
	if err != nil {
		w.Header().Set(wire.HeaderUploadLimit, u.limits(store.Session{}, req.body.whole()))
		u.refuse(w, r, err, Unknown, Unknown)
		return
	}
	h := w.Header()
	h.Set("Location", Path+s.ID)
	h.Set(wire.HeaderAttachment, s.AttachmentID)
	h.Set(wire.HeaderUploadLimit, u.limits(s, req.body.whole()))
	if req.interim {
		interim(w, map[string]string{"Location": Path + s.ID, wire.HeaderUploadLimit: h.Get(wire.HeaderUploadLimit)})
	}
	switch {
	case s.State == store.SessionComplete: // by an earlier creation of the same, or without bytes
		h.Set(wire.HeaderUploadOffset, strconv.FormatInt(s.Offset, 10))
		u.final(w, r, s)
	case req.body.Length == 0 && req.body.Ends == EndsLater && !req.body.whole(): // nothing to append, also where a repetition finds bytes
		h.Set(wire.HeaderUploadOffset, strconv.FormatInt(s.Offset, 10))
		h.Set(wire.HeaderUploadComplete, wire.FormatBoolean(false))
		w.WriteHeader(http.StatusCreated)
	default:
		u.append(w, r, who, s, 0, req, http.StatusCreated)
	}
}

// limits are what a session is held to; digested says that a request has a Content-Digest, and so counts wholly or not at
// all.
func (u *RUFH) limits(s store.Session, digested bool) string {
	out := "max-size=" + strconv.FormatInt(u.engine.limits.MaxLength, 10)
	if digested {
		out += ", max-append-size=" + strconv.FormatInt(u.engine.limits.MaxAppend, 10)
	}
	if at := u.engine.Expires(s); !at.IsZero() {
		out += ", max-age=" + strconv.FormatInt(max(0, int64(at.Sub(u.engine.now())/time.Second)), 10)
	}
	return out
}

// interim sends a 104 with these headers alone.
func interim(w http.ResponseWriter, fields map[string]string) {
	h := w.Header()
	kept := maps.Clone(h)
	clear(h)
	for name, value := range fields {
		h.Set(name, value)
	}
	h.Set(wire.HeaderInteropVersion, strconv.Itoa(wire.InteropVersion))
	w.WriteHeader(wire.StatusResumption)
	clear(h)
	maps.Copy(h, kept)
}

// refuse answers for an error. Where there is a confirmed offset the answer carries it. It says of itself that it is no
// result of the whole upload, unless the bytes were all there and were the wrong ones.
func (u *RUFH) refuse(w http.ResponseWriter, r *http.Request, err error, confirmed, provided int64) {
	if errors.Is(err, ErrOvertaken) {
		panic(http.ErrAbortHandler) // the client has given this request up; the draft asks for an abrupt end
	}
	code, detail := Refusal(err)
	p := wire.Problem{Code: code, Detail: detail}
	switch h := w.Header(); {
	case errors.Is(err, errCoding):
		h.Set("Accept-Encoding", "identity")
		p.Code, p.Detail = wire.CodeMediaType, "the file is taken as it is, without a content coding"
	case errors.Is(err, errComplete):
		p.Code, p.Detail = wire.CodeInvalid, "the upload is complete, and nothing can be added to it"
	case errors.Is(err, errReprDigest):
		p.Code, p.Detail = wire.CodeDigestField, "the bytes are not those of Repr-Digest, and the upload has ended"
	case errors.Is(err, ErrExcess):
		p.Code, p.Detail = wire.CodeLength, "the body exceeds the length of the upload, which has ended if it was not complete"
	case code == wire.CodeChecksum:
		p.Code, p.Detail = wire.CodeDigestField, "the body is not that of Content-Digest; nothing of it was kept"
	case code == wire.CodeOffsetMismatch:
		p.Type, p.ExpectedOffset, p.ProvidedOffset = wire.TypeUploadOffset, &confirmed, &provided
	case code == wire.CodeMethod:
		h.Set("Allow", "GET, HEAD, OPTIONS, PATCH")
	case code == wire.CodeInternal:
		u.log.Error("upload request could not be answered", slog.String(logging.KeyEvent, r.Method), slog.Any(logging.KeyErr, err))
	}
	if p.Code == wire.CodeLength {
		p.Type = wire.TypeUploadLength
	}
	w.Header().Set(wire.HeaderUploadComplete, wire.FormatBoolean(errors.Is(err, store.ErrDigest)))
	if confirmed >= 0 {
		w.Header().Set(wire.HeaderUploadOffset, strconv.FormatInt(confirmed, 10))
	}
	reply.Refuse(w, p)
}
