package server

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// receive reads a control-plane message. It answers itself, and returns false, when that fails. Members that this version
// does not know are passed over.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, message any) bool {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != wire.ContentTypeJSON {
		reply.Problem(w, wire.CodeMediaType, "the body of this request is "+wire.ContentTypeJSON)
		return false
	}
	conn := http.NewResponseController(w)
	if err := deadline(conn, time.Now().Add(s.limits.ControlBody)); err != nil {
		s.fail(w, r, err)
		return false
	}
	body := http.MaxBytesReader(w, r.Body, wire.MaxControlBody)
	dec := json.NewDecoder(body)
	err := dec.Decode(message)
	if err == nil {
		if _, terr := dec.Token(); !errors.Is(terr, io.EOF) {
			err = errors.Join(errTrailing, terr)
		}
	}
	switch tooLarge := new(http.MaxBytesError); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		reply.Problem(w, wire.CodeTimeout, "the body took too long")
		return false
	case errors.As(err, &tooLarge):
		reply.Problem(w, wire.CodeInvalid, "the body is too large")
		return false
	default:
		reply.Problem(w, wire.CodeInvalid, "the body is not the JSON message of this request: "+err.Error())
		return false
	}
	if err := deadline(conn, time.Time{}); err != nil {
		s.fail(w, r, err)
		return false
	}
	return true
}

var errTrailing = errors.New("something follows the message")

// deadline limits reading from the connection, if there is one.
func deadline(conn *http.ResponseController, at time.Time) error {
	if err := conn.SetReadDeadline(at); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// present is an attachment as the protocol shows it; open is its session while bytes are needed.
func (s *Server) present(a store.Attachment, open *store.Session) wire.Attachment {
	out := wire.Attachment{AttachmentID: a.ID, MediaID: a.MediaID, State: a.State, Generation: a.Generation}
	if a.State == wire.StateRegistered {
		out.Receipt = a.Receipt
	}
	if a.State != wire.StateReserved {
		length := a.Facts.Length
		out.Length, out.SHA256 = &length, a.Facts.SHA256
	}
	if open != nil {
		out.Upload = &wire.Upload{
			URL: upload.Path + open.ID, Dialects: []string{wire.DialectTus, wire.DialectRUFH}, Offset: open.Offset,
		}
	}
	return out
}
