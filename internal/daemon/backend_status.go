package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/buildinfo"
	"github.com/fieldgw/fieldgw/internal/clock"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/policy"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/watch"
)

// maxNotTaken is up to how many paths status counts.
const (
	maxNotTaken  = 10_000
	notTakenPage = 500
)

// Status answers from counters and the last readings; it walks no list.
func (s *session) Status(context.Context) (control.Status, error) {
	st := control.Status{
		Device: s.acc.device, Account: s.acc.name, Version: buildinfo.String(), StartedAt: s.started,
		Configured: s.configured(),
	}
	st.Storage, st.Capture = s.storageStatus()
	stats := s.watch.Stats()
	st.Watches, st.Problems = watchStatus(stats), append(s.problems(), notWatched(stats)...)
	st.NotTaken = s.countNotTaken()
	var err error
	if st.Counts, err = s.counts(); err != nil {
		return st, err
	}
	if st.Sending, err = s.sendingStatus(); err != nil {
		return st, err
	}
	st.NextAttempt, err = s.nextAttempt(st.Sending.Channel)
	return st, err
}

func (s *session) countNotTaken() (n int) {
	for cursor := ""; n < maxNotTaken; {
		page, next := s.watch.NotTaken(notTakenPage, cursor)
		n += len(page)
		if cursor = next; next == "" {
			break
		}
	}
	return n
}

func (s *session) storageStatus() (control.Storage, control.Capture) {
	reading, hold, state, since := s.storage.snapshot()
	out := control.Storage{
		FreeBytes: int64(reading.FreeBytes), TotalBytes: int64(reading.TotalBytes),
		ReserveBytes: s.cfg.Storage.Reserve.Bytes(), WarnBytes: s.cfg.Storage.WarnFree.Bytes(),
	}
	switch state {
	case policy.StorageOK:
		out.State = control.StorageOK
	case policy.StorageWarn:
		out.State = control.StorageWarn
	case policy.StorageReserve:
		out.State = control.StorageBlocked
	default:
		out.State = control.StorageUnknown
	}
	if hold == nil {
		hold, since = s.queueFull(), s.started
	}
	if hold == nil {
		return out, control.Capture{}
	}
	return out, control.Capture{Blocked: whyHold(hold, since)}
}

// whyHold makes the structure that people see of a hold.
func whyHold(h *policy.Hold, since time.Time) *control.Waiting {
	w := control.Why(h.Code, "", since)
	w.Rule, w.Detail = h.Rule, clause(h.Detail)
	return w
}

func watchStatus(stats watch.Stats) []control.WatchStatus {
	out := make([]control.WatchStatus, 0, len(stats.Roots))
	for _, r := range stats.Roots {
		w := control.WatchStatus{
			Name: r.Watch, Path: attachment.NameOf(r.Path), Available: r.Available, Reason: r.Reason, Polled: r.Polled,
			Directories: r.Dirs, NotWatched: r.NotWatched, Unchanged: r.Unchanged, FoundByRescan: r.FoundByRescan, Overflows: r.Overflows,
		}
		if !r.LastScan.IsZero() {
			at := r.LastScan.UTC()
			w.LastScan = &at
		}
		if r.Reason != "" {
			w.Message, w.Detail = attachment.Explain(r.Reason).Sentence, clause(r.Detail)
			since := r.Since.UTC()
			w.Since = &since
		}
		out = append(out, w)
	}
	return out
}

// notWatched tells of directories whose files are found late, with the limit to raise.
func notWatched(stats watch.Stats) (problems []control.Problem) {
	for _, r := range stats.Roots {
		text := ""
		switch {
		case r.NotWatched > 0:
			text = fmt.Sprintf("%d of %d directories give no events, new files in them are found by the next scan: %s.", r.NotWatched, r.Dirs, r.NotWatchedWhy)
		case r.Available && r.Reason == attachment.NotTakenNotWatched:
			text = fmt.Sprintf("there are no file events, new files are found by the next scan: %s.", r.Detail)
		default:
			continue
		}
		problems = append(problems, control.Problem{
			Code: string(attachment.NotTakenNotWatched), Severity: control.SeverityWarning, Message: "Watch " + r.Watch + ": " + text,
			Action: attachment.Explain(attachment.NotTakenNotWatched).Remedy,
		})
	}
	return problems
}

func (s *session) problems() []control.Problem {
	problems := []control.Problem{}
	if len(s.dispatcher.windows) > 0 && s.storage.short() {
		problems = append(problems, control.Problem{
			Code: "windows_lifted", Severity: control.SeverityWarning,
			Message: "Free space is below storage.warn_free: files are sent at any time, whatever uplink.windows says.",
			Action:  "Free space on the volume; then the windows count again.",
		})
	}
	if ok, reason := clock.Trusted(time.Now()); !ok {
		problems = append(problems, control.Problem{
			Code: "clock_untrusted", Severity: control.SeverityWarning, Message: "The clock cannot be right: " + reason + ".",
			Action: "Set the clock. Files are taken meanwhile; they are sent as soon as the server's certificate is valid by this clock.",
		})
	}
	if debts, err := otherDebts(s.opts.FS, s.cfg, s.acc.name); err == nil && len(debts) > 0 {
		problems = append(problems, control.Problem{
			Code: "other_account", Severity: control.SeverityError,
			Message: "Undelivered files of other accounts are kept on this device: " + strings.Join(debts, ", ") + ".",
			Action:  "Install the credential of that account; they are sent then.",
		})
	}
	if s.acc.name == unassigned {
		problems = append(problems, control.Problem{
			Code: "no_account", Severity: control.SeverityWarning,
			Message: "No credential was ever installed: captures are kept and belong to no account yet.",
			Action:  "Install the device's credential.",
		})
	}
	return problems
}

// counts reads the kept counters and adds the oldest of what waits. While there is no credential that the server accepts, what
// waits for the server needs a person and is counted so.
func (s *session) counts() ([]control.Count, error) {
	kept, err := s.queue.Counts()
	if err != nil {
		return nil, err
	}
	refused := s.credentialRefused()
	byShown := map[attachment.Condition]*control.Count{}
	for _, c := range attachment.Conditions() {
		n, ok := kept[c]
		if !ok {
			continue
		}
		shown := overlay(c, refused)
		count := byShown[shown]
		if count == nil {
			count = &control.Count{Condition: shown}
			byShown[shown] = count
		}
		count.Items += n.Items
		count.Bytes += n.Bytes
		if err := s.addOldest(count, c); err != nil {
			return nil, err
		}
	}
	out := []control.Count{}
	for _, c := range attachment.Conditions() {
		if byShown[c] != nil {
			out = append(out, *byShown[c])
		}
	}
	return out, nil
}

func (s *session) addOldest(count *control.Count, c attachment.Condition) error {
	if !c.Owed() {
		return nil
	}
	e, found, err := s.queue.Oldest(c)
	if err != nil || !found || e.Manifest == nil {
		return err
	}
	at := e.Manifest.AdoptedAt.UTC()
	if count.Oldest != nil && !at.Before(*count.Oldest) {
		return nil
	}
	count.Oldest, count.Waiting = &at, s.why(e)
	return nil
}

// overlay is the condition shown while the server refuses this device's credential: everything that waits for the server
// needs a person then. It derives; nothing is stored or charged.
func overlay(c attachment.Condition, refused bool) attachment.Condition {
	if refused && slices.Contains([]attachment.Condition{attachment.ShownWaiting, attachment.ShownUploading, attachment.ShownUploaded}, c) {
		return attachment.ShownAttention
	}
	return c
}

func (s *session) credentialRefused() bool { return aboutCredential(s.dispatcher.channel.State().Code) }

// aboutCredential reports whether a hold ends with another credential or certificate, the proxy's included.
func aboutCredential(c attachment.Code) bool {
	return slices.Contains([]attachment.Code{
		attachment.HoldCredentials, attachment.HoldCredentialUnusable, attachment.HoldCertificate, attachment.HoldProxy,
	}, c)
}

// clause is the end of an error's text, the cause, as one short line.
func clause(detail string) string {
	detail = attachment.Printable(detail)
	if i := strings.LastIndex(detail, ": "); i >= 0 && len(detail) > control.MaxDetail/2 {
		detail = detail[i+2:]
	}
	for len(detail) > control.MaxDetail {
		_, size := utf8.DecodeLastRuneInString(detail)
		detail = detail[:len(detail)-size]
	}
	return detail
}

func (s *session) sendingStatus() (control.Sending, error) {
	out := control.Sending{Paused: s.dispatcher.paused.Load(), Endpoint: s.cfg.Uplink.Endpoint, Channel: s.channelWaiting(false)}
	last, err := s.queue.LastDelivery()
	if !last.IsZero() {
		out.LastDelivery = &last
	}
	return out, err
}

// channelWaiting says why nothing is sent, or nothing that a person put to the front; nil while sending is possible. An outage is told from its first failure until
// the server answers again, also in the moment of the next attempt.
func (s *session) channelWaiting(atFront bool) *control.Waiting {
	state := s.dispatcher.channel.State()
	h := s.dispatcher.hold(time.Now(), atFront)
	switch {
	case h.OfWindow():
		w := whyHold(h, time.Time{})
		if !h.Until.IsZero() {
			next := h.Until.UTC().Round(0)
			w.NextAttempt = &next
		}
		return w
	case h != nil && h.Code != state.Code:
		w := whyHold(h, s.started)
		if d, found, err := s.queue.StandingDecision(queue.DecisionPauseChannel); err == nil && found && h.Code == attachment.HoldChannelPaused {
			w.Since, w.Detail = d.At, clause(strings.TrimSuffix("by "+d.By+": "+d.Reason, ": "))
		}
		return w
	case state.Code == "":
		if code := s.dispatcher.cannotRecord(); code != "" {
			return control.Why(code, "", time.Time{})
		}
		return nil
	}
	w := control.Why(state.Code, "", state.Since.UTC())
	w.Rule, w.Detail = "uplink.retry", clause(state.Detail)
	if state.Held(time.Now()) {
		next := state.NotBefore.UTC().Round(0)
		w.NextAttempt = &next
	}
	return w
}

func (s *session) nextAttempt(channel *control.Waiting) (*time.Time, error) {
	if channel != nil {
		return channel.NextAttempt, nil
	}
	next, err := s.queue.NextAttempt()
	if err != nil || next.IsZero() {
		return nil, err
	}
	return &next, nil
}
