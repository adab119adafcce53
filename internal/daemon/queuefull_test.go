package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/client"
)

// A queue that may not grow any more takes no files, says why and what to do, and still has room to record the delivery of
// everything that it took.
func TestQueueFull(t *testing.T) {
	const files = 200
	d := newDevice(t)
	d.queueMax = 1 << 20
	ctx := context.Background()
	d.up()
	_, err := d.client.ActOnChannel(ctx, client.Pause, control.ChannelAction{})
	must(t, err)
	for i := range files {
		d.drop(fmt.Sprintf("insp-7/%03d.jpg", i), 100+i)
	}
	d.until("capture blocked", func() bool {
		b := d.status().Capture.Blocked
		return b != nil && b.Reason == attachment.NotTakenQueueFull && b.Detail != "" && b.Unblock[0].Action != ""
	})
	left := func() int {
		names, err := os.ReadDir(filepath.Join(d.dir, "capture", "insp-7"))
		must(t, err)
		return len(names)
	}
	var refused []control.NotTaken
	d.until("every other file is named", func() bool {
		page, err := d.client.NotTaken(ctx, "", files)
		must(t, err)
		refused = nil
		for _, n := range page.Items {
			if n.Waiting.Reason == attachment.NotTakenQueueFull {
				refused = append(refused, n)
			}
		}
		return len(refused) == left()
	})
	if s := d.status(); len(refused) == 0 || !s.NeedsAttention() {
		t.Errorf("%d files are refused, and nobody is told", len(refused))
	}
	sub := control.Submission{
		SubmissionID: uuid.NewString(), Files: []control.SubmissionFile{{Name: attachment.NameOf("s.pdf"), Length: 1}},
	}
	_, err = d.client.Submit(ctx, sub, func(int) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader([]byte("x"))), nil })
	var problem *control.Error
	if !errors.As(err, &problem) || problem.Code != control.CodeQueueFull {
		t.Errorf("submitted to a full queue: %v", err)
	}
	_, err = d.client.ActOnChannel(ctx, client.Resume, control.ChannelAction{})
	must(t, err)
	d.until("everything taken is delivered", func() bool {
		for _, c := range d.status().Counts {
			if c.Condition == attachment.ShownDelivered {
				return c.Items == int64(files-len(refused))
			}
		}
		return false
	})
	if n := left(); n != len(refused) {
		t.Errorf("%d files are left, %d were refused", n, len(refused))
	}
}
