package wire

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/receipt"
)

// Status answers GET /v1/status.
type Status struct {
	Service  string `json:"service"`
	Protocol int    `json:"protocol"`
	// Epoch names the server's record file; a copy of it that was put back has the same.
	Epoch string `json:"epoch"`
}

// Role says what an attachment is.
type Role string

// The roles of an attachment.
const (
	RoleOriginal Role = "original"
	RolePreview  Role = "preview"
)

// Reserve is the body of PUT /v1/attachments/{id}. Length, SHA256 and Role are compared on replay; the other facts may
// be updated until registration.
type Reserve struct {
	Length    int64  `json:"length"`
	SHA256    string `json:"sha256"`
	Role      Role   `json:"role"`
	Of        string `json:"of,omitempty"`
	MediaType string `json:"media_type"`
	// Filename is display UTF-8; FilenameRaw (base64) is there only where the real bytes differ from it.
	Filename        string         `json:"filename"`
	FilenameRaw     []byte         `json:"filename_raw,omitempty"`
	CapturedAt      time.Time      `json:"captured_at"`
	Parent          receipt.Parent `json:"parent"`
	Supersedes      string         `json:"supersedes,omitempty"`
	ProposedMediaID string         `json:"proposed_media_id,omitempty"`
}

// AttachmentState is the server's view of an attachment.
type AttachmentState string

// The states that a server reports.
const (
	// StateReserved: bytes are still missing.
	StateReserved AttachmentState = "reserved"
	// StateVerified: the server holds every byte and its own digest equals the declared one.
	StateVerified AttachmentState = "verified"
	// StateRegistered: a receipt exists.
	StateRegistered AttachmentState = "registered"
)

// Upload tells where and how to send the bytes.
type Upload struct {
	URL      string   `json:"url"`
	Dialects []string `json:"dialects"`
	// Offset is the confirmed, durable number of bytes.
	Offset int64 `json:"offset"`
	// MaxAppend is the largest body of one append, in bytes; 0 means no limit.
	MaxAppend int64 `json:"max_append,omitempty"`
}

// Attachment answers a reserve (201 new, 200 replay) and GET /v1/attachments/{id}.
type Attachment struct {
	AttachmentID string          `json:"attachment_id"`
	MediaID      string          `json:"media_id"`
	State        AttachmentState `json:"state"`
	Generation   int             `json:"generation"`
	// Upload is absent when no bytes are needed.
	Upload *Upload `json:"upload,omitempty"`
	// Length and SHA256 are the server's own figures over the stored bytes; present once State is verified.
	Length *int64 `json:"length,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// Receipt is present once State is registered.
	Receipt *receipt.Receipt `json:"receipt,omitempty"`
}

// AttachmentList answers GET /v1/attachments: registered attachments in the order of their registration.
type AttachmentList struct {
	Attachments []Attachment `json:"attachments"`
	// Next is the cursor of the following page; empty at the end of the list.
	Next string `json:"next,omitempty"`
}

// Register is the body of POST /v1/attachments/{id}/registration; the answer is a receipt.Receipt.
type Register struct {
	Parent receipt.Parent `json:"parent"`
}

// ErrInvalid is returned by the Validate methods; the text names the member and what is wrong with it.
var ErrInvalid = errors.New("invalid message")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// Validate checks a reserve message against the limits of this package. Errors wrap ErrInvalid.
func (r *Reserve) Validate() error {
	switch {
	case r.Length < 0 || r.Length > MaxLength:
		return invalid("length %d is outside 0 to %d", r.Length, int64(MaxLength))
	case !isSHA256(r.SHA256):
		return invalid("sha256 is not 64 lower-case hex digits")
	case r.Role != RoleOriginal && r.Role != RolePreview:
		return invalid("role %q is neither original nor preview", r.Role)
	case (r.Role == RolePreview) != (r.Of != ""):
		return invalid("of is given with role preview, and only then")
	case r.MediaType == "" || len(r.MediaType) > MaxFilename:
		return invalid("media_type is empty or too long")
	case !validText(r.Filename, 2*MaxFilename) || r.Filename == "":
		return invalid("filename is empty, too long or not UTF-8")
	case len(r.FilenameRaw) > MaxFilename:
		return invalid("filename_raw is longer than %d bytes", MaxFilename)
	case !validText(r.ProposedMediaID, MaxFilename), !validText(r.Supersedes, MaxFilename), !validText(r.Of, MaxFilename):
		return invalid("proposed_media_id, supersedes or of is too long")
	}
	return ValidateParent(r.Parent)
}

// ValidateParent checks a parent binding. Errors wrap ErrInvalid.
func ValidateParent(p receipt.Parent) error {
	if !validText(p.LocalID, 2*MaxParentID) || !validText(p.ServerID, MaxParentID) || len(p.LocalIDRaw) > MaxParentID {
		return invalid("parent: an identifier is too long or not UTF-8")
	}
	if len(p.LocalIDRaw) > 0 && p.LocalID == "" {
		return invalid("parent: local_id_raw without local_id")
	}
	return nil
}

func validText(s string, limit int) bool { return len(s) <= limit && utf8.ValidString(s) }

func isSHA256(s string) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
