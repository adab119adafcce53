package controltest

import (
	"context"

	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/server"
)

// Break adds findings that the next checks report; a repair takes away those that name an attachment.
func (b *Backend) Break(findings ...control.Finding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = append(b.broken, findings...)
}

// Check implements server.Backend.
func (b *Backend) Check(_ context.Context, by server.Caller, c control.CheckRequest) (control.CheckReport, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return control.CheckReport{}, b.fail
	}
	b.callers = append(b.callers, by)
	var report control.CheckReport
	if c.Repair {
		var left []control.Finding
		for _, f := range b.broken {
			if f.ID == "" {
				left = append(left, f)
			}
		}
		report.Repaired = len(b.broken) - len(left)
		b.broken = left
	}
	report.Findings = b.broken
	return report, nil
}
