// Package receipt defines what a server's answer to a registration is worth.
//
// A receipt is the only thing that makes an attachment delivered. The package is pure: it holds the message, the grades
// and the one function that says whether a receipt really speaks of a given attachment. Device and server share it.
package receipt

import (
	"errors"
	"fmt"
	"time"
)

// Grade says on which evidence a receipt rests. Persisted as text.
type Grade string

// The grades, best first.
const (
	// RegisteredDurable: a fieldgw server hashed the stored bytes itself, made them durable and registered the attachment.
	RegisteredDurable Grade = "registered-durable"
	// Registered: a server registered the attachment and confirmed length and digest, without a promise of durability.
	Registered Grade = "registered"
	// VerifiedDigest: the digest was read back from the server; nothing is registered.
	VerifiedDigest Grade = "verified-digest"
	// LengthOnly: only the length was read back.
	LengthOnly Grade = "length-only"
)

// Delivered reports whether a receipt of this grade counts as delivery without a person's decision.
func (g Grade) Delivered() bool { return g == RegisteredDurable || g == Registered }

// Known reports whether g is one of the grades of this package.
func (g Grade) Known() bool {
	return g.Delivered() || g == VerifiedDigest || g == LengthOnly
}

// Parent is the business row that an attachment was bound to. Both empty is the recorded fact that there is none.
type Parent struct {
	// LocalID is the device's stable identifier, in display UTF-8.
	LocalID string `json:"local_id,omitempty"`
	// LocalIDRaw holds the identifier's exact bytes where they are not valid UTF-8 (JSON: base64).
	LocalIDRaw []byte `json:"local_id_raw,omitempty"`
	// ServerID is the server's identifier, once known.
	ServerID string `json:"server_id,omitempty"`
}

// Takeover notes that another device or user of the same account finished the delivery.
type Takeover struct {
	Device string    `json:"device"`
	At     time.Time `json:"at"`
}

// Receipt is the answer to a registration (docs/protocol.md, Register).
type Receipt struct {
	AttachmentID string    `json:"attachment_id"`
	MediaID      string    `json:"media_id"`
	Parent       Parent    `json:"parent"`
	Length       int64     `json:"length"`
	SHA256       string    `json:"sha256"`
	Grade        Grade     `json:"grade"`
	RegisteredAt time.Time `json:"registered_at"`
	Server       string    `json:"server,omitempty"`
	Takeover     *Takeover `json:"takeover,omitempty"`
}

// ErrMismatch is returned by Check when a receipt does not speak of the attachment at hand.
var ErrMismatch = errors.New("receipt does not match the attachment")

// Facts are what the device knows of the attachment that a receipt must repeat.
type Facts struct {
	AttachmentID string
	Length       int64
	// SHA256 is lower-case hex of the whole payload.
	SHA256 string
	Parent Parent
}

// Check returns nil only when r names the same attachment, length, digest and parent as want and has a known grade.
// The parent's server ID may be one that the device has not heard of yet. Errors wrap ErrMismatch and name the field.
func Check(r Receipt, want Facts) error {
	mismatch := func(field string, got, wanted any) error {
		return fmt.Errorf("check receipt: %s is %v, want %v: %w", field, got, wanted, ErrMismatch)
	}
	switch {
	case r.AttachmentID != want.AttachmentID:
		return mismatch("attachment_id", r.AttachmentID, want.AttachmentID)
	case r.Length != want.Length:
		return mismatch("length", r.Length, want.Length)
	case r.SHA256 != want.SHA256:
		return mismatch("sha256", r.SHA256, want.SHA256)
	case r.Parent.LocalID != want.Parent.LocalID:
		return mismatch("parent.local_id", r.Parent.LocalID, want.Parent.LocalID)
	case string(r.Parent.LocalIDRaw) != string(want.Parent.LocalIDRaw):
		return mismatch("parent.local_id_raw", r.Parent.LocalIDRaw, want.Parent.LocalIDRaw)
	case want.Parent.ServerID != "" && r.Parent.ServerID != want.Parent.ServerID:
		return mismatch("parent.server_id", r.Parent.ServerID, want.Parent.ServerID)
	case !r.Grade.Known():
		return mismatch("grade", r.Grade, "a known grade")
	case r.MediaID == "":
		return mismatch("media_id", "empty", "an identifier")
	}
	return nil
}
