package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/reply"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// show answers GET /v1/attachments/{id}. When every byte is there it verifies first, so that the answer carries the
// server's own figures.
func (s *Server) show(w http.ResponseWriter, r *http.Request, who store.Identity) {
	a, err := s.engine.Verify(r.Context(), who.Account, r.PathValue("id"))
	var open *store.Session
	if errors.Is(err, store.ErrNotVerified) {
		var found store.Session
		found, err = s.engine.Session(r.Context(), who, a.Session)
		open = &found
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply.JSON(w, http.StatusOK, s.present(a, open))
}

// list answers GET /v1/attachments with a page of registered attachments. Whatever is not registered is not there.
func (s *Server) list(w http.ResponseWriter, r *http.Request, who store.Identity) {
	limit := listLimit
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > listLimit {
			reply.Problem(w, wire.CodeInvalid, "limit is a number from 1 to "+strconv.Itoa(listLimit))
			return
		}
		limit = n
	}
	after, err := s.parseCursor(r.URL.Query().Get("after"))
	if err != nil {
		reply.Problem(w, wire.CodeInvalid, "after is not a cursor of this server; begin again without it")
		return
	}
	found, err := s.records.Registered(r.Context(), who.Account, after, limit)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	page, err := s.page(found, limit)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply.JSON(w, http.StatusOK, page)
}

// page is the answer for rows that begin a page; it ends early where it would grow too large.
func (s *Server) page(found []store.Attachment, limit int) (wire.AttachmentList, error) {
	out := wire.AttachmentList{Attachments: []wire.Attachment{}}
	size, last := 0, uint64(0)
	for _, a := range found {
		if !s.listed(a) {
			last = a.Sequence
			continue
		}
		shown := s.present(a, nil)
		text, err := json.Marshal(shown)
		if err != nil {
			return out, err
		}
		if size += len(text); size > listBytes && len(out.Attachments) > 0 {
			out.Next = s.cursor(last)
			return out, nil
		}
		out.Attachments = append(out.Attachments, shown)
		last = a.Sequence
	}
	if len(found) == limit && last > 0 {
		out.Next = s.cursor(last)
	}
	return out, nil
}

// listed reports whether a row of the index of registered attachments is shown: it can be read and its content is there.
// One that is not must not hold up the others.
func (s *Server) listed(a store.Attachment) bool {
	held, err := false, error(nil)
	switch {
	case a.Receipt == nil:
		err = store.ErrDamaged
	case a.State == wire.StateRegistered:
		held, err = s.engine.Held(a)
	}
	if err != nil {
		s.log.Error("registered attachment cannot be listed", slog.String(logging.KeyAccount, a.Account),
			slog.String(logging.KeyAttachment, a.ID), slog.Uint64(logging.KeySeq, a.Sequence), slog.Any(logging.KeyErr, err))
	}
	return held
}

// cursor is the place behind a sequence number. It names the store, since another one has other numbers.
func (s *Server) cursor(sequence uint64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(s.records.Epoch() + " " + strconv.FormatUint(sequence, 10)))
}

var errCursor = errors.New("not a cursor of this server")

func (s *Server) parseCursor(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	plain, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return 0, errCursor
	}
	number, ok := strings.CutPrefix(string(plain), s.records.Epoch()+" ")
	if !ok {
		return 0, errCursor
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0, errCursor
	}
	return n, nil
}
