package control

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Action is the body of POST /v1/attachments/{retry,prioritize,pause,resume}. Exactly one of IDs, All and Record selects.
type Action struct {
	// IDs may be references in a request (see Refers); the server hands on full IDs only.
	IDs []attachment.ID `json:"ids,omitempty"`
	// All selects every attachment to which the verb applies, Record those of one parent by its local ID.
	All    bool            `json:"all,omitempty"`
	Record attachment.Name `json:"record,omitzero"`
	// Reason is a person's, for the journal.
	Reason string `json:"reason,omitempty"`
	// DryRun: say what would be done and change nothing.
	DryRun bool `json:"dry_run,omitempty"`
}

// ChannelAction is the body of POST /v1/channel/{pause,resume}.
type ChannelAction struct {
	Reason string `json:"reason,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

// ActionResult is what became of one attachment. For the channel ID is empty.
type ActionResult struct {
	ID       attachment.ID   `json:"id,omitempty"`
	Filename attachment.Name `json:"filename,omitzero"`
	// Done: the decision is recorded (or, in a dry run, would be). Otherwise Code and Message say why not.
	Done    bool   `json:"done"`
	Code    Code   `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// Outcome answers an action. Attachments selected by All or Record to which the verb does not apply are not mentioned;
// each one that was named gets a result.
type Outcome struct {
	Schema string `json:"schema"`
	DryRun bool   `json:"dry_run"`
	// Done and Refused count all results, also those that Results has no room for.
	Done    int            `json:"done"`
	Refused int            `json:"refused"`
	Results []ActionResult `json:"results"`
	// Cut: there were more than MaxResults.
	Cut bool `json:"cut,omitempty"`
}

// Add counts a result and keeps it while there is room.
func (o *Outcome) Add(r ActionResult) {
	if r.Done {
		o.Done++
	} else {
		o.Refused++
	}
	if len(o.Results) == MaxResults {
		o.Cut = true
		return
	}
	o.Results = append(o.Results, r)
}

// SubmissionFile announces one file of a submission.
type SubmissionFile struct {
	// Name is the file's base name.
	Name attachment.Name `json:"name"`
	// Length in bytes; exactly as many follow.
	Length     int64     `json:"length"`
	ModifiedAt time.Time `json:"modified_at,omitzero"`
	// SourcePath is where the caller read it, for showing; the daemon does not open it.
	SourcePath attachment.Name `json:"source_path,omitzero"`
}

// Submission is the first part of POST /v1/submissions; the files follow in order, one part each. A submission repeated
// under its ID is answered with the first result and taken once.
type Submission struct {
	// SubmissionID is a UUID that the caller made.
	SubmissionID string `json:"submission_id"`
	// Record is the local ID of the record that the files belong to; empty is the fact that there is none.
	Record attachment.Name  `json:"record,omitzero"`
	Files  []SubmissionFile `json:"files"`
}

// SubmissionResult answers a submission: every file is secured and recorded.
type SubmissionResult struct {
	Schema       string `json:"schema"`
	SubmissionID string `json:"submission_id"`
	// Items are in the order of the submission's files.
	Items []Item `json:"items"`
}

// Transition is one event of GET /v1/events.
type Transition struct {
	Schema string           `json:"schema"`
	Seq    uint64           `json:"seq"`
	At     time.Time        `json:"at"`
	ID     attachment.ID    `json:"id"`
	Event  attachment.Event `json:"event"`
	From   attachment.State `json:"from,omitempty"`
	To     attachment.State `json:"to"`
	Reason string           `json:"reason,omitempty"`
	// Condition is what is shown from now on.
	Condition attachment.Condition `json:"condition"`
}

// Validate checks an action's form. Errors are *Error with CodeInvalid.
func (a *Action) Validate() error {
	selectors := 0
	for _, given := range []bool{len(a.IDs) > 0, a.All, !a.Record.Empty()} {
		if given {
			selectors++
		}
	}
	switch {
	case selectors != 1:
		return Refuse(CodeInvalid, "give attachment IDs, or all, or a record, and only one of these")
	case len(a.IDs) > MaxActionIDs:
		return Refuse(CodeInvalid, fmt.Sprintf("%d IDs, at most %d at once", len(a.IDs), MaxActionIDs))
	case len(a.Record.Exact()) > MaxRecordID:
		return Refuse(CodeInvalid, "the record's ID is too long")
	}
	return validReason(a.Reason)
}

// Validate checks the form. Errors are *Error with CodeInvalid.
func (a *ChannelAction) Validate() error { return validReason(a.Reason) }

func validReason(reason string) error {
	if len(reason) > MaxReason {
		return Refuse(CodeInvalid, fmt.Sprintf("the reason is longer than %d bytes", MaxReason))
	}
	return nil
}

// Validate checks a submission's form and brings its names into their canonical form. Errors are *Error with CodeInvalid.
func (s *Submission) Validate() error {
	if u, err := uuid.Parse(s.SubmissionID); err != nil || u.String() != s.SubmissionID {
		return Refuse(CodeInvalid, "submission_id is not a UUID in its canonical form")
	}
	if len(s.Files) == 0 || len(s.Files) > MaxSubmissionFiles {
		return Refuse(CodeInvalid, fmt.Sprintf("%d files, want 1 to %d", len(s.Files), MaxSubmissionFiles))
	}
	s.Record = attachment.NameOf(s.Record.Exact())
	if len(s.Record.Exact()) > MaxRecordID {
		return Refuse(CodeInvalid, "the record's ID is too long")
	}
	for i := range s.Files {
		if err := s.Files[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

func (f *SubmissionFile) validate() error {
	f.Name = attachment.NameOf(f.Name.Exact())
	f.SourcePath = attachment.NameOf(f.SourcePath.Exact())
	name := f.Name.Exact()
	switch {
	case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > MaxFilename:
		return Refuse(CodeInvalid, fmt.Sprintf("%.40q is not a file name", name))
	case len(f.SourcePath.Exact()) > MaxPath:
		return Refuse(CodeInvalid, fmt.Sprintf("the source path of %.40q is too long", name))
	case f.Length < 0 || f.Length > MaxFileLength:
		return Refuse(CodeInvalid, fmt.Sprintf("%.40q: a length of %d bytes", name, f.Length))
	}
	return nil
}
