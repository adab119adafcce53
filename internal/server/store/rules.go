package store

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// A receipt is a promise, and an identity has one. These functions keep it so when a content is lost after registration,
// by a damaged disk or by somebody's hand:
//
//   - The first registration fixes the receipt, the facts, the parent and the place in the list. None of them changes
//     any more but for a server ID that was unknown; neither a loss nor a second delivery makes another receipt or another
//     place.
//   - While the content is not there, nothing pretends that it is: the attachment is not listed, its registration is not
//     repeated, and a reservation opens the next generation, in state reserved and with the receipt kept aside.
//   - When the bytes are back and verified, a registration with the same parent brings the state registered and the very
//     same receipt back. So does an operator's reading that finds the content sound.

// newAttachment is the record of an ID that is seen for the first time. It needs bytes until decided otherwise.
func newAttachment(r Reservation) Attachment {
	return Attachment{
		Account: r.By.Account, ID: r.ID, Facts: r.Facts, State: wire.StateReserved,
		Device: r.By.Device, Holder: r.By.Device, HeldSince: r.Now, ReservedAt: r.Now,
	}
}

// newMedia is the media item for a content that the account has not seen. The proposed ID becomes the canonical one if
// it is a UUID that no other item has.
func newMedia(account string, f wire.Reserve, fresh string, proposedTaken bool) Media {
	m := Media{ID: fresh, Account: account, SHA256: f.SHA256, Length: f.Length, State: MediaPending}
	if IsUUID(f.ProposedMediaID) && !proposedTaken {
		m.ID = f.ProposedMediaID
	}
	return m
}

// replay checks a repeated reservation against the record and takes over what it may change. Length, digest and role
// are the identity; every other fact follows the device until registration.
func (a *Attachment) replay(r Reservation) error {
	if !sameIdentity(a.Facts, r.Facts) {
		return fmt.Errorf("reserve %s: %w", a.ID, ErrConflict)
	}
	if a.Receipt != nil {
		// A client that creates an upload registers by it; a device is told when it registers.
		if named := r.Facts.Parent.LocalID; r.Create && named != "" && named != a.Receipt.Parent.LocalID {
			return fmt.Errorf("create %s: %w", a.ID, ErrParent)
		}
		return nil
	}
	known := a.Facts
	a.Facts = r.Facts
	if r.Facts.Length == UnknownLength {
		a.Facts.Length = known.Length
	}
	if r.Facts.SHA256 == "" {
		a.Facts.SHA256 = known.SHA256
	}
	a.hold(r.By.Device, r.Now)
	return nil
}

// sameIdentity reports whether two declarations can be of the same bytes. What one of them does not know is no
// contradiction; where no digest stands against another, name and type must be the same too.
func sameIdentity(a, b wire.Reserve) bool {
	if a.Role != b.Role || a.Length != b.Length && a.Length != UnknownLength && b.Length != UnknownLength {
		return false
	}
	if a.SHA256 == "" || b.SHA256 == "" {
		return a.Filename == b.Filename && a.MediaType == b.MediaType
	}
	return a.SHA256 == b.SHA256
}

// hold notes the device that acts for the attachment from now on.
func (a *Attachment) hold(device string, now time.Time) {
	if a.Holder != device {
		a.Holder, a.HeldSince = device, now
	}
}

// reopen says what a reservation does to the attachment's bytes. open is the current session if it still takes bytes;
// media is the item of the declared content. It returns true where a new session must be opened; Generation counts it
// already. A look at the content from before the transaction takes nothing from an attachment that came further since, and
// gives nothing to one that was thrown back since.
func (a *Attachment) reopen(open *Session, r Reservation, media Media) bool {
	since := r.Seen != "" && r.Seen != a.State
	switch {
	case a.State != wire.StateReserved && (r.Stored || since || r.Seen == ""):
		return false
	case a.State == wire.StateReserved && open != nil:
		return false
	case r.Stored && !since && media.matches(r.Facts):
		a.State, a.Session, a.Void = wire.StateVerified, "", ""
		a.Generation = max(a.Generation, 1)
		return false
	}
	a.State, a.Void = wire.StateReserved, ""
	a.Generation++
	return true
}

// audit follows what reading the content back showed and reports whether that changed the record.
func (a *Attachment) audit(sound bool) (changed bool) {
	switch {
	case sound && a.Receipt != nil && a.State != wire.StateRegistered:
		a.State, a.Void = wire.StateRegistered, ""
	case !sound && a.State != wire.StateReserved:
		a.State, a.Void = wire.StateReserved, VoidLost
	default:
		return false
	}
	return true
}

// idle reports whether the session may be ended at the time now to make room. One without a time is older than the
// record of it.
func (s Session) idle(now time.Time) bool { return now.Sub(s.AppendedAt) > IdleSession }

// matches reports whether the media item is a content that this server hashed and registered, of this length.
func (m Media) matches(f wire.Reserve) bool {
	return m.State == MediaReady && m.SHA256 == f.SHA256 && m.Length == f.Length
}

// register makes the receipt of a verified attachment, or completes the one it has. Changed tells whether the record
// must be written; fresh that the attachment was not registered before.
func (a *Attachment) register(r Registration, server string) (changed, fresh bool, err error) {
	if a.State == wire.StateReserved {
		err := a.Void.Err()
		if err == nil || a.Receipt != nil && errors.Is(err, ErrGone) {
			err = ErrNotVerified
		}
		return false, false, fmt.Errorf("register %s: %w", a.ID, err)
	}
	if a.Receipt != nil {
		if changed, err = completeParent(&a.Receipt.Parent, r.Parent); err != nil {
			return false, false, err
		}
		changed = changed || a.State != wire.StateRegistered
		a.State = wire.StateRegistered
		return changed, false, nil
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
