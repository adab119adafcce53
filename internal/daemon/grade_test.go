package daemon

import (
	"context"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
)

// A receipt that is no delivery shows its file as sent and says what to do; the file stays in the spool, is not tried again by
// itself, and a restart changes nothing. A retry asks anew, and a better receipt then delivers.
func TestSentIsNotDelivered(t *testing.T) {
	for _, grade := range []receipt.Grade{receipt.VerifiedDigest, receipt.LengthOnly} {
		t.Run(string(grade), func(t *testing.T) {
			d := newDevice(t)
			d.server.SetGrade(grade)
			if grade == receipt.LengthOnly {
				d.uplink = "accept_grade = \"verified-digest\"\n" // which is more than a length
			}
			d.up()
			d.drop("a.jpg", 1000)
			d.sent("a.jpg")
			d.down()
			d.up()
			i := d.item("a.jpg")
			if i.Condition != attachment.ShownSent || reason(i.Waiting) != attachment.HoldGrade || i.Grade != grade ||
				i.LocalCopy != control.CopySpool || i.DeliveredAt != nil || len(i.Waiting.Unblock) == 0 {
				t.Errorf("%+v", i)
			}
			if s := d.status(); s.Sending.LastDelivery != nil {
				t.Errorf("delivered at %s", s.Sending.LastDelivery)
			}
			if n := d.server.Count(remote.StepRegister); n != 1 {
				t.Errorf("registered %d times", n)
			}
			d.server.SetGrade(receipt.Registered)
			out, err := d.client.Act(context.Background(), client.Retry, control.Action{IDs: []attachment.ID{i.ID}})
			if err != nil || out.Done != 1 {
				t.Fatalf("retry: %+v, %v", out, err)
			}
			d.delivered("a.jpg")
		})
	}
}

// What was sent is delivered from the next start on once a person lets its grade count, without a request; what comes later at
// once. The journal says by what.
func TestAcceptGrade(t *testing.T) {
	d := newDevice(t)
	d.server.SetGrade(receipt.VerifiedDigest)
	d.up()
	d.drop("a.jpg", 1000)
	d.sent("a.jpg")
	d.down()
	requests := len(d.server.Calls())
	d.uplink = "accept_grade = \"verified-digest\"\n"
	d.up()
	d.delivered("a.jpg")
	if n := len(d.server.Calls()); n != requests {
		t.Errorf("%d requests to accept a receipt", n-requests)
	}
	if i := d.item("a.jpg"); i.LocalCopy != control.CopyDelivered || i.Grade != receipt.VerifiedDigest {
		t.Errorf("%+v", i)
	}
	d.drop("b.jpg", 2000)
	d.delivered("b.jpg")
	for _, name := range []string{"a.jpg", "b.jpg"} {
		detail, err := d.client.Get(context.Background(), string(d.item(name).ID))
		must(t, err)
		last := detail.Journal[len(detail.Journal)-1]
		if last.Event != attachment.EventAccepted || last.By != acceptedBy || last.Detail != string(receipt.VerifiedDigest) {
			t.Errorf("%s: %+v", name, last)
		}
	}
	d.down()
	d.uplink = ""
	d.up()
	if i := d.item("a.jpg"); i.Condition != attachment.ShownDelivered {
		t.Errorf("the setting is gone, and it is %s", i.Condition)
	}
}

// sent waits until files are shown as sent.
func (d *device) sent(names ...string) {
	d.t.Helper()
	for _, name := range names {
		d.until(name+" sent", func() bool { return d.item(name).Condition == attachment.ShownSent })
	}
}
