// Package foreign holds what the drivers share whose servers know no registration: the receipt, which the device then writes
// itself. Its grade says on what evidence it rests, and no such receipt claims that anything is durable.
package foreign

import (
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// Receipt is what a verdict is worth: a digest over the stored bytes, or their length alone. mediaID names the content at
// the server, server names what answered, and at is when it did; all must be such that receipt.Check takes them.
func Receipt(m *attachment.Manifest, mediaID, server string, v uplink.Verdict, at time.Time) receipt.Receipt {
	r := receipt.Receipt{
		AttachmentID: string(m.ID), MediaID: mediaID, Parent: uplink.ParentOf(m), Length: v.Length, SHA256: v.SHA256,
		Grade: receipt.VerifiedDigest, RegisteredAt: at.UTC(), Server: server,
	}
	if v.SHA256 == "" {
		// What was sent, not what was found: the grade says so.
		r.SHA256, r.Grade = m.SHA256.String(), receipt.LengthOnly
	}
	return r
}
