package upload

import (
	"context"
	"errors"
	"log/slog"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Register verifies what is still to be verified, makes sure of the content, and records the registration. A receipt that is
// given anew rests on bytes that this process has read. Where one exists and its content is lost, the device is told that
// bytes are missing, and the same receipt comes back with them. Errors: those of Verify and store.ErrParent.
func (e *Engine) Register(ctx context.Context, who store.Identity, id string, parent receipt.Parent) (receipt.Receipt, error) {
	a, err := e.Verify(ctx, who.Account, id)
	if err == nil && a.State == wire.StateVerified {
		var sound bool
		if sound, err = e.Sound(a.Account, a.Facts.SHA256, a.Facts.Length); err == nil && !sound {
			err = store.ErrGone
		}
	}
	if errors.Is(err, store.ErrGone) && a.Receipt != nil {
		err = store.ErrNotVerified
	}
	if err != nil {
		return receipt.Receipt{}, err
	}
	rec, fresh, err := e.store.Register(ctx, store.Registration{By: who, ID: id, Parent: parent, Now: e.now()})
	if err == nil && fresh {
		e.registered(who, rec)
	}
	return rec, err
}

func (e *Engine) registered(who store.Identity, rec receipt.Receipt) {
	e.log.Info("attachment registered", attachmentAttrs(who.Account, rec.AttachmentID, slog.String(logging.KeyDevice, who.Device),
		slog.Int64(logging.KeyBytes, rec.Length), slog.String(logging.KeyParent, rec.Parent.LocalID))...)
}
