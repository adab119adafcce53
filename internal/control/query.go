package control

import (
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Page is one page of a list.
type Page[T any] struct {
	Schema string `json:"schema"`
	Items  []T    `json:"items"`
	// NextCursor leads to the following page; empty at the end. Its text is the daemon's own affair.
	NextCursor string `json:"next_cursor,omitempty"`
}

// ListQuery selects attachments. Lists are in the order of adoption, oldest first. The zero value selects all.
type ListQuery struct {
	// Conditions to include; none means every condition.
	Conditions []attachment.Condition
	// Parent is the local ID of a record; empty means any or none.
	Parent attachment.Name
	// AdoptedBefore leaves out what was adopted at this time or later; zero means no limit.
	AdoptedBefore time.Time
	Cursor        string
	// Limit is the number of rows, 1 to MaxPage; 0 in a request means DefaultPage.
	Limit int
}

// RecordQuery selects records.
type RecordQuery struct {
	// Parent is one local ID; empty means all.
	Parent attachment.Name
	Cursor string
	Limit  int
}

// NotTaken is a path in a capture directory that is not an attachment, or not yet.
type NotTaken struct {
	Watch string          `json:"watch"`
	Path  attachment.Name `json:"path"`
	// Size in bytes as last seen; 0 when it is not known.
	Size    int64   `json:"size"`
	Waiting Waiting `json:"waiting"`
}

// Tally is a number of attachments and their bytes.
type Tally struct {
	Items int64 `json:"items"`
	Bytes int64 `json:"bytes"`
}

// Record is one parent with its attachments. The zero Parent stands for the attachments without one.
type Record struct {
	Parent attachment.Parent `json:"parent,omitzero"`
	// Unreconciled counts what is neither delivered nor decided upon, Delivered what is.
	Unreconciled Tally `json:"unreconciled"`
	Delivered    Tally `json:"delivered"`
	// NeedsAttention is how many of the unreconciled are in attention or review.
	NeedsAttention int64 `json:"needs_attention"`
}
