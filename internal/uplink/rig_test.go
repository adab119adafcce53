package uplink_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

const chunk = 64 << 10 // bytes, in the tests of this package

// delivery is a device's side of one attachment, over several calls of Deliver.
type delivery struct {
	rig     *uplinktest.Rig
	up      *uplink.Uplink
	m       *attachment.Manifest
	content []byte
	payload *uplinktest.Payload
	gate    *uplinktest.Gate
	rec     *uplinktest.Recorder
}

func newDelivery(t testing.TB, rig *uplinktest.Rig, content []byte) *delivery {
	t.Helper()
	m := uplinktest.NewManifest(t, content)
	return &delivery{
		rig: rig, up: rig.Uplink(t, chunk), m: m, content: content, payload: uplinktest.NewPayload(t, content),
		gate: &uplinktest.Gate{}, rec: uplinktest.NewRecorder(m),
	}
}

// deliver runs Deliver from what is recorded, and demands that nothing happened that must not.
func (d *delivery) deliver(ctx context.Context, t testing.TB) error {
	t.Helper()
	m, confirmed := d.rec.Manifest(d.m)
	err := d.up.Deliver(ctx, m, confirmed, d.payload, d.gate, d.rec)
	for _, broken := range uplinktest.Broken(d.rec, d.payload) {
		t.Error(broken)
	}
	return err
}

func (d *delivery) mustDeliver(t testing.TB) {
	t.Helper()
	if err := d.deliver(t.Context(), t); err != nil {
		t.Fatalf("deliver: %v", err)
	}
	d.mustBeDelivered(t)
}

func (d *delivery) mustBeDelivered(t testing.TB) {
	t.Helper()
	seen := d.rec.Seen()
	if seen.Receipt == nil || seen.Receipt.AttachmentID != string(d.m.ID) || !d.rig.Server.Registered(string(d.m.ID)) {
		t.Fatalf("not registered: %+v", seen)
	}
	if stored := d.rig.Server.Stored(string(d.m.ID)); stored != nil && !bytes.Equal(stored, d.content) {
		t.Fatal("the server stored other bytes")
	}
}

// mustFail runs Deliver and returns its judged error.
func (d *delivery) mustFail(t testing.TB) *remote.Error {
	t.Helper()
	err := d.deliver(t.Context(), t)
	e, ok := errors.AsType[*remote.Error](err)
	if !ok {
		t.Fatalf("got %v, want a judged error", err)
	}
	if seen := d.rec.Seen(); seen.Receipt != nil {
		t.Fatalf("failed with %v and registered: %+v", err, seen)
	}
	return e
}
