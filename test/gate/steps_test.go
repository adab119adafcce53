package gate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/test/rig"
)

// captureUntilShutdown drops the first two files, submits the other two, and ends the daemon at the cell's moment. It
// returns what was in custody right before.
func (p *play) captureUntilShutdown() (secured []control.Item) {
	manifest := 2 + p.rnd.IntN(len(files)-1) // the first file is waited for
	if p.is(momentManifest) {
		p.armManifest(manifest)
	}
	dir := filepath.Join(p.Capture(), record)
	p.must("make capture directory", os.MkdirAll(dir, 0o755))
	copyFile(p.t, files[0].Path, filepath.Join(dir, files[0].Name))
	secured = p.untilSecured(1)
	copyFile(p.t, files[1].Path, filepath.Join(dir, files[1].Name))
	if p.is(momentManifest) {
		if manifest > 2 {
			secured = p.untilSecured(2)
		}
		p.shutDownInManifest(manifest)
		return secured
	}
	if p.is(momentAfter) {
		p.Link.CutAfter(1000 + p.rnd.Int64N(chunk-1000)) // less than a chunk: nothing is acknowledged
	}
	p.must("submit", p.submit(p.t.Context(), submissionID, files[2:]))
	submitted := time.Now()
	secured = p.untilSecured(len(files))
	p.stepClock()
	if p.is(momentPayload) {
		p.shutDownInPayload()
		return secured
	}
	span := 2 * time.Second
	if *matrix == "full" {
		span = 14 * time.Second
	}
	moment := time.Second + time.Duration(p.rnd.Int64N(int64(span)))
	<-time.After(time.Until(submitted.Add(moment)))
	p.early = rig.Delivered(p.items())
	p.shutDown(moment.Round(10*time.Millisecond).String() + " after submit")
	return secured
}

// untilSecured waits until so many are in custody, and returns them.
func (p *play) untilSecured(n int) (items []control.Item) {
	p.t.Helper()
	p.until(fmt.Sprintf("custody of %d", n), func() (bool, error) {
		items = p.items()
		return len(items) == n, nil
	})
	return items
}

// shutDownInManifest ends the daemon when the n-th manifest is written and not in its place: the second is that of a file
// which is being moved, the others are those of the submission.
func (p *play) shutDownInManifest(n int) {
	answer := make(chan error, 1)
	go func() {
		var err error
		if n > 2 {
			err = p.submit(p.t.Context(), submissionID, files[2:])
		}
		answer <- err
	}()
	p.until("the manifest", func() (bool, error) {
		if p.graceful {
			return p.traceHas(fmt.Sprintf("point %s %d", tracePoint, n), "")
		}
		return !p.Daemon().Running(), nil
	})
	p.shutDown(fmt.Sprintf("in manifest %d", n))
	if err := <-answer; err != nil {
		p.story += ", submission unanswered"
	}
	if p.graceful {
		return
	}
	inManifest, err := p.traceHas("kill ", ".manifest")
	p.must("read trace", err)
	if !inManifest {
		p.t.Error("the daemon did not die in the write of a manifest")
	}
}

// shutDownInPayload opens a slow link, and the daemon ends when bytes of payloads are on their way and no chunk is whole.
func (p *play) shutDownInPayload() {
	most := 24<<10 + p.rnd.Int64N(64<<10) // handshakes and reserves of four workers are less
	before := p.Link.BytesUp()
	p.Link.SetRate(slow)
	p.Link.Restore()
	p.until("payload on its way", func() (bool, error) { return p.Link.BytesUp()-before > most, nil })
	p.early = rig.Delivered(p.items())
	p.shutDown(fmt.Sprintf("%d KiB of payload sent", (p.Link.BytesUp()-before)>>10))
}

// shutDown ends the daemon, and the link stays cut.
func (p *play) shutDown(moment string) {
	name, end := "SIGKILL", p.KillDaemon
	if p.graceful {
		name, end = "SIGTERM", p.StopDaemon
	}
	p.story = name + " " + moment
	p.must("shut down", end())
	p.Link.Cut()
}

// stepClock sets the device's clock wrong, once.
func (p *play) stepClock() {
	wrong := time.Duration(0)
	switch value := p.cell.of("clock"); value {
	case clockRight:
		return
	case clock1970:
		wrong = sinceEpoch()
	default:
		var err error
		wrong, err = time.ParseDuration(value)
		p.must("clock", err)
	}
	if !p.clockIsWrong {
		p.must("set clock", p.clock.set(wrong))
		p.clockIsWrong = true
	}
}

// restart starts the daemon on what the shutdown left, without a link.
func (p *play) restart() {
	if p.is(storageStop) {
		p.must("fill", p.volume.fill(belowStop))
	}
	p.stepClock()
	p.Env["fieldgwd"] = []string{clockVariable + "=" + string(p.clock)}
	p.must("restart", p.StartDaemon(p.t.Context()))
}

// discover checks what the restarted daemon shows: everything that was secured, as it was, and nothing as delivered.
func (p *play) discover(secured []control.Item) {
	items := p.items()
	shown := map[attachment.ID]control.Item{}
	for _, i := range items {
		shown[i.ID] = i
	}
	for _, was := range secured {
		if is, ok := shown[was.ID]; !ok || is.SHA256 != was.SHA256 || is.LocalCopy != control.CopySpool {
			p.t.Errorf("%s was secured; after the restart: %+v", was.Filename.Exact(), is)
		}
	}
	p.secured = len(items)
	if p.early += rig.Delivered(items); p.early > 0 {
		p.t.Errorf("%d shown as delivered with nothing acknowledged", p.early)
	}
	p.story += fmt.Sprintf(" | %d secured, %d shown delivered", p.secured, p.early)
	if p.is(clock1970) {
		s, err := p.client.Status(p.t.Context())
		p.must("status", err)
		if len(s.Problems) == 0 || s.Problems[0].Code != "clock_untrusted" {
			p.t.Errorf("nobody is told of the clock: %+v", s.Problems)
		}
	}
}

// refuseCapture: below the reserve nothing new is taken.
func (p *play) refuseCapture() {
	p.storageIs(control.StorageBlocked)
	err := p.submit(p.t.Context(), refusedID, files[2:3])
	var refused *control.Error
	if !errors.As(err, &refused) || refused.Code != control.CodeStorageFull {
		p.t.Errorf("a submission without room: %v", err)
	}
}

// takeRest brings into custody what the shutdown kept out of it: the caller repeats its submission.
func (p *play) takeRest() {
	p.must("submit again", p.submit(p.t.Context(), submissionID, files[2:]))
	p.untilSecured(len(files))
}

// send opens the link until n attachments are delivered, with what the cell puts in the way.
func (p *play) send(n int) {
	if p.is(parentBefore) && !p.parentKnown {
		last := p.lastSecured()
		content, err := contentOf(last.Filename.Exact())
		p.must("read", err)
		p.must("parent at the server", p.office.deliver(p.t.Context(), last, content))
		p.parentKnown = true
	}
	if p.is(clock1970) && p.clockIsWrong {
		p.showWrongClock()
	}
	registered, err := p.Registered(p.t.Context())
	p.must("ask the server", err)
	if p.is(tokenExpires) && !p.renewed && len(registered) < n {
		p.expireToken()
	}
	p.Link.SetRate(fast)
	p.Link.Restore()
	p.until("delivery", func() (bool, error) { return rig.Delivered(p.items()) == n, nil })
}

// showWrongClock: to a clock in 1970 no certificate is valid yet. Sending waits and says why, until the clock is set.
func (p *play) showWrongClock() {
	before := rig.Delivered(p.items())
	p.Link.SetRate(fast)
	p.Link.Restore()
	p.held(attachment.HoldTLS)
	if n := rig.Delivered(p.items()); n != before {
		p.t.Errorf("%d delivered over a certificate that the clock forbids", n-before)
	}
	p.Link.Cut()
	p.must("set clock", p.clock.set(0))
	p.clockIsWrong = false
}

// held waits until all sending is held for a reason.
func (p *play) held(reason attachment.Code) {
	p.t.Helper()
	p.until("sending held: "+string(reason), func() (bool, error) {
		s, err := p.client.Status(p.t.Context())
		return s.Sending.Channel != nil && s.Sending.Channel.Reason == reason, err
	})
}

// expireToken lets the token expire while a payload is on its way, and replaces it when that is shown.
func (p *play) expireToken() {
	p.Link.SetRate(slow)
	p.Link.Restore()
	p.until("first acknowledgement", func() (bool, error) {
		for _, i := range p.items() {
			if i.Condition != attachment.ShownDelivered && i.ConfirmedBytes != nil && *i.ConfirmedBytes > 0 {
				return true, nil
			}
		}
		return false, nil
	})
	p.Link.SetRate(slow / 3) // what is left takes longer than the token lives
	expires := time.Now().Add(2 * time.Second)
	p.must("token that expires", p.NewToken(p.t.Context(), "tablet", p.Credential, expires))
	p.until("the token's end", func() (bool, error) { return time.Now().After(expires), nil })
	p.Link.Cut() // an append that has begun is not asked for its token again
	p.Link.Restore()
	p.held(attachment.HoldCredentials)
	p.Link.SetRate(fast) // for what workers still have on the way
	left := 0
	p.until("every file waits for a token", func() (bool, error) {
		left = 0
		idle := true
		for _, i := range p.items() {
			if i.Condition == attachment.ShownDelivered {
				continue
			}
			left++
			idle = idle && i.Condition == attachment.ShownAttention && i.Waiting != nil && i.Waiting.Reason == attachment.HoldCredentials
		}
		return idle, nil
	})
	if left == 0 {
		p.t.Error("everything was delivered before the token expired")
	}
	p.must("renew token", p.NewToken(p.t.Context(), "tablet", p.Credential, time.Time{}))
	p.renewed = true
	p.story += fmt.Sprintf(", token renewed with %d to go", left)
}

// checkEnd: everything is delivered once, with the bytes and the parent that it was captured with, by one session each and
// without a failure charged; and neither the running nor the stopped daemon finds anything broken.
func (p *play) checkEnd() {
	ctx := p.t.Context()
	p.must("verify", p.Verify(ctx, record, p.want))
	registered, err := p.Registered(ctx)
	p.must("ask the server", err)
	completed := 0
	for _, i := range p.details() {
		a := registered[string(i.ID)]
		if a.Receipt.Parent.ServerID == serverID {
			completed++
		}
		if a.Generation != 1 {
			p.t.Errorf("%s took %d upload sessions", i.Filename.Exact(), a.Generation)
		}
		if i.Failures > 0 {
			p.t.Errorf("%s was charged with %d failures", i.Filename.Exact(), i.Failures)
		}
		for _, row := range i.Journal {
			if row.Event == attachment.EventFailed {
				p.t.Errorf("%s was charged: %+v", i.Filename.Exact(), row)
			}
		}
	}
	if completed != 1 {
		p.t.Errorf("%d receipts have the parent's server ID, want the one that it came with", completed)
	}
	p.delivered = len(registered)
	stdout, stderr, code, err := p.Ctl(ctx, "check", "--deep")
	if err != nil || code != 0 {
		p.t.Errorf("fieldgwctl check: exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
	p.must("stop", p.StopDaemon())
	p.must("check", p.CheckStopped(ctx))
}
