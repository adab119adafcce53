package control

import (
	"strings"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

// Where the bytes of an attachment are on this device.
const (
	CopySpool     = "spool"          // undelivered, in the spool
	CopyDelivered = "delivered copy" // delivered, kept for its retention
	CopyReleased  = "released"       // delivered, and removed by retention
	CopyDiscarded = "discarded"      // removed by a person's decision
	CopyMissing   = "missing"        // should be there and is not
	CopyChanged   = "changed"        // there, but no longer what was captured
)

// Item is one attachment as lists show it.
type Item struct {
	ID       attachment.ID     `json:"id"`
	Filename attachment.Name   `json:"filename"`
	Parent   attachment.Parent `json:"parent,omitzero"`
	// Length is the payload's, in bytes, SHA256 its digest in lower-case hex.
	Length    int64                `json:"length"`
	SHA256    attachment.Digest    `json:"sha256"`
	MediaType string               `json:"media_type"`
	Condition attachment.Condition `json:"condition"`
	State     attachment.State     `json:"state"`
	// ConfirmedBytes is the last offset that the server confirmed; absent when the protocol confirmed none.
	ConfirmedBytes *int64 `json:"confirmed_bytes,omitempty"`
	// Restarts: the server confirms no part of it, so that whatever interrupts the transfer, a pause too, begins it anew.
	Restarts bool `json:"restarts,omitempty"`
	// Waiting is there for every undelivered item that nobody is working on.
	Waiting     *Waiting   `json:"waiting,omitempty"`
	CapturedAt  time.Time  `json:"captured_at"`
	AdoptedAt   time.Time  `json:"adopted_at"`
	DeliveredAt *time.Time `json:"delivered_at,omitempty"`
	// Grade is what the server's receipt is worth; empty without one.
	Grade     receipt.Grade `json:"grade,omitempty"`
	LocalCopy string        `json:"local_copy"`
	// Repeats is an earlier attachment of the same watch and parent with the same bytes.
	Repeats  attachment.ID `json:"repeats,omitempty"`
	Paused   bool          `json:"paused"`
	Priority int           `json:"priority"`
	// Attempts counts the deliveries begun.
	Attempts int `json:"attempts"`
	// Seq is the journal's number of the adoption: the order of lists.
	Seq uint64 `json:"seq"`
}

// ItemDetail answers GET /v1/attachments/{id}: everything about one attachment.
type ItemDetail struct {
	Schema string `json:"schema"`
	Item
	CapturedAtSource string          `json:"captured_at_source"`
	Role             attachment.Role `json:"role"`
	Of               attachment.ID   `json:"of,omitempty"`
	// Supersedes is the attachment that this one takes the place of; Description is one line for people.
	Supersedes  attachment.ID      `json:"supersedes,omitempty"`
	Description string             `json:"description,omitempty"`
	Binding     Binding            `json:"binding,omitzero"`
	Structure   string             `json:"structure"`
	Custody     attachment.Custody `json:"custody"`
	Source      Source             `json:"source"`
	// Submission is the ID of the submission that the file came with.
	Submission string `json:"submission,omitempty"`
	Driver     string `json:"driver,omitempty"`
	// MediaID is the server's ID; final only with a receipt.
	MediaID string `json:"media_id,omitempty"`
	// Session is absent while the server gave none.
	Session *Session `json:"session,omitempty"`
	// Failures counts those charged to the item since the last success or retry; LastError is the last one.
	Failures  int        `json:"failures"`
	LastError *LastError `json:"last_error,omitempty"`
	// Problem is why the item is in attention or review, Discard the decision that ended it.
	Problem *attachment.Problem  `json:"problem,omitempty"`
	Discard *attachment.Decision `json:"discard,omitempty"`
	Receipt *receipt.Receipt     `json:"receipt,omitempty"`
	// Journal holds the newest MaxJournal rows in order; JournalCut: there are older ones.
	Journal    []JournalRow `json:"journal"`
	JournalCut bool         `json:"journal_cut,omitempty"`
	// PayloadPath is where the bytes are; empty when they are not on this device.
	PayloadPath string `json:"payload_path,omitempty"`
}

// Source is where a payload came from.
type Source struct {
	Watch    string              `json:"watch,omitempty"`
	Path     attachment.Name     `json:"path,omitzero"`
	Evidence attachment.Evidence `json:"evidence"`
	// ReleasePending: secured, and the source is still to be removed. Kept says why it was left in place.
	ReleasePending bool   `json:"release_pending,omitempty"`
	Kept           string `json:"kept,omitempty"`
	// Released: this device removed it after custody.
	Released bool `json:"released,omitempty"`
}

// Binding is what named the parent.
type Binding struct {
	Rule attachment.BindingRule `json:"rule,omitempty"`
	// Sidecar is the path of the one that did; absent where none has.
	Sidecar attachment.Name `json:"sidecar,omitzero"`
	// ReleasePending: it is kept here, and is still to be removed where it came from. Kept says why it was left there.
	ReleasePending bool   `json:"release_pending,omitempty"`
	Kept           string `json:"kept,omitempty"`
}

// Session is the server's upload session. Its address is not told: it may carry a right.
type Session struct {
	ID         string `json:"id"`
	Generation int    `json:"generation"`
}

// LastError is the last failed attempt.
type LastError struct {
	Code    attachment.Code `json:"code"`
	Message string          `json:"message"`
	At      time.Time       `json:"at"`
	// Status is the HTTP status of the answer; 0 when there was none.
	Status int `json:"status,omitempty"`
}

// JournalRow is one line of an item's history.
type JournalRow struct {
	Seq    uint64           `json:"seq"`
	At     time.Time        `json:"at"`
	Event  attachment.Event `json:"event"`
	From   attachment.State `json:"from,omitempty"`
	To     attachment.State `json:"to"`
	Reason string           `json:"reason,omitempty"`
	// By names the person for a decision, such as "uid 1000 (anna)"; empty for the service itself.
	By     string `json:"by,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// shortLength is how much of an ID lists show.
const shortLength = 8

// ShortID is what lists show of an ID and people type: its last 8 characters. Attachments captured within one hour have the
// first 6 digits in common and look alike; the end is random, so 8 digits tell 10,000 of them apart but for one chance in
// 86, and a reference that fits two is refused, never guessed.
func ShortID(id attachment.ID) string {
	if len(id) <= shortLength {
		return string(id)
	}
	return string(id[len(id)-shortLength:])
}

// Refers reports whether ref, as a person typed it, means id: all of it, its beginning, or its end. References shorter than
// MinReference mean nothing.
func Refers(ref string, id attachment.ID) bool {
	if len(ref) < MinReference {
		return false
	}
	ref = strings.ToLower(ref)
	return strings.HasPrefix(string(id), ref) || strings.HasSuffix(string(id), ref)
}
