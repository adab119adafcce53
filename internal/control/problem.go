package control

import (
	"fmt"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Code is the stable reason of a refusal. Callers branch on it, never on prose.
type Code string

// The problem codes. The list may grow; an unknown one means "failed".
const (
	CodeInvalid          Code = "invalid"           // 400: the request is malformed; Detail says where
	CodeNotPermitted     Code = "not_permitted"     // 403: this caller may not do this
	CodeNoSuchItem       Code = "no_such_item"      // 404: no attachment has this ID
	CodeNoSuchRoute      Code = "no_such_route"     // 404: the daemon has no such path, or not with this method
	CodeAmbiguous        Code = "ambiguous"         // 409: the shortened ID fits several; Candidates names some
	CodeNotPossible      Code = "not_possible"      // 409: not in the state that the item or the service is in
	CodeSubmissionReused Code = "submission_reused" // 409: the submission's ID is known with other content
	CodeLengthMismatch   Code = "length_mismatch"   // 422: a file had more or fewer bytes than announced
	CodeInterrupted      Code = "interrupted"       // 400: the request's bytes stopped coming
	CodeInternal         Code = "internal"          // 500: the daemon failed; its log says more
	CodeQueueUnavailable Code = "queue_unavailable" // 503: the queue is damaged or not open; nothing was changed
	CodeBusy             Code = "busy"              // 503: too many requests at once; try again
	CodeShuttingDown     Code = "shutting_down"     // 503: the daemon is stopping
	CodeStorageFull      Code = "storage_full"      // 507: no room to take the files; nothing was taken
	CodeQueueFull        Code = "queue_full"        // 507: the queue has reached its largest size; nothing was taken
)

// Error is a refusal, on the wire as application/problem+json (RFC 9457, with the members code and hint).
type Error struct {
	Schema string `json:"schema"`
	Title  string `json:"title"`
	// Status is the answer's HTTP status; 0, and absent, for what fieldgwctl finds out by itself.
	Status int    `json:"status,omitempty"`
	Code   Code   `json:"code"`
	Detail string `json:"detail,omitempty"`
	// Hint is what to do about it.
	Hint string `json:"hint,omitempty"`
	// Candidates are the first IDs that an ambiguous reference fits.
	Candidates []attachment.ID `json:"candidates,omitempty"`
}

// Error implements error: the title, and the detail where there is one.
func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Title
	}
	return e.Title + ": " + e.Detail
}

var problems = map[Code]Error{
	CodeInvalid:          {Title: "The request is not valid", Status: 400},
	CodeInterrupted:      {Title: "The request was not complete", Status: 400, Hint: "Nothing was taken; send it again."},
	CodeNotPermitted:     {Title: "Not permitted", Status: 403},
	CodeNoSuchItem:       {Title: "No such attachment", Status: 404, Hint: "fieldgwctl list shows what there is."},
	CodeNoSuchRoute:      {Title: "The daemon does not know this request", Status: 404, Hint: "Compare the versions: fieldgwctl version"},
	CodeAmbiguous:        {Title: "More than one attachment fits", Status: 409, Hint: "Type more of the ID; fieldgwctl list -o wide shows it in full."},
	CodeNotPossible:      {Title: "Not possible in this state", Status: 409},
	CodeSubmissionReused: {Title: "This submission ID was used for other files", Status: 409, Hint: "Use a new submission ID."},
	CodeLengthMismatch:   {Title: "A file is not as long as announced", Status: 422, Hint: "It changed while it was read. Nothing was taken; submit it again when it is complete."},
	CodeInternal:         {Title: "The daemon failed", Status: 500, Hint: "Its log says more: journalctl -u fieldgwd"},
	CodeQueueUnavailable: {Title: "The queue cannot be used", Status: 503, Hint: "To rebuild it: sudo systemctl stop fieldgwd; sudo fieldgwd rebuild; sudo systemctl start fieldgwd"},
	CodeBusy:             {Title: "The daemon is busy", Status: 503, Hint: "Try again in a moment."},
	CodeShuttingDown:     {Title: "The daemon is stopping", Status: 503, Hint: "Try again when it is back."},
	CodeStorageFull:      {Title: "There is no room for these files", Status: 507, Hint: "Free space on the volume. Nothing was taken; the originals stay where they are."},
	CodeQueueFull: {
		Title: "The queue has reached its largest size", Status: 507,
		Hint: "Nothing was taken; the originals stay where they are. Let everything be delivered, then start with a new state directory.",
	},
}

// Refuse makes the refusal of a code with its title, status and hint. detail may be empty; it is shown to people.
func Refuse(code Code, detail string) *Error {
	e, known := problems[code]
	if !known {
		e = problems[CodeInternal]
	}
	e.Schema, e.Code, e.Detail = SchemaError, code, detail
	return &e
}

// Resolve turns what a reference was found to mean into one ID. Errors are *Error with CodeNoSuchItem or CodeAmbiguous.
func Resolve(ref string, found []attachment.ID) (attachment.ID, error) {
	for _, id := range found {
		if string(id) == ref {
			return id, nil
		}
	}
	switch len(found) {
	case 0:
		return "", Refuse(CodeNoSuchItem, fmt.Sprintf("nothing fits %.60q", ref))
	case 1:
		return found[0], nil
	}
	e := Refuse(CodeAmbiguous, fmt.Sprintf("%.60q fits several", ref))
	e.Candidates = found[:min(len(found), MaxCandidates)]
	return "", e
}
