package attachment

import (
	"fmt"
	"time"
)

// ManifestVersion is the version that this build writes; it refuses newer ones.
const ManifestVersion = 1

// HashAlgorithm names the digest in manifests.
const HashAlgorithm = "sha256"

// Role says what an attachment is.
type Role string

// The roles. Previews can be made again and are not evidence.
const (
	RoleOriginal Role = "original"
	RolePreview  Role = "preview"
)

// Custody is the way in which the bytes came into the spool.
type Custody string

// The ways of custody.
const (
	// CustodyMove: the file itself was renamed into the spool under a read lease.
	CustodyMove Custody = "move"
	// CustodyClone: its blocks are shared with the source (a reflink).
	CustodyClone Custody = "clone"
	// CustodyCopy: its bytes were copied.
	CustodyCopy Custody = "copy"
	// CustodySubmit: its bytes came over the control socket.
	CustodySubmit Custody = "submit"
)

// Evidence says why a source was taken to be complete.
type Evidence string

// The kinds of evidence, best first.
const (
	// EvidenceLease: settled, and a read lease proved that nobody had it open for writing.
	EvidenceLease Evidence = "lease"
	// EvidenceSettled: only quiet for the settle time; no lease could be had on that filesystem or with these rights.
	EvidenceSettled Evidence = "settled"
	// EvidenceSubmitted: a program handed it over as complete.
	EvidenceSubmitted Evidence = "submitted"
)

// Parent is the business row that an attachment belongs to. The zero value is the recorded fact that there is none.
type Parent struct {
	LocalID  Name   `json:"local_id,omitzero"`
	ServerID string `json:"server_id,omitempty"`
}

// SourceIdentity tells whether a path still leads to the file that was seen there. Times and sizes are the kernel's.
type SourceIdentity struct {
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"`
	Size    int64  `json:"size"`
	MTimeNS int64  `json:"mtime_ns"`
}

// Source is where a payload came from.
type Source struct {
	// Watch names the capture directory's configuration; empty for a submission.
	Watch string `json:"watch,omitempty"`
	// Medium names the card or filesystem that it lay on; empty where that is not known.
	Medium string `json:"medium,omitempty"`
	// Path is the absolute path; RelPath is relative to the watch's root.
	Path     Name           `json:"path,omitzero"`
	RelPath  Name           `json:"rel_path,omitzero"`
	Identity SourceIdentity `json:"identity,omitzero"`
	// ChangedNS is when the source last changed in any way (st_ctim, inode(7)), as it was read; 0: not known. It is no part
	// of its identity: a rename changes it.
	ChangedNS int64    `json:"changed_ns,omitempty"`
	Evidence  Evidence `json:"evidence"`
	// ReleasePending: the payload is secured and the source is still to be removed.
	ReleasePending bool `json:"release_pending,omitempty"`
	// Kept says why the source was left in place although the watch moves files; empty when it was not.
	Kept string `json:"kept,omitempty"`
	// Released: this device removed it there after custody.
	Released bool `json:"released,omitempty"`
}

// Session is the server's upload session. The ID is durable before the first byte is sent.
type Session struct {
	ID         string `json:"id"`
	URL        string `json:"url"`
	Generation int    `json:"generation"`
}

// Delivery is what is known about sending an attachment.
type Delivery struct {
	Driver          string `json:"driver,omitempty"`
	ProposedMediaID string `json:"proposed_media_id,omitempty"`
	// MediaID is the server's canonical ID; final only with a receipt.
	MediaID string  `json:"media_id,omitempty"`
	Session Session `json:"session,omitzero"`
	// Verified: the server's length and digest equal ours for this session.
	Verified bool `json:"verified,omitempty"`
	// ParentFixed: the server may have been asked to register it, which fixes the parent for ever.
	ParentFixed bool `json:"parent_fixed,omitempty"`
	// Attempts counts deliveries begun; Failures counts those charged to the item since the last success or retry.
	Attempts int `json:"attempts,omitempty"`
	Failures int `json:"failures,omitempty"`
	// NotBefore is the earliest next attempt on the wall clock, Wait the delay it was made from: whichever of wall and
	// running time ends first ends the wait.
	NotBefore time.Time     `json:"not_before,omitzero"`
	Wait      time.Duration `json:"wait_ns,omitempty"`
	// ErrorCode is the reason of the last failure; its text lives apart.
	ErrorCode Code `json:"error_code,omitempty"`
	// Grade and RegisteredAt come from the receipt. A grade in the state uploaded is one that is not delivery.
	Grade        string    `json:"grade,omitempty"`
	RegisteredAt time.Time `json:"registered_at,omitzero"`
}

// Problem is why an attachment is in attention or review.
type Problem struct {
	Code   Code      `json:"code"`
	Since  time.Time `json:"since"`
	Detail string    `json:"detail,omitempty"`
}

// Decision is a person's recorded decision that ended undelivered evidence.
type Decision struct {
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// StructureUnchecked is the structure verdict while no validator looks inside.
const StructureUnchecked = "unchecked"

// Manifest is the durable record of an attachment. The queue holds it; a travelling copy lies beside the payload.
type Manifest struct {
	Version int   `json:"version"`
	ID      ID    `json:"id"`
	State   State `json:"state"`
	// Seq is the journal's sequence number of the adoption: the order of capture. 0 in a travelling copy that was written
	// before the adoption was committed.
	Seq uint64 `json:"seq,omitempty"`

	Parent           Parent    `json:"parent,omitzero"`
	Binding          Binding   `json:"binding,omitzero"`
	Filename         Name      `json:"filename"`
	MediaType        string    `json:"media_type"`
	Length           int64     `json:"length"`
	HashAlgorithm    string    `json:"hash_algorithm"`
	SHA256           Digest    `json:"sha256"`
	CapturedAt       time.Time `json:"captured_at"`
	CapturedAtSource string    `json:"captured_at_source"`
	AdoptedAt        time.Time `json:"adopted_at"`
	Role             Role      `json:"role"`
	Of               ID        `json:"of,omitempty"`
	// Supersedes is the attachment that this one takes the place of; Description is one printable line for people.
	Supersedes  ID     `json:"supersedes,omitempty"`
	Description string `json:"description,omitempty"`

	Structure string  `json:"structure"`
	Custody   Custody `json:"custody"`
	Source    Source  `json:"source"`
	// Submission is the ID of the submission that this file came with.
	Submission string `json:"submission,omitempty"`
	// Repeats is an earlier attachment of the same watch and parent with the same bytes.
	Repeats ID `json:"repeats,omitempty"`

	// Prepared: nothing is missing before sending.
	Prepared bool `json:"prepared,omitempty"`
	Paused   bool `json:"paused,omitempty"`
	// Priority is 0 (normal) to MaxPriority, or PriorityFront.
	Priority int       `json:"priority,omitempty"`
	Delivery Delivery  `json:"delivery,omitzero"`
	Problem  *Problem  `json:"problem,omitempty"`
	Discard  *Decision `json:"discard,omitempty"`
}

// MaxPriority is the most urgent priority that a sidecar can give; a person puts an attachment before all of those.
const (
	MaxPriority   = 9
	PriorityFront = MaxPriority + 1
)

// Facts returns the durable facts that a decision's end is computed from.
func (m *Manifest) Facts() Facts { return Facts{Verified: m.Delivery.Verified, Prepared: m.Prepared} }

// Due reports whether the dispatcher has something to do for this attachment, now or later. What was sent and got a receipt
// that is not delivery waits for a person.
func (m *Manifest) Due() bool { return m.State.Sendable() && !m.Paused && !m.Sent() }

// Sent reports whether the server has every byte and gave a receipt that is not delivery.
func (m *Manifest) Sent() bool { return m.State == Uploaded && m.Delivery.Grade != "" }

// Retryable reports whether a person may have it tried again. Half a file must not be delivered as the evidence it was to be.
func (m *Manifest) Retryable() bool { return m.Problem == nil || m.Problem.Code != NeedsDamagedEarly }

// Clone returns a copy that shares nothing that is written to.
func (m *Manifest) Clone() *Manifest {
	c := *m
	if m.Problem != nil {
		p := *m.Problem
		c.Problem = &p
	}
	if m.Discard != nil {
		d := *m.Discard
		c.Discard = &d
	}
	if m.Binding.Sidecar != nil {
		s := *m.Binding.Sidecar
		c.Binding.Sidecar = &s
	}
	return &c
}

// Validate checks what must hold in every manifest, before it is written and after it is read. Errors wrap
// ErrBadManifest.
func (m *Manifest) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("manifest %.40q: %w: "+format, append([]any{m.ID, ErrBadManifest}, args...)...)
	}
	if _, err := ParseID(string(m.ID)); err != nil {
		return bad("%w", err)
	}
	switch {
	case m.Version < 1 || m.Version > ManifestVersion:
		return bad("version %d, this build reads 1 to %d", m.Version, ManifestVersion)
	case m.HashAlgorithm != HashAlgorithm:
		return bad("hash algorithm %.20q", m.HashAlgorithm)
	case m.Length < 0:
		return bad("length %d", m.Length)
	case m.Filename.Empty():
		return bad("no filename")
	case m.Role != RoleOriginal && m.Role != RolePreview:
		return bad("role %.20q", m.Role)
	case m.Of == m.ID || m.Supersedes == m.ID:
		return bad("it is a preview of itself, or supersedes itself")
	case m.Priority < 0 || m.Priority > PriorityFront:
		return bad("priority %d", m.Priority)
	case !knownState(m.State):
		return bad("state %.20q", m.State)
	case (m.State == Attention || m.State == Review) != (m.Problem != nil):
		return bad("state %s and problem do not belong together", m.State)
	case m.State == Uploaded && !m.Delivery.Verified:
		return bad("uploaded but not verified")
	case m.State == Reconciled && (m.Delivery.Grade == "" || m.Delivery.RegisteredAt.IsZero()):
		return bad("reconciled without a receipt")
	}
	return nil
}

func knownState(s State) bool {
	switch s {
	case Captured, Ready, Uploading, Uploaded, Reconciled, Released, Attention, Review, Cancelled:
		return true
	}
	return false
}
