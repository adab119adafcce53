package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/logging"
)

// answer writes v as the JSON answer.
func (s *Server) answer(w http.ResponseWriter, v any) error {
	return s.write(w, http.StatusOK, "application/json", v)
}

// write encodes before it writes, so that a value that cannot be encoded still gets an error answer. What the client does
// not receive is not the server's failure: write errors are logged at debug level only.
func (s *Server) write(w http.ResponseWriter, status int, mediaType string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-store")
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.timing.answer)); err != nil {
		s.log.Debug("control answer without time limit", slog.Any(logging.KeyErr, err))
	}
	w.WriteHeader(status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		s.log.Debug("control answer not received", slog.Any(logging.KeyErr, err))
	}
	return nil
}

// refuse turns an error into a problem answer.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem, known := errors.AsType[*control.Error](err)
	switch {
	case known:
	case r.Context().Err() != nil:
		problem = control.Refuse(control.CodeShuttingDown, "") // or the caller is gone and reads nothing
	default:
		s.log.Warn("control request failed", slog.String(logging.KeyPath, r.Pattern), slog.Any(logging.KeyErr, err))
		problem = control.Refuse(control.CodeInternal, err.Error())
	}
	if problem.Schema == "" {
		complete := *problem
		complete.Schema = control.SchemaError
		problem = &complete
	}
	if err := s.write(w, problem.Status, "application/problem+json", problem); err != nil {
		s.log.Warn("control refusal not written", slog.Any(logging.KeyErr, err))
	}
}

// body reads a request's body with a limit for each read rather than for the whole, so that a long submission over a busy
// disk is not cut off and a silent client is.
type body struct {
	from  io.Reader
	limit *http.ResponseController
	idle  time.Duration
}

// Read fails with control.CodeInterrupted when no byte came in time or the client is gone.
func (b *body) Read(p []byte) (int, error) {
	if err := b.limit.SetReadDeadline(time.Now().Add(b.idle)); err != nil {
		return 0, fmt.Errorf("limit the time of reading: %w", err)
	}
	n, err := b.from.Read(p)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		// From here on net/http watches the connection for the client's end; the limit must not end that watch.
		if unlimited := b.limit.SetReadDeadline(time.Time{}); unlimited != nil {
			return n, fmt.Errorf("lift the limit of reading: %w", unlimited)
		}
		return n, io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, control.Refuse(control.CodeInterrupted, fmt.Sprintf("no byte within %v", b.idle))
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return n, control.Refuse(control.CodeInvalid, "the request is too large")
	}
	return n, control.Refuse(control.CodeInterrupted, err.Error())
}

func (s *Server) bodyOf(w http.ResponseWriter, from io.Reader) *body {
	return &body{from: from, limit: http.NewResponseController(w), idle: s.timing.idle}
}

// decode reads a JSON request of limited size into v. Members it does not know are refused: an order that is understood in
// part only must not be carried out.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := io.ReadAll(s.bodyOf(w, http.MaxBytesReader(w, r.Body, control.MaxBody)))
	if err != nil {
		return err
	}
	return decodeStrict(data, v)
}

func decodeStrict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return control.Refuse(control.CodeInvalid, err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return control.Refuse(control.CodeInvalid, "more than one JSON value")
	}
	return nil
}

// orEmpty makes lists without entries "[]" rather than "null".
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// page fills in what a backend may leave out.
func page[T any](p control.Page[T], schema string, err error) (control.Page[T], error) {
	p.Schema, p.Items = schema, orEmpty(p.Items)
	return p, err
}

// requireCaller is callerOf as a refusal: without knowing who decides nothing is decided.
func requireCaller(ctx context.Context) (Caller, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return Caller{}, control.Refuse(control.CodeNotPermitted, "the kernel does not say who asks: "+err.Error())
	}
	return caller, nil
}
