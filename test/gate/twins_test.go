package gate

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/test/rig"
)

// Two daemons on two copies of one state directory, at once on one server, as after a card was copied and both tablets were
// switched on: every attachment has one identity, one content and one receipt, and both daemons show the same receipt. Each
// is killed once on the way. Two workers with one attachment ID meet in TestConcurrentDelivery of internal/server.
func TestTwoDaemonsOneIdentity(t *testing.T) {
	for _, when := range []string{"before the first byte", "in mid-transfer"} {
		t.Run(when, func(t *testing.T) {
			one := newRig(t, rig.Options{Retry: "200ms-400ms", Uplink: fmt.Sprintf("chunk_size = \"%dKiB\"", chunk>>10)})
			one.Link.Cut()
			must(t, "start", one.StartDaemon(t.Context()))
			want := capture(t, one)
			inCustody(t, one, len(want))
			if when == "in mid-transfer" {
				// The copies agree on a session and on a confirmed offset that is soon passed by the other.
				one.Link.SetRate(1 << 20)
				one.Link.Restore()
				must(t, "first acknowledgement", rig.Until(t.Context(), patience, "first acknowledgement", func() (bool, error) {
					return undelivered(t, one) > 0, nil
				}))
			}
			must(t, "stop", one.StopDaemon())
			one.Link.Cut()
			two, err := one.Twin(t.Context(), shortDir(t))
			must(t, "copy the state directory", err)
			closeAfter(t, two)

			one.Link.SetRate(2 << 20) // long enough for the two to meet
			must(t, "start", one.StartDaemon(t.Context()))
			must(t, "start the twin", two.StartDaemon(t.Context()))
			one.Link.Restore()
			for _, r := range []*rig.Rig{one, two} {
				before := one.Link.BytesUp()
				must(t, "bytes on their way", rig.Until(t.Context(), patience, "bytes on their way", func() (bool, error) {
					return one.Link.BytesUp()-before > 3*chunk || everythingDelivered(t, one, two, len(want)), nil
				}))
				must(t, "kill", r.KillDaemon())
				must(t, "restart", r.StartDaemon(t.Context()))
			}
			must(t, "deliver", rig.Until(t.Context(), patience, "everything delivered by both", func() (bool, error) {
				return everythingDelivered(t, one, two, len(want)), nil
			}))
			oneIdentity(t, one, two, want)
		})
	}
}

func inCustody(t *testing.T, r *rig.Rig, n int) {
	t.Helper()
	must(t, "custody", rig.Until(t.Context(), patience, "custody of all", func() (bool, error) {
		items, err := r.Truth(t.Context())
		return len(items) == n, err
	}))
}

// undelivered is how many bytes the server has confirmed to a device that are not delivered yet.
func undelivered(t *testing.T, r *rig.Rig) (n int64) {
	t.Helper()
	items, err := r.Truth(t.Context())
	must(t, "truth", err)
	for _, i := range items {
		if i.Condition != attachment.ShownDelivered && i.ConfirmedBytes != nil {
			n += *i.ConfirmedBytes
		}
	}
	return n
}

// everythingDelivered looks at both devices; no look may be untrue, and no item may need a person.
func everythingDelivered(t *testing.T, one, two *rig.Rig, n int) bool {
	t.Helper()
	delivered := 0
	for _, r := range []*rig.Rig{one, two} {
		items, err := r.Truth(t.Context())
		must(t, "truth", err)
		delivered += rig.Delivered(items)
		for _, i := range items {
			if i.Condition == attachment.ShownAttention {
				t.Fatalf("%s needs a person: %+v", i.Filename.Exact(), i.Waiting)
			}
		}
	}
	return delivered == 2*n
}

// oneIdentity checks the end: the server has each attachment once, and both devices the receipt that it gave.
func oneIdentity(t *testing.T, one, two *rig.Rig, want map[string]string) {
	t.Helper()
	ctx := t.Context()
	registered, err := one.Registered(ctx)
	must(t, "ask the server", err)
	media := map[string]bool{}
	for _, r := range []*rig.Rig{one, two} {
		must(t, "verify", r.Verify(ctx, record, want))
		items, err := r.Items(ctx)
		must(t, "list", err)
		for _, i := range items {
			var d control.ItemDetail
			must(t, "show", r.CtlJSON(ctx, &d, "show", string(i.ID)))
			a := registered[string(i.ID)]
			if d.Receipt == nil || d.Receipt.MediaID != a.Receipt.MediaID || !d.Receipt.RegisteredAt.Equal(a.Receipt.RegisteredAt) {
				t.Errorf("%s: the device has receipt %+v, the server %+v", i.Filename.Exact(), d.Receipt, a.Receipt)
			}
			if a.Generation != 1 {
				t.Errorf("%s took %d upload sessions", i.Filename.Exact(), a.Generation)
			}
			media[a.Receipt.MediaID] = true
		}
		if stdout, _, code, err := r.Ctl(ctx, "check", "--deep"); err != nil || code != 0 {
			t.Errorf("fieldgwctl check: exit %d, %v\n%s", code, err, stdout)
		}
		must(t, "check", errors.Join(r.StopDaemon(), r.CheckStopped(ctx)))
	}
	if len(media) != len(want) {
		t.Errorf("%d media items of %d contents", len(media), len(want))
	}
	t.Logf("%d attachments on two devices, %d contents, %.1f MiB sent", len(registered), len(media), float64(one.Link.BytesUp())/(1<<20))
}
