package upload

import (
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strconv"

	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// RUFH answers for upload resources in Resumable Uploads for HTTP (draft-ietf-httpbis-resumable-upload, interop version 8)
// with Digest Fields (RFC 9530). Who asks is found out by the caller.
//
// A session is the same in both dialects; what differs is who ends it. In tus that is the last byte of the length. Here it
// is a request with Upload-Complete: ?1, and until then the answer to how complete an upload is stays no. A newer request
// of this dialect takes an upload over from an older one even while that moves, as the draft recommends: a client of it
// never has two under way.
type RUFH struct {
	engine *Engine
	log    *slog.Logger
}

// NewRUFH returns the handlers of an engine.
func NewRUFH(engine *Engine, log *slog.Logger) *RUFH { return &RUFH{engine: engine, log: log} }

// SpeaksTus tells the dialects apart: tus has its version on every request, and a media type of its own for bytes. Requests
// of the other dialect need not carry anything that says so.
func SpeaksTus(r *http.Request) bool {
	return r.Header.Get(wire.HeaderTusResumable) != "" || carriesBytes(r)
}

// Options adds the limits of this dialect to what next answers.
func (u *RUFH) Options(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fresh := store.Session{State: store.SessionOpen, Length: store.UnknownLength, AppendedAt: u.engine.now()}
		w.Header().Set(wire.HeaderUploadLimit, u.limits(fresh, false))
		w.Header().Set("Accept-Patch", wire.ContentTypePartial+", "+wire.ContentTypeOffset)
		next(w, r)
	}
}

// Head tells how a session stands, to HEAD and GET. An append that moves ends before that: the offset told must be the one
// that the next append starts from.
func (u *RUFH) Head(w http.ResponseWriter, r *http.Request, who store.Identity, session string) {
	err := u.engine.yield(r.Context(), who.Account, session, true)
	var s store.Session
	if err == nil {
		s, err = u.engine.standing(r.Context(), who, session)
	}
	if err != nil {
		u.refuse(w, r, err, Unknown, Unknown)
		return
	}
	h := w.Header()
	if s.Length != store.UnknownLength {
		h.Set(wire.HeaderUploadLength, strconv.FormatInt(s.Length, 10))
	}
	h.Set(wire.HeaderAttachment, s.AttachmentID)
	h.Set(wire.HeaderUploadOffset, strconv.FormatInt(s.Offset, 10))
	h.Set(wire.HeaderUploadComplete, wire.FormatBoolean(s.State == store.SessionComplete))
	h.Set(wire.HeaderUploadLimit, u.limits(s, false))
	w.WriteHeader(http.StatusNoContent)
}

// Patch appends the body.
func (u *RUFH) Patch(w http.ResponseWriter, r *http.Request, who store.Identity, session string) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != wire.ContentTypePartial {
		w.Header().Set("Accept-Patch", wire.ContentTypePartial)
		w.Header().Set(wire.HeaderUploadComplete, wire.FormatBoolean(false))
		reply.Problem(w, wire.CodeMediaType, "the body of an append is "+wire.ContentTypePartial)
		return
	}
	at, ok := wire.ParseInteger(r.Header.Values(wire.HeaderUploadOffset))
	var err error
	if !ok {
		err = missing(wire.HeaderUploadOffset, "a number of bytes")
	}
	req, rerr := readRequest(w, r)
	if err == nil {
		err = rerr
	}
	var s store.Session
	if err == nil {
		s, err = u.engine.standing(r.Context(), who, session)
	}
	if err != nil {
		u.refuse(w, r, err, Unknown, Unknown)
		return
	}
	w.Header().Set(wire.HeaderUploadLimit, u.limits(s, req.body.whole()))
	u.append(w, r, who, s, at, req, http.StatusNoContent)
}

// Delete ends a session without its bytes, and an append of it before that.
func (u *RUFH) Delete(w http.ResponseWriter, r *http.Request, who store.Identity, session string) {
	err := u.engine.yield(r.Context(), who.Account, session, true)
	if err == nil {
		err = u.engine.Terminate(r.Context(), who, session)
	}
	if err != nil {
		u.refuse(w, r, err, Unknown, Unknown)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// append gives the body to the engine and answers for what becomes of it; partly is the status where the upload goes on.
func (u *RUFH) append(w http.ResponseWriter, r *http.Request, who store.Identity, s store.Session, at int64, req request, partly int) {
	h := w.Header()
	if s.State == store.SessionComplete && at == s.Offset && req.body.Ends == EndsLater {
		u.refuse(w, r, errComplete, s.Offset, at)
		return
	}
	if req.interim {
		req.body.Confirmed = func(offset int64) {
			interim(w, map[string]string{wire.HeaderUploadOffset: strconv.FormatInt(offset, 10)})
		}
	}
	offset, err := u.engine.Append(r.Context(), who, s.ID, at, req.body)
	if errors.Is(err, store.ErrDigest) && s.Created {
		err = errors.Join(errReprDigest, err)
	}
	if err != nil {
		u.refuse(w, r, err, offset, at)
		return
	}
	h.Set(wire.HeaderUploadOffset, strconv.FormatInt(offset, 10))
	if req.body.Ends == EndsHere {
		u.final(w, r, s)
		return
	}
	h.Set(wire.HeaderUploadComplete, wire.FormatBoolean(false))
	w.WriteHeader(partly)
}

// final answers for an upload that is complete, each time alike: to one that a client created with its receipt, which is
// what the creation was for. A device that reserved its attachment registers it on the control plane.
func (u *RUFH) final(w http.ResponseWriter, r *http.Request, s store.Session) {
	a, err := u.engine.Verify(r.Context(), s.Account, s.AttachmentID)
	if err != nil {
		u.refuse(w, r, err, Unknown, Unknown)
		return
	}
	h := w.Header()
	h.Set(wire.HeaderUploadComplete, wire.FormatBoolean(true))
	h.Set(wire.HeaderAttachment, a.ID)
	if wantsDigest(s) || wants(r) {
		h.Set(wire.HeaderReprDigest, reprDigest(a.Facts.SHA256))
	}
	if a.Receipt == nil || a.State != wire.StateRegistered {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	reply.JSON(w, http.StatusOK, a.Receipt)
}
