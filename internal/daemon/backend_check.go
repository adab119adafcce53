package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/server"
	"github.com/fieldgw/fieldgw/internal/intake"
	"github.com/fieldgw/fieldgw/internal/logging"
)

// checkSettle is how long a check waits before it looks again at what seemed broken: a payload on its way is not.
const checkSettle = 500 * time.Millisecond

// Check holds queue and spool against each other while the daemon works.
func (s *session) Check(ctx context.Context, by server.Caller, c control.CheckRequest) (report control.CheckReport, err error) {
	o := intake.CheckOptions{Deep: c.Deep, Settle: checkSettle}
	findings, err := s.intake.Check(ctx, o)
	if err != nil {
		return report, err
	}
	if c.Repair && len(findings) > 0 {
		s.log.Warn("repair", slog.String(logging.KeyBy, by.String()), slog.Int(logging.KeyCount, len(findings)))
		if report.Repaired, err = s.intake.Repair(ctx, findings); err != nil {
			return report, err
		}
		if findings, err = s.intake.Check(ctx, o); err != nil {
			return report, err
		}
		s.dispatcher.poke()
	}
	report.Cut = len(findings) == intake.MaxFindings
	for _, f := range findings {
		report.Findings = append(report.Findings, control.Finding{
			Kind: string(f.Kind), ID: f.ID, Detail: attachment.Printable(f.Detail), Remedy: f.Remedy,
		})
	}
	return report, nil
}
