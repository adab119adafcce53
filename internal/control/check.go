package control

import "github.com/fieldgw/fieldgw/internal/attachment"

// SchemaCheck is the document kind of a check's report.
const SchemaCheck = "fieldgw.check/v1"

// MaxFindings is how many findings a report holds.
const MaxFindings = 1000

// CheckRequest is the body of POST /v1/check.
type CheckRequest struct {
	// Deep reads every payload and compares its digest.
	Deep bool `json:"deep,omitempty"`
	// Repair mends what can be mended without losing anything, and checks again.
	Repair bool `json:"repair,omitempty"`
}

// Finding is one broken invariant.
type Finding struct {
	// Kind is one of a closed list, documented in docs/cli.md.
	Kind string `json:"kind"`
	// ID names the attachment; empty when it concerns none.
	ID     attachment.ID `json:"id,omitempty"`
	Detail string        `json:"detail,omitempty"`
	// Remedy is what to do about it.
	Remedy string `json:"remedy"`
}

// CheckReport answers a check: what is broken now, after the repair if one was asked for.
type CheckReport struct {
	Schema   string    `json:"schema"`
	Deep     bool      `json:"deep"`
	Findings []Finding `json:"findings"`
	// Repaired is how many findings a repair acted on.
	Repaired int `json:"repaired"`
	// Cut: there are more than MaxFindings.
	Cut bool `json:"cut,omitempty"`
}
