package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/server"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/store"
)

// runDegraded keeps the service up beside a queue that cannot be used: it takes nothing, sends nothing, changes nothing,
// and says so to whoever asks.
func runDegraded(ctx context.Context, opts Options, acc account, cause error) error {
	listener, err := listen(opts)
	if err != nil {
		return err
	}
	d := &degraded{opts: opts, acc: acc, cause: cause, started: time.Now().UTC()}
	opts.Notify("READY=1\nSTATUS=degraded: the queue cannot be used; nothing is taken and nothing is sent")
	opts.Logger.Warn("degraded", slog.String(logging.KeyPath, acc.dir))
	return server.New(d, server.Options{Logger: opts.Logger}).Run(ctx, listener)
}

// degraded answers the control API while there is no queue.
type degraded struct {
	opts    Options
	acc     account
	cause   error
	started time.Time
}

// Status says what is damaged.
func (d *degraded) Status(context.Context) (control.Status, error) {
	why := attachment.Printable(d.cause.Error())
	s := control.Status{
		Device: d.acc.device, Account: d.acc.name, Version: buildinfo.String(), StartedAt: d.started,
		Configured: d.opts.Config.Uplink.Configured(), Degraded: &why,
		Capture:  control.Capture{Blocked: control.Why(attachment.NotTakenQueue, "", d.started)},
		Problems: []control.Problem{{Code: string(attachment.NotTakenQueue), Severity: control.SeverityError, Message: why}},
	}
	if errors.Is(d.cause, store.ErrNewerSchema) { // nothing is broken, and a rebuild would lose what only the newer one knows
		s.Problems[0].Action = "Install the newer version of fieldgw again."
	}
	s.Storage.State = control.StorageUnknown
	return s, nil
}

func (d *degraded) refuse() error {
	return control.Refuse(control.CodeQueueUnavailable, attachment.Printable(d.cause.Error()))
}

// List refuses, as does everything that needs the queue.
func (d *degraded) List(context.Context, control.ListQuery) (p control.Page[control.Item], err error) {
	return p, d.refuse()
}

// Get refuses.
func (d *degraded) Get(context.Context, attachment.ID) (i control.ItemDetail, err error) {
	return i, d.refuse()
}

// Resolve refuses.
func (d *degraded) Resolve(context.Context, string) ([]attachment.ID, error) { return nil, d.refuse() }

// NotTaken refuses.
func (d *degraded) NotTaken(context.Context, string, int) (p control.Page[control.NotTaken], err error) {
	return p, d.refuse()
}

// Records refuses.
func (d *degraded) Records(context.Context, control.RecordQuery) (p control.Page[control.Record], err error) {
	return p, d.refuse()
}

// Retry refuses.
func (d *degraded) Retry(context.Context, server.Caller, control.Action) (o control.Outcome, err error) {
	return o, d.refuse()
}

// Prioritize refuses.
func (d *degraded) Prioritize(context.Context, server.Caller, control.Action) (o control.Outcome, err error) {
	return o, d.refuse()
}

// Pause refuses.
func (d *degraded) Pause(context.Context, server.Caller, control.Action) (o control.Outcome, err error) {
	return o, d.refuse()
}

// Resume refuses.
func (d *degraded) Resume(context.Context, server.Caller, control.Action) (o control.Outcome, err error) {
	return o, d.refuse()
}

// PauseChannel refuses.
func (d *degraded) PauseChannel(context.Context, server.Caller, control.ChannelAction) (r control.ActionResult, err error) {
	return r, d.refuse()
}

// ResumeChannel refuses.
func (d *degraded) ResumeChannel(context.Context, server.Caller, control.ChannelAction) (r control.ActionResult, err error) {
	return r, d.refuse()
}

// Submit refuses: nothing was taken.
func (d *degraded) Submit(context.Context, server.Caller, control.Submission, func() (io.Reader, error)) (r control.SubmissionResult, err error) {
	return r, fmt.Errorf("submit: %w", d.refuse())
}

// Check refuses: the daemon is stopped for a rebuild, and fieldgwd check looks then.
func (d *degraded) Check(context.Context, server.Caller, control.CheckRequest) (r control.CheckReport, err error) {
	return r, d.refuse()
}

// Subscribe returns a channel on which nothing happens.
func (d *degraded) Subscribe(ctx context.Context) <-chan control.Transition {
	events := make(chan control.Transition)
	context.AfterFunc(ctx, func() { close(events) })
	return events
}
