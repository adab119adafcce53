package control

import (
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// Status answers GET /v1/status: whether anything is wrong, and whether the evidence is safe and moving.
type Status struct {
	Schema string `json:"schema"`
	// Device and Account come from the credential, Device possibly from the configuration; empty while unknown.
	Device  string `json:"device,omitempty"`
	Account string `json:"account,omitempty"`
	// Version is the daemon's, StartedAt when it started.
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	// Configured: there is a server to send to.
	Configured bool    `json:"configured"`
	Sending    Sending `json:"sending"`
	Capture    Capture `json:"capture"`
	Storage    Storage `json:"storage"`
	// Counts has one entry for each condition that some attachment is in.
	Counts []Count `json:"counts"`
	// NotTaken is the number of paths in capture directories that were not taken or not yet.
	NotTaken int           `json:"not_taken"`
	Watches  []WatchStatus `json:"watches"`
	// Problems are what else an operator should know, worst first.
	Problems []Problem `json:"problems"`
	// NextAttempt is the earliest planned attempt of any item or of the channel.
	NextAttempt *time.Time `json:"next_attempt,omitempty"`
	// Degraded says what is damaged when the queue cannot be used: nothing is adopted then, and the counts are missing.
	Degraded *string `json:"degraded,omitempty"`
}

// Sending is the state of the channel to the server.
type Sending struct {
	// Paused is a person's pause of all sending.
	Paused bool `json:"paused"`
	// Channel says why nothing is sent; absent while sending is possible.
	Channel *Waiting `json:"channel,omitempty"`
	// Endpoint is the server's address, without credentials.
	Endpoint     string     `json:"endpoint,omitempty"`
	LastDelivery *time.Time `json:"last_delivery,omitempty"`
}

// Capture is the state of adoption.
type Capture struct {
	// Blocked says why no new file is taken; absent while files are taken.
	Blocked *Waiting `json:"blocked,omitempty"`
}

// The states of storage.
const (
	StorageOK      = "ok"
	StorageWarn    = "warn"    // below storage.warn_free
	StorageBlocked = "blocked" // below storage.reserve: nothing new is taken
	StorageUnknown = "unknown" // cannot be measured
)

// Storage is the free space of the volume that holds the state directory, in bytes, as the daemon's user can use it.
type Storage struct {
	FreeBytes    int64  `json:"free_bytes"`
	TotalBytes   int64  `json:"total_bytes"`
	ReserveBytes int64  `json:"reserve_bytes"`
	WarnBytes    int64  `json:"warn_bytes"`
	State        string `json:"state"`
}

// Count is how many attachments are in a condition.
type Count struct {
	Condition attachment.Condition `json:"condition"`
	Items     int64                `json:"items"`
	Bytes     int64                `json:"bytes"`
	// Oldest is the adoption of the oldest of them, Waiting why that one waits; absent where that is not known.
	Oldest  *time.Time `json:"oldest,omitempty"`
	Waiting *Waiting   `json:"waiting,omitempty"`
}

// WatchStatus is the state of one capture directory.
type WatchStatus struct {
	Name string          `json:"name"`
	Path attachment.Name `json:"path"`
	// Available: the directory is there and can be read. Otherwise Reason and Message say what is the matter.
	Available bool            `json:"available"`
	Reason    attachment.Code `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"`
	// Detail is what is behind the reason, such as the marker that is missing or the kernel's limit to raise.
	Detail string     `json:"detail,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// Polled says why the directory is scanned every few seconds; absent where file events tell everything.
	Polled string `json:"polled,omitempty"`
	// Directories were found by the last complete scan, NotWatched of them give no events, and Unchanged of them needed no
	// listing. LastScan is when that scan ended.
	Directories int        `json:"directories"`
	NotWatched  int        `json:"not_watched"`
	Unchanged   int        `json:"unchanged"`
	LastScan    *time.Time `json:"last_scan,omitempty"`
	// FoundByRescan counts files that a scan found although events should have told of them, Overflows how often events
	// were lost and everything was scanned; since the daemon started.
	FoundByRescan int64 `json:"found_by_rescan"`
	Overflows     int64 `json:"overflows"`
}

// The severities of a problem.
const (
	SeverityError   = "error"   // a person must act
	SeverityWarning = "warning" // a person should know
)

// Problem is something that is wrong with the device or the service rather than with one item.
type Problem struct {
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
	// Action is what to do about it; empty when nothing helps.
	Action string `json:"action,omitempty"`
}

// Of returns the count of a condition, zero when there is none.
func (s *Status) Of(c attachment.Condition) Count {
	for _, n := range s.Counts {
		if n.Condition == c {
			return n
		}
	}
	return Count{Condition: c}
}

// Owed sums the attachments that are neither delivered nor decided upon.
func (s *Status) Owed() (items, bytes int64) {
	for _, n := range s.Counts {
		if n.Condition.Owed() {
			items += n.Items
			bytes += n.Bytes
		}
	}
	return items, bytes
}

// NeedsAttention reports whether a person has to act: the queue is damaged, no server is configured, new files are not
// taken, an item is in attention or review, the channel's reason does not pass by itself, or there is a problem of severity
// error. It is what `fieldgwctl status --check` tells by its exit code.
func (s *Status) NeedsAttention() bool {
	if s.Degraded != nil || !s.Configured || s.Capture.Blocked != nil {
		return true
	}
	if s.Of(attachment.ShownAttention).Items > 0 || s.Of(attachment.ShownReview).Items > 0 {
		return true
	}
	if c := s.Sending.Channel; c != nil && c.NeedsPerson() {
		return true
	}
	for _, p := range s.Problems {
		if p.Severity == SeverityError {
			return true
		}
	}
	return false
}
