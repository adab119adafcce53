package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

// maxCursor bounds a cursor in bytes.
const maxCursor = 512

// idLength is the length of a whole ID.
const idLength = 36

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	st, err := s.backend.Status(r.Context())
	if err != nil {
		return err
	}
	st.Schema = control.SchemaStatus
	st.Counts, st.Watches, st.Problems = orEmpty(st.Counts), orEmpty(st.Watches), orEmpty(st.Problems)
	return s.answer(w, st)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r, "condition", "parent", "adopted_before", "cursor", "limit")
	if err != nil {
		return err
	}
	q, err := listQuery(values)
	if err != nil {
		return err
	}
	items, err := s.backend.List(r.Context(), q)
	items, err = page(items, control.SchemaItemList, err)
	if err != nil {
		return err
	}
	return s.answer(w, items)
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	id, err := s.resolve(r.Context(), r.PathValue("ref"))
	if err != nil {
		return err
	}
	item, err := s.backend.Get(r.Context(), id)
	if err != nil {
		return err
	}
	item.Schema, item.Journal = control.SchemaItem, orEmpty(item.Journal)
	return s.answer(w, item)
}

func (s *Server) notTaken(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r, "cursor", "limit")
	if err != nil {
		return err
	}
	cursor, limit, err := paging(values)
	if err != nil {
		return err
	}
	paths, err := s.backend.NotTaken(r.Context(), cursor, limit)
	paths, err = page(paths, control.SchemaNotTakenList, err)
	if err != nil {
		return err
	}
	return s.answer(w, paths)
}

func (s *Server) records(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r, "parent", "cursor", "limit")
	if err != nil {
		return err
	}
	q := control.RecordQuery{}
	if q.Parent, err = parent(values); err != nil {
		return err
	}
	if q.Cursor, q.Limit, err = paging(values); err != nil {
		return err
	}
	rows, err := s.backend.Records(r.Context(), q)
	rows, err = page(rows, control.SchemaRecordList, err)
	if err != nil {
		return err
	}
	return s.answer(w, rows)
}

// resolve turns a whole or shortened ID into an ID; a whole one need not exist.
func (s *Server) resolve(ctx context.Context, ref string) (attachment.ID, error) {
	ref = strings.ToLower(ref)
	if id, err := attachment.ParseID(ref); err == nil {
		return id, nil
	}
	if len(ref) > idLength || strings.Trim(ref, "0123456789abcdef-") != "" {
		return "", control.Refuse(control.CodeNoSuchItem, fmt.Sprintf("%.60q is not an ID", ref))
	}
	if len(ref) < control.MinReference {
		return "", control.Refuse(control.CodeInvalid,
			fmt.Sprintf("%q is too short for an ID, give at least %d characters", ref, control.MinReference))
	}
	found, err := s.backend.Resolve(ctx, ref)
	if err != nil {
		return "", err
	}
	return control.Resolve(ref, found)
}

// query parses a request's parameters and refuses those that the route does not have.
func query(r *http.Request, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, control.Refuse(control.CodeInvalid, err.Error())
	}
	for name := range values {
		if !slices.Contains(known, name) {
			return nil, control.Refuse(control.CodeInvalid, fmt.Sprintf("no parameter %.60q", name))
		}
	}
	return values, nil
}

func listQuery(values url.Values) (q control.ListQuery, err error) {
	for _, text := range values["condition"] {
		c := attachment.Condition(text)
		if !slices.Contains(attachment.Conditions(), c) {
			return q, control.Refuse(control.CodeInvalid, fmt.Sprintf("no condition %.60q", text))
		}
		if !slices.Contains(q.Conditions, c) {
			q.Conditions = append(q.Conditions, c)
		}
	}
	if text := values.Get("adopted_before"); text != "" {
		if q.AdoptedBefore, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return q, control.Refuse(control.CodeInvalid, fmt.Sprintf("adopted_before %.60q is not an RFC 3339 time", text))
		}
		q.AdoptedBefore = q.AdoptedBefore.UTC()
	}
	if q.Parent, err = parent(values); err != nil {
		return q, err
	}
	q.Cursor, q.Limit, err = paging(values)
	return q, err
}

func parent(values url.Values) (attachment.Name, error) {
	text := values.Get("parent")
	if len(text) > control.MaxRecordID {
		return attachment.Name{}, control.Refuse(control.CodeInvalid, "the record's ID is too long")
	}
	return attachment.NameOf(text), nil
}

func paging(values url.Values) (cursor string, limit int, err error) {
	cursor, limit = values.Get("cursor"), control.DefaultPage
	if len(cursor) > maxCursor {
		return "", 0, control.Refuse(control.CodeInvalid, "the cursor is too long")
	}
	if text := values.Get("limit"); text != "" {
		limit, err = strconv.Atoi(text)
		if err != nil || limit < 1 || limit > control.MaxPage {
			return "", 0, control.Refuse(control.CodeInvalid, fmt.Sprintf("limit %.20q is not 1 to %d", text, control.MaxPage))
		}
	}
	return cursor, limit, nil
}
