package server

import (
	"net/http"

	"github.com/fieldgw/fieldgw/internal/control"
)

// check answers a consistency check. It may take long: every payload is read when it is deep.
func (s *Server) check(w http.ResponseWriter, r *http.Request) error {
	caller, err := requireCaller(r.Context())
	if err != nil {
		return err
	}
	var c control.CheckRequest
	if err := s.decode(w, r, &c); err != nil {
		return err
	}
	report, err := s.backend.Check(r.Context(), caller, c)
	if err != nil {
		return err
	}
	report.Schema, report.Deep, report.Findings = control.SchemaCheck, c.Deep, orEmpty(report.Findings)
	return s.answer(w, report)
}
