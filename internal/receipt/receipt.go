// Package receipt defines what a server's answer to a registration is worth.
//
// A receipt is the only thing that makes an attachment delivered. The package is pure: it holds the message, the grades
// and the one function that says whether a receipt really speaks of a given attachment. Device and server share it.
package receipt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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

// Acceptable reports whether a person may let receipts of this grade count as delivery. A length alone proves nothing
// about the bytes.
func (g Grade) Acceptable() bool { return g == VerifiedDigest }

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

// Bounds of what a server says in a receipt, in bytes. A device stores the receipt beside its file and shows it.
const (
	MaxName     = 255  // media ID, server, device of a takeover
	maxServerID = 1024 // the parent's identifier at the server, as in wire.MaxParentID
)

// Check returns nil only when r names the same attachment, length, digest and parent as want, has a known grade, and holds
// nothing that a device could not store and show: a time of registration in the years 1 to 9999 (RFC 3339), and names of
// bounded length that print. The parent's server ID may be one that the device has not heard of yet. Errors wrap
// ErrMismatch and name the field.
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
	case r.MediaID == "" || !printable(r.MediaID):
		return mismatch("media_id", quoted(r.MediaID), "an identifier of up to 255 printable bytes")
	case !printable(r.Server):
		return mismatch("server", quoted(r.Server), "up to 255 printable bytes")
	case len(r.Parent.ServerID) > maxServerID || !utf8.ValidString(r.Parent.ServerID):
		return mismatch("parent.server_id", quoted(r.Parent.ServerID), "up to 1024 bytes of UTF-8")
	case !dated(r.RegisteredAt):
		return mismatch("registered_at", r.RegisteredAt, "a time")
	case r.Takeover != nil && (!printable(r.Takeover.Device) || !dated(r.Takeover.At)):
		return mismatch("takeover", quoted(r.Takeover.Device), "a device of up to 255 printable bytes, and a time")
	}
	return nil
}

// dated reports whether a time is set and can be written as RFC 3339 in UTC.
func dated(t time.Time) bool {
	year := t.UTC().Year()
	return !t.IsZero() && year >= 1 && year <= 9999
}

// printable reports whether s is short, UTF-8 and free of what steers a terminal.
func printable(s string) bool {
	return len(s) <= MaxName && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// quoted is the beginning of a text for an error, with nothing in it that steers a terminal.
func quoted(s string) string { return strconv.Quote(s[:min(len(s), 64)]) }
