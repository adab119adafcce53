package store

import (
	"bytes"
	"fmt"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// newAttachment is the record of an ID that is seen for the first time. It needs bytes until decided otherwise.
func newAttachment(r Reservation, mediaID string) Attachment {
	return Attachment{
		Account: r.By.Account, ID: r.ID, Facts: r.Facts, MediaID: mediaID, State: wire.StateReserved,
		Device: r.By.Device, Holder: r.By.Device, HeldSince: r.Now, ReservedAt: r.Now,
	}
}

// newMedia is the media item for a content that the account has not seen. The proposed ID becomes the canonical one if
// it is a UUID that no other item has.
func newMedia(r Reservation, proposedTaken bool) Media {
	m := Media{ID: r.NewMedia, Account: r.By.Account, SHA256: r.Facts.SHA256, Length: r.Facts.Length, State: MediaPending}
	if IsUUID(r.Facts.ProposedMediaID) && !proposedTaken {
		m.ID = r.Facts.ProposedMediaID
	}
	return m
}

// replay checks a repeated reservation against the record and takes over what it may change. Length, digest and role
// are the identity; every other fact follows the device until registration.
func (a *Attachment) replay(r Reservation) error {
	f := a.Facts
	if f.Length != r.Facts.Length || f.SHA256 != r.Facts.SHA256 || f.Role != r.Facts.Role {
		return fmt.Errorf("reserve %s: %w", a.ID, ErrConflict)
	}
	if a.State == wire.StateRegistered {
		return nil
	}
	a.Facts = r.Facts
	a.hold(r.By.Device, r.Now)
	return nil
}

// hold notes the device that acts for the attachment from now on.
func (a *Attachment) hold(device string, now time.Time) {
	if a.Holder != device {
		a.Holder, a.HeldSince = device, now
	}
}

// reopen says what a reservation does to the attachment's bytes. open is the current session if it still takes bytes;
// known says that the server itself hashed this content and registered it, and that its file is there. It returns true
// where a new session must be opened; Generation counts it already.
func (a *Attachment) reopen(open *Session, known, stored bool) bool {
	switch {
	case a.State == wire.StateRegistered:
		return false
	case a.State == wire.StateVerified && stored:
		return false
	case a.State == wire.StateReserved && open != nil:
		return false
	case known:
		a.State, a.Session, a.Void = wire.StateVerified, "", ""
		a.Generation = max(a.Generation, 1)
		return false
	}
	a.State, a.Void = wire.StateReserved, ""
	a.Generation++
	return true
}

// matches reports whether the media item is a content that this server hashed and registered, of this length.
func (m Media) matches(f wire.Reserve) bool {
	return m.State == MediaReady && m.SHA256 == f.SHA256 && m.Length == f.Length
}

// register makes the receipt of a verified attachment, or completes the one it has. Changed tells whether the record
// must be written; fresh that the attachment was not registered before.
func (a *Attachment) register(r Registration, server string) (changed, fresh bool, err error) {
	if a.State == wire.StateRegistered {
		changed, err = completeParent(&a.Receipt.Parent, r.Parent)
		return changed, false, err
	}
	if a.State != wire.StateVerified {
		if err := a.Void.Err(); err != nil {
			return false, false, fmt.Errorf("register %s: %w", a.ID, err)
		}
		return false, false, fmt.Errorf("register %s: %w", a.ID, ErrNotVerified)
	}
	a.hold(r.By.Device, r.Now)
	a.State = wire.StateRegistered
	a.Facts.Parent = r.Parent
	a.Receipt = &receipt.Receipt{
		AttachmentID: a.ID, MediaID: a.MediaID, Parent: r.Parent, Length: a.Facts.Length, SHA256: a.Facts.SHA256,
		Grade: receipt.RegisteredDurable, RegisteredAt: r.Now, Server: server,
	}
	if a.Holder != a.Device {
		a.Receipt.Takeover = &receipt.Takeover{Device: a.Holder, At: a.HeldSince}
	}
	return true, true, nil
}

// completeParent checks a repeated registration's parent against the bound one. The local ID never changes; the server
// ID may be filled in once, and a repetition may leave it out.
func completeParent(bound *receipt.Parent, again receipt.Parent) (changed bool, err error) {
	switch {
	case bound.LocalID != again.LocalID, !bytes.Equal(bound.LocalIDRaw, again.LocalIDRaw):
		return false, fmt.Errorf("register again: local ID: %w", ErrParent)
	case again.ServerID == "" || again.ServerID == bound.ServerID:
		return false, nil
	case bound.ServerID != "":
		return false, fmt.Errorf("register again: server ID: %w", ErrParent)
	}
	bound.ServerID = again.ServerID
	return true, nil
}
