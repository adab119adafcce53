package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/uplink"
)

// acceptedBy is who lets a receipt of a lower grade count: whoever wrote the configuration.
const acceptedBy = "uplink.accept_grade"

// keepReceipt makes a checked receipt durable as a file (R1), records what it is worth (R2), and, where that is delivery, moves
// the payload to the delivered copies (R3). A failure of R3 is finished at the next start.
func (d *dispatcher) keepReceipt(ctx context.Context, rec receipt.Receipt) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	id := attachment.ID(rec.AttachmentID)
	if err := d.spool.WriteReceipt(id, data); err != nil {
		return err
	}
	switch {
	case rec.Grade.Delivered():
		err = d.queue.Registered(ctx, rec)
	case d.accepts(rec.Grade):
		err = d.queue.Accepted(ctx, rec, acceptedBy)
	default:
		return d.queue.Sent(ctx, rec)
	}
	if err != nil {
		return err
	}
	if err := d.spool.Deliver(id); err != nil {
		d.log.Error("a delivered payload could not be moved; the next start finishes it",
			slog.String(logging.KeyAttachment, rec.AttachmentID), slog.Any(logging.KeyErr, err))
	}
	return nil
}

// accepts reports whether a receipt that is not delivery counts as one here.
func (d *dispatcher) accepts(g receipt.Grade) bool {
	return g.Acceptable() && d.accept == config.AcceptVerifiedDigest
}

// acceptPage is how many sent attachments are looked at before the next page is read.
const acceptPage = 256

// acceptSent lets what was sent count as delivered where the configuration says so since, by the receipts that were recorded.
// It is part of the start: nobody works on these attachments.
func (s *session) acceptSent(ctx context.Context) error {
	if s.cfg.Uplink.AcceptGrade == config.AcceptRegistered {
		return nil
	}
	for _, shown := range []attachment.Condition{attachment.ShownSent, attachment.ShownPaused} {
		for cursor := ""; ; {
			ids, next, err := s.queue.IDs(shown, cursor, acceptPage)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := s.acceptOne(ctx, id); err != nil {
					s.log.Error("a receipt cannot be accepted now; the next start tries again",
						slog.String(logging.KeyAttachment, string(id)), slog.Any(logging.KeyErr, err))
				}
			}
			if cursor = next; next == "" {
				break
			}
		}
	}
	return nil
}

func (s *session) acceptOne(ctx context.Context, id attachment.ID) error {
	e, err := s.queue.Get(id)
	if err != nil || e.Manifest == nil || !e.Manifest.Sent() || !s.dispatcher.accepts(receipt.Grade(e.Manifest.Delivery.Grade)) {
		return err
	}
	m := e.Manifest
	r, err := s.queue.Receipt(id)
	if err == nil && r == nil {
		err = fmt.Errorf("receipt of %s: %w", id, receipt.ErrMismatch)
	}
	if err == nil {
		err = receipt.Check(*r, receipt.Facts{
			AttachmentID: string(m.ID), Length: m.Length, SHA256: m.SHA256.String(), Parent: uplink.ParentOf(m),
		})
	}
	if err != nil {
		return err
	}
	return s.dispatcher.keepReceipt(ctx, *r)
}
