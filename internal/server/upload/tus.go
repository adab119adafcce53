package upload

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Path is where upload resources are; their URLs in answers are absolute paths, which clients resolve against the address
// that they reached the server by.
const Path = "/v1/uploads/"

// Tus answers for upload resources in tus 1.0.0, with the extensions in wire.TusExtensions. Who asks is found out by the
// caller.
type Tus struct {
	engine *Engine
	log    *slog.Logger
}

// NewTus returns the handlers of an engine.
func NewTus(engine *Engine, log *slog.Logger) *Tus { return &Tus{engine: engine, log: log} }

// Options tells what is spoken here (tus 1.0.0, OPTIONS). It needs no credential.
func (t *Tus) Options(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set(wire.HeaderTusResumable, wire.TusVersion)
	h.Set(wire.HeaderTusVersion, wire.TusVersion)
	h.Set(wire.HeaderTusExtension, strings.Join(wire.TusExtensions(), ","))
	h.Set(wire.HeaderTusMaxSize, strconv.FormatInt(t.engine.limits.MaxLength, 10))
	h.Set(wire.HeaderTusAlgorithms, "sha1,sha256")
	w.WriteHeader(http.StatusNoContent)
}

// Create opens an upload, with its first bytes where the request brings some (tus 1.0.0, creation and
// creation-with-upload). A repetition that names its attachment finds what it opened before, and then its bytes are
// those that are there.
func (t *Tus) Create(w http.ResponseWriter, r *http.Request, who store.Identity) {
	if !t.speaks(w, r) {
		return
	}
	c, err := creation(r, who)
	if err == nil && r.ContentLength != 0 && !carriesBytes(r) {
		reply.Problem(w, wire.CodeMediaType, "the body of a creation is "+wire.ContentTypeOffset)
		return
	}
	content, cerr := summed(w, r)
	if err == nil {
		err = cerr
	}
	var s store.Session
	if err == nil {
		s, err = t.engine.Create(r.Context(), who, c)
	}
	if err != nil {
		t.refuse(w, r, err, Unknown, Unknown)
		return
	}
	w.Header().Set("Location", Path+s.ID)
	if s.Offset == 0 && s.State == store.SessionOpen && r.ContentLength != 0 {
		offset, err := t.engine.Append(r.Context(), who, s.ID, 0, content)
		if err == nil {
			s, err = t.engine.Session(r.Context(), who, s.ID)
		}
		if err != nil {
			t.refuse(w, r, err, offset, 0)
			return
		}
	}
	t.describe(w, s)
	w.WriteHeader(http.StatusCreated)
}

// creation reads what the header of a creation says. Errors wrap wire.ErrInvalid.
func creation(r *http.Request, who store.Identity) (Creation, error) {
	c, err := described(strings.Join(r.Header.Values(wire.HeaderUploadMetadata), ","))
	if err != nil {
		return c, err
	}
	if r.Header.Get(wire.HeaderUploadConcat) != "" {
		return c, fmt.Errorf("%w: uploads are not concatenated here", wire.ErrInvalid)
	}
	length, deferred := r.Header.Get(wire.HeaderUploadLength), r.Header.Get(wire.HeaderUploadDefer)
	switch {
	case (length == "") == (deferred == ""):
		return c, fmt.Errorf("%w: a creation has either Upload-Length or Upload-Defer-Length", wire.ErrInvalid)
	case deferred != "" && deferred != "1":
		return c, fmt.Errorf("%w: Upload-Defer-Length is 1 or not there", wire.ErrInvalid)
	case length != "":
		if c.Length, err = bytesIn(wire.HeaderUploadLength, length); err != nil {
			return c, err
		}
	}
	if c.AttachmentID == "" {
		c.AttachmentID, err = KeyedID(who, r.Header.Get(wire.HeaderIdempotencyKey))
	}
	return c, err
}

// Head tells the confirmed offset and the length of a session (tus 1.0.0, HEAD). An append that hangs is ended, with its
// prefix confirmed; one that is moving does not hold it up: what that has not confirmed yet does not count.
func (t *Tus) Head(w http.ResponseWriter, r *http.Request, who store.Identity, session string) {
	if !t.speaks(w, r) {
		return
	}
	err := t.engine.yield(r.Context(), who.Account, session, false)
	var s store.Session
	if err == nil {
		s, err = t.engine.Session(r.Context(), who, session)
	}
	if err != nil {
		t.refuse(w, r, err, Unknown, Unknown)
		return
	}
	t.describe(w, s)
	if s.State == store.SessionComplete && wants(r) {
		if a, err := t.engine.Verify(r.Context(), s.Account, s.AttachmentID); err == nil {
			w.Header().Set(wire.HeaderReprDigest, reprDigest(a.Facts.SHA256))
		}
	}
	w.WriteHeader(http.StatusOK)
}

// describe says in headers how a session stands.
func (t *Tus) describe(w http.ResponseWriter, s store.Session) {
	h := w.Header()
	h.Set(wire.HeaderUploadOffset, strconv.FormatInt(s.Offset, 10))
	h.Set(wire.HeaderAttachment, s.AttachmentID)
	if s.Length == store.UnknownLength {
		h.Set(wire.HeaderUploadDefer, "1")
	} else {
		h.Set(wire.HeaderUploadLength, strconv.FormatInt(s.Length, 10))
	}
	if s.Metadata != "" {
		h.Set(wire.HeaderUploadMetadata, s.Metadata)
	}
	t.expires(w, s)
}

// expires says when a session ends that gets no more bytes (tus 1.0.0, Upload-Expires).
func (t *Tus) expires(w http.ResponseWriter, s store.Session) {
	if at := t.engine.Expires(s); !at.IsZero() {
		w.Header().Set(wire.HeaderUploadExpires, at.UTC().Format(http.TimeFormat))
	}
}

// Patch appends the body (tus 1.0.0, PATCH). Where the session has a confirmed offset, every answer carries it.
func (t *Tus) Patch(w http.ResponseWriter, r *http.Request, who store.Identity, session string) {
	if !t.speaks(w, r) {
		return
	}
	if !carriesBytes(r) {
		reply.Problem(w, wire.CodeMediaType, "the body of an append is "+wire.ContentTypeOffset)
		return
	}
	at, err := bytesIn(wire.HeaderUploadOffset, r.Header.Get(wire.HeaderUploadOffset))
	content, cerr := summed(w, r)
	if err == nil {
		err = cerr
	}
	if err == nil {
		err = t.setLength(r, who, session)
	}
	if err != nil {
		t.refuse(w, r, err, Unknown, Unknown)
		return
	}
	offset, err := t.engine.Append(r.Context(), who, session, at, content)
	if offset >= 0 {
		w.Header().Set(wire.HeaderUploadOffset, strconv.FormatInt(offset, 10))
	}
	if err != nil {
		t.refuse(w, r, err, offset, at)
		return
	}
	if s, err := t.engine.store.Session(r.Context(), who.Account, session); err == nil {
		t.expires(w, s)
	}
	w.WriteHeader(http.StatusNoContent)
}

// setLength takes the length that was left open at the creation (tus 1.0.0, creation-defer-length).
func (t *Tus) setLength(r *http.Request, who store.Identity, session string) error {
	text := r.Header.Get(wire.HeaderUploadLength)
	if text == "" {
		return nil
	}
	length, err := bytesIn(wire.HeaderUploadLength, text)
	if err == nil {
		_, err = t.engine.SetLength(r.Context(), who, session, length)
	}
	return err
}

// Delete ends a session (tus 1.0.0, termination).
func (t *Tus) Delete(w http.ResponseWriter, r *http.Request, who store.Identity, session string) {
	if !t.speaks(w, r) {
		return
	}
	if err := t.engine.Terminate(r.Context(), who, session); err != nil {
		t.refuse(w, r, err, Unknown, Unknown)
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

// carriesBytes reports whether the body is said to be bytes of a file.
func carriesBytes(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == wire.ContentTypeOffset
}

func body(w http.ResponseWriter, r *http.Request) Body {
	return Body{Reader: r.Body, Length: r.ContentLength, Deadline: http.NewResponseController(w).SetReadDeadline}
}

// summed is the body with the checksum that it is said to have (tus 1.0.0, checksum). Errors wrap wire.ErrInvalid.
func summed(w http.ResponseWriter, r *http.Request) (Body, error) {
	b := body(w, r)
	text := r.Header.Get(wire.HeaderUploadChecksum)
	if text == "" {
		return b, nil
	}
	algorithm, encoded, _ := strings.Cut(text, " ")
	want, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return b, fmt.Errorf("%w: Upload-Checksum is not the name of an algorithm and a checksum in base64", wire.ErrInvalid)
	}
	sum, known := newSum(algorithm, want)
	if !known || strings.Contains(algorithm, "-") || len(want) != sum.hash.Size() {
		return b, fmt.Errorf("%w: Upload-Checksum is none of sha1 or sha256, which are the algorithms here", wire.ErrInvalid)
	}
	b.Sums = []Sum{sum}
	return b, nil
}

// bytesIn reads a header that is a number of bytes. Errors wrap wire.ErrInvalid.
func bytesIn(header, text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is missing or not a number of bytes", wire.ErrInvalid, header)
	}
	return int64(n), nil
}

func (t *Tus) refuse(w http.ResponseWriter, r *http.Request, err error, confirmed, provided int64) {
	code, detail := Refusal(err)
	if code == wire.CodeInternal {
		t.log.Error("upload request could not be answered", slog.String(logging.KeyEvent, r.Method), slog.Any(logging.KeyErr, err))
	}
	if confirmed >= 0 {
		w.Header().Set(wire.HeaderUploadOffset, strconv.FormatInt(confirmed, 10))
	}
	if code == wire.CodeMethod {
		w.Header().Set("Allow", "HEAD, OPTIONS, PATCH")
	}
	p := wire.Problem{Code: code, Detail: detail}
	if code == wire.CodeOffsetMismatch {
		p.ExpectedOffset, p.ProvidedOffset = &confirmed, &provided
	}
	reply.Refuse(w, p)
}
