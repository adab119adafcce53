package rig

import (
	"context"
	"errors"
	"fmt"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
)

// ErrUntrue is returned when what the device shows, what the server has and what was captured do not agree. Every other
// error means that somebody could not be asked.
var ErrUntrue = errors.New("not as shown")

// Truth compares what fieldgwctl shows now with what the server really has: nothing may show as delivered that the server
// has not registered with the same length and digest. It returns what is shown. The device is asked first: a delivery that
// happens in between is no lie.
func (r *Rig) Truth(ctx context.Context) ([]control.Item, error) {
	items, err := r.Items(ctx)
	if err != nil {
		return nil, err
	}
	return items, r.Compare(ctx, items)
}

// Compare is Truth for what was shown a moment ago.
func (r *Rig) Compare(ctx context.Context, items []control.Item) error {
	registered, err := r.Registered(ctx)
	if err != nil {
		return err
	}
	for _, i := range items {
		if i.Condition != attachment.ShownDelivered {
			continue
		}
		a, ok := registered[string(i.ID)]
		switch {
		case !ok:
			return fmt.Errorf("%w: %s shows as delivered and the server has no receipt for it", ErrUntrue, i.ID)
		case a.Receipt.Length != i.Length || a.Receipt.SHA256 != i.SHA256.String():
			return fmt.Errorf("%w: %s shows as delivered and the receipt speaks of %d bytes, %s", ErrUntrue, i.ID, a.Receipt.Length, a.Receipt.SHA256)
		}
	}
	return nil
}

// Delivered counts the delivered items.
func Delivered(items []control.Item) (n int) {
	for _, i := range items {
		if i.Condition == attachment.ShownDelivered {
			n++
		}
	}
	return n
}

// Verify checks the end: exactly the wanted digests are delivered, once each; the server registered exactly these
// attachments, bound to the parent; and what it stored, downloaded again, has the digests of the sources.
func (r *Rig) Verify(ctx context.Context, parent string, want map[string]string) error {
	items, err := r.Truth(ctx)
	if err != nil {
		return err
	}
	registered, err := r.Registered(ctx)
	if err != nil {
		return err
	}
	if len(items) != len(want) || len(registered) != len(want) {
		return fmt.Errorf("%w: %d attachments on the device and %d on the server, want %d", ErrUntrue, len(items), len(registered), len(want))
	}
	left := map[string]string{}
	for name, digest := range want {
		left[name] = digest
	}
	for _, i := range items {
		name := i.Filename.Exact()
		if i.Condition != attachment.ShownDelivered {
			return fmt.Errorf("%w: %s is %s", ErrUntrue, name, i.Condition)
		}
		stored, err := r.ContentDigest(ctx, string(i.ID))
		if err != nil {
			return err
		}
		if stored != left[name] || stored != i.SHA256.String() {
			return fmt.Errorf("%w: %s: the server stored %s, the source was %q", ErrUntrue, name, stored, left[name])
		}
		if got := registered[string(i.ID)].Receipt.Parent.LocalID; got != parent {
			return fmt.Errorf("%w: %s is bound to %q, want %q", ErrUntrue, name, got, parent)
		}
		delete(left, name)
	}
	return nil
}
