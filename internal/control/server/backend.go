package server

import (
	"context"
	"fmt"
	"io"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

// Backend is what the server speaks for: the daemon. All methods may be called at the same time. Errors that are, or wrap,
// *control.Error are told to the caller as they are; every other error is logged and told as control.CodeInternal.
// Every time in an answer is in UTC. The server fills in the Schema members.
type Backend interface {
	// Status describes the device and the service. It answers even when the queue is damaged.
	Status(ctx context.Context) (control.Status, error)

	// List returns a page of attachments, oldest adoption first. Limit is 1 to control.MaxPage.
	List(ctx context.Context, q control.ListQuery) (control.Page[control.Item], error)

	// Get returns everything about one attachment; control.CodeNoSuchItem when there is none.
	Get(ctx context.Context, id attachment.ID) (control.ItemDetail, error)

	// Resolve returns the IDs that ref refers to (control.Refers): none, the only one, or at least two and at most
	// control.MaxCandidates of them. ref has control.MinReference characters or more and is lower case.
	Resolve(ctx context.Context, ref string) ([]attachment.ID, error)

	// NotTaken returns a page of the paths that the last scans did not take.
	NotTaken(ctx context.Context, cursor string, limit int) (control.Page[control.NotTaken], error)

	// Records returns a page of parents with the counts of their attachments.
	Records(ctx context.Context, q control.RecordQuery) (control.Page[control.Record], error)

	// Retry, Prioritize, Pause and Resume act on attachments and journal the decision with the caller and the reason. They refuse
	// item by item, in the outcome (control.CodeNoSuchItem, control.CodeNotPossible); one item never stops another. An
	// error means that nothing is known about the rest. a is valid and its IDs are full.
	Retry(ctx context.Context, by Caller, a control.Action) (control.Outcome, error)
	Prioritize(ctx context.Context, by Caller, a control.Action) (control.Outcome, error)
	Pause(ctx context.Context, by Caller, a control.Action) (control.Outcome, error)
	Resume(ctx context.Context, by Caller, a control.Action) (control.Outcome, error)

	// PauseChannel and ResumeChannel stop and start all sending. Asking for what already is so is done, not refused.
	PauseChannel(ctx context.Context, by Caller, a control.ChannelAction) (control.ActionResult, error)
	ResumeChannel(ctx context.Context, by Caller, a control.ChannelAction) (control.ActionResult, error)

	// Submit secures the files of sub and records them; when it returns without error all of them are durable. next
	// gives the files' bytes in order, each to be read to io.EOF before the following call; it ends with io.EOF. A reader
	// fails with *control.Error when the bytes stop coming or are not as many as announced: then nothing may be kept.
	// A submission ID that is already recorded with the same files is answered with the first result, without calling next;
	// with other files it is control.CodeSubmissionReused. ctx ends when the caller is gone or the daemon must stop.
	Submit(ctx context.Context, by Caller, sub control.Submission, next func() (io.Reader, error)) (control.SubmissionResult, error)

	// Check holds queue and spool against each other and, when asked to, repairs what can be repaired without losing
	// anything; the report is what is broken after that.
	Check(ctx context.Context, by Caller, c control.CheckRequest) (control.CheckReport, error)

	// Subscribe returns the transitions from now on. The server receives them without delay, however slow its client is.
	// The channel is closed when ctx ends; closing it earlier tells the client that it missed something.
	Subscribe(ctx context.Context) <-chan control.Transition
}

// Caller is the process at the other end of the socket, as the kernel tells it (unix(7), SO_PEERCRED): who it was when it
// connected.
type Caller struct {
	UID, GID uint32
	PID      int32
	// User is the login name of UID; empty when it has none.
	User string
}

// String is how the journal names a caller: "uid 1000 (anna)".
func (c Caller) String() string {
	if c.User == "" {
		return fmt.Sprintf("uid %d", c.UID)
	}
	return fmt.Sprintf("uid %d (%s)", c.UID, attachment.Printable(c.User))
}
