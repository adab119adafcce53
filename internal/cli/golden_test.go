package cli

import (
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

// Everything delivered: one look says so.
func TestHealthy(t *testing.T) {
	g := newGateway(t)
	g.golden(t, "empty", "status --check", "list", "list -o json", "list -o yaml", "list --not-taken", "list --not-taken -o json", "records")
	e := delivered(file(1, "pump-room.jpg", 2_345_678, attachment.Reconciled, 3*time.Hour), 80*time.Minute)
	e.Receipt = &receipt.Receipt{Grade: receipt.RegisteredDurable, Server: "evidence.example.org", RegisteredAt: ago(80 * time.Minute), MediaID: "m-4711"}
	e.Manifest.Delivery.MediaID = "m-4711"
	e.Manifest.Parent.ServerID = "4711"
	e.Journal = append(e.Journal,
		control.JournalRow{Seq: 9, At: ago(81 * time.Minute), Event: attachment.EventVerified, From: attachment.Uploading, To: attachment.Uploaded},
		control.JournalRow{Seq: 10, At: ago(80 * time.Minute), Event: attachment.EventRegistered, From: attachment.Uploaded, To: attachment.Reconciled})
	g.Add(e)
	g.Set(func(s *control.Status) { s.Sending.LastDelivery = ptr(ago(80 * time.Minute)) })
	g.golden(t, "healthy", "status --check", "list", "list -o wide", "records", "records INS-117", "records INS-118",
		"show "+control.ShortID(fixedID(1)), "version", "--version", "status -o json", "show "+string(fixedID(1))+" -o json")
}

// No coverage: what waits, why, since when, what was confirmed, when it goes on, and what is on its way.
func TestWaiting(t *testing.T) {
	g := newGateway(t)
	g.Add(delivered(file(1, "arrival.jpg", 2_000_000, attachment.Reconciled, 26*time.Hour), 25*time.Hour))
	partly := waiting(file(2, "pump-room.mp4", 6_100_000_000, attachment.Ready, 2*time.Hour), attachment.HoldOffline)
	partly.Waiting.Detail = "lookup evidence.example.org: no such host"
	partly.Confirmed = ptr(int64(2_700_000_000))
	partly.Manifest.Delivery.Attempts, partly.Manifest.Delivery.Failures = 3, 1
	partly.Manifest.Delivery.Session = attachment.Session{ID: "u-77", Generation: 2}
	partly.LastError = &control.LastError{Code: attachment.HoldServerError, Message: "the server answered with an error page", At: ago(125 * time.Minute), Status: 502}
	g.Add(partly)
	backoff := waiting(file(3, "boiler plate.jpg", 3_141_592, attachment.Ready, 12*time.Minute), attachment.HoldBackoff)
	backoff.Waiting.NextAttempt = ptr(clock().Add(4*time.Minute + 10*time.Second))
	g.Add(backoff)
	paused := waiting(file(4, "übersicht-anlage-mit-einem-sehr-langen-namen.pdf", 620_000, attachment.Ready, 90*time.Second), attachment.HoldPaused)
	paused.Manifest.Paused = true
	g.Add(paused)
	also := waiting(file(6, "also.jpg", 1_000, attachment.Ready, time.Minute), attachment.HoldPaused)
	also.Manifest.Paused, also.Manifest.Repeats = true, fixedID(1)
	also.Manifest.Source.Released = true
	g.Add(also)
	uploaded := file(7, "uploaded.jpg", 1_000, attachment.Uploaded, time.Minute)
	uploaded.Manifest.Delivery.Verified = true
	g.Add(uploaded)
	sent := waiting(file(5, "sent.jpg", 999, attachment.Uploaded, time.Minute), attachment.HoldGrade)
	sent.Manifest.Delivery.Grade, sent.Manifest.Delivery.Verified = "verified-digest", true
	sent.Confirmed = ptr(int64(999))
	sent.Manifest.Parent = attachment.Parent{}
	g.Add(sent)
	g.Set(func(s *control.Status) {
		s.Sending.Channel = control.Why(attachment.HoldOffline, "", ago(123*time.Minute))
		s.Sending.Channel.Detail = "lookup evidence.example.org: no such host"
		s.Sending.LastDelivery = ptr(ago(25 * time.Hour))
		s.NextAttempt = ptr(clock().Add(4*time.Minute + 10*time.Second))
		s.Storage.State, s.Storage.FreeBytes = control.StorageWarn, 60_000_000
		s.Problems = []control.Problem{{Code: "storage_low", Severity: control.SeverityWarning, Message: "Free space is getting low.", Action: "Free space on the volume."}}
	})
	g.golden(t, "waiting", "status --check", "list", "list -o wide", "list --condition waiting,paused", "list --parent INS-117 --older-than 1h",
		"list --older-than 2d", "list --quiet --older-than 1d", "records", "show "+control.ShortID(fixedID(2)),
		"show "+control.ShortID(fixedID(5)), "show "+control.ShortID(fixedID(6)), "show "+control.ShortID(fixedID(7)), "list --condition waiting -o json",
		"list --condition waiting -o yaml")
}

// Paths that stay in the capture directories, each with its reason, and a directory that is not there.
func TestNotTaken(t *testing.T) {
	g := newGateway(t)
	for i, n := range []struct {
		path string
		size int64
		code attachment.Code
	}{
		{"/var/lib/fieldgw/capture/INS-117/still.mp4", 1_234_567, attachment.NotTakenOpen},
		{"/var/lib/fieldgw/capture/INS-117/secret.pdf", 20, attachment.NotTakenPermission},
		{"/media/card-of-the-second-camera/DCIM/100MEDIA/IMG_0001.jpg", 0, attachment.NotTakenEmpty},
	} {
		g.AddNotTaken(control.NotTaken{
			Watch: "camera", Path: attachment.NameOf(n.path), Size: n.size,
			Waiting: *control.Why(n.code, "", ago(time.Duration(i)*time.Hour+time.Minute)),
		})
	}
	g.Set(func(s *control.Status) {
		s.Watches = append(s.Watches, control.WatchStatus{
			Name: "card", Path: attachment.NameOf("/media/card"), Reason: attachment.NotTakenUnavailable, Since: ptr(ago(50 * time.Hour)),
		}, control.WatchStatus{
			Name: "slot", Path: attachment.NameOf("/media/slot"), Reason: attachment.NotTakenUnavailable, Since: ptr(ago(time.Hour)),
			Detail: "the card is not mounted: card-7.txt is missing",
		}, control.WatchStatus{
			Name: "share", Path: attachment.NameOf("/mnt/share"), Available: true, Polled: "NFS does not tell what others change on it",
		})
		s.Problems = append(s.Problems, control.Problem{
			Code: "not_watched", Severity: control.SeverityWarning, Message: "Watch camera: 7 of 9 directories give no events.",
			Action: attachment.Explain(attachment.NotTakenNotWatched).Remedy,
		})
	})
	g.golden(t, "not-taken", "status --check", "list --not-taken", "list --not-taken -o wide", "list --not-taken -q", "list --not-taken -o yaml")
}

// A file that needs a person: the first line says so, show says what to do, and status --check has its exit code.
func TestAttention(t *testing.T) {
	g := newGateway(t)
	g.Add(waiting(file(1, "pump-room.jpg", 2_000_000, attachment.Ready, time.Hour), attachment.HoldQueued))
	bad := waiting(file(2, "setup.exe", 9_000_000, attachment.Attention, 2*time.Hour), attachment.NeedsMediaType)
	bad.Manifest.Problem = &attachment.Problem{Code: attachment.NeedsMediaType, Since: ago(time.Hour), Detail: "application/x-dosexec is not allowed"}
	bad.Manifest.Source.Kept = "no lease on this filesystem"
	bad.Journal = append(bad.Journal, control.JournalRow{
		Seq: 12, At: ago(time.Hour), Event: attachment.EventAttention, From: attachment.Uploading, To: attachment.Attention, Reason: "media_type",
		Detail: "application/x-dosexec is not allowed",
	}, control.JournalRow{
		Seq: 13, At: ago(30 * time.Minute), Event: attachment.EventPaused, From: attachment.Attention, To: attachment.Attention, Reason: "asked the office", By: "uid 1000 (anna)",
	})
	g.Add(bad)
	g.golden(t, "attention", "status", "status --check", "list", "records", "show "+control.ShortID(fixedID(2)))
}

// What a file belongs to comes from a directory, a pattern or a sidecar: show says from which, and what waits for a sidecar
// says so and until when.
func TestBinding(t *testing.T) {
	g := newGateway(t)
	bound := delivered(file(1, "pump-room.jpg", 2_000_000, attachment.Reconciled, 2*time.Hour), time.Hour)
	bound.Manifest.Binding = attachment.Binding{Rule: attachment.BindSidecar, Sidecar: &attachment.Sidecar{
		Path: attachment.NameOf("/var/lib/fieldgw/capture/pump-room.jpg\x1b.json"), Kept: "no lease can be had on it",
	}}
	bound.Manifest.Description, bound.Manifest.Supersedes, bound.Manifest.Priority = "Kesselraum \u202e vorne", fixedID(9), 4
	bound.Manifest.CapturedAtSource = "sidecar"
	g.Add(bound)
	alone := waiting(file(2, "boiler.jpg", 1_000_000, attachment.Captured, 3*time.Minute), attachment.HoldSidecar)
	alone.Manifest.Parent = attachment.Parent{}
	alone.Manifest.Binding = attachment.Binding{Rule: attachment.BindSidecar, Wait: 10 * time.Minute}
	alone.Waiting.NextAttempt, alone.Waiting.Rule = ptr(clock().Add(7*time.Minute)), "watch.camera.sidecar_wait"
	g.Add(alone)
	bad := waiting(file(3, "valve.jpg", 1_000_000, attachment.Attention, 5*time.Minute), attachment.NeedsSidecarInvalid)
	bad.Manifest.Parent, bad.Manifest.Binding = attachment.Parent{}, alone.Manifest.Binding
	bad.Manifest.Problem = &attachment.Problem{
		Code: attachment.NeedsSidecarInvalid, Since: ago(4 * time.Minute), Detail: `valve.jpg.json:3:5: unknown key "parnet" (parent?)`,
	}
	g.Add(bad)
	pattern := waiting(file(4, "INS-117_0001.jpg", 1_000, attachment.Ready, time.Minute), attachment.HoldQueued)
	pattern.Manifest.Binding.Rule = attachment.BindPattern
	g.Add(pattern)
	g.AddNotTaken(control.NotTaken{
		Watch: "camera", Path: attachment.NameOf("/var/lib/fieldgw/capture/lost.jpg.json"), Size: 60,
		Waiting: *control.Why(attachment.NotTakenSidecarAlone, "", ago(time.Minute)),
	})
	g.golden(t, "binding", "list", "list --not-taken", "show "+control.ShortID(fixedID(1)), "show "+control.ShortID(fixedID(2)),
		"show "+control.ShortID(fixedID(3)), "show "+control.ShortID(fixedID(4)), "show "+control.ShortID(fixedID(1))+" -o json")
}

// A damaged queue: said first, nothing claimed about counts, and every other question is refused with what to do.
func TestDegraded(t *testing.T) {
	g := newGateway(t)
	g.Set(func(s *control.Status) {
		s.Degraded = ptr("bucket items: 12 entries counted, 11 found")
		s.Capture.Blocked = control.Why(attachment.NotTakenQueue, "", ago(time.Minute))
		s.Problems = []control.Problem{{Code: "queue_unavailable", Severity: control.SeverityError, Message: *s.Degraded}}
	})
	g.Fail(control.Refuse(control.CodeQueueUnavailable, "bucket items: 12 entries counted, 11 found"))
	g.golden(t, "degraded", "status --check", "list", "records", "show 0197f3a2", "retry --all", "list -o json")
}

// No server yet: files are kept and that is said; nobody is told that they are moving.
func TestNotConfigured(t *testing.T) {
	g := newGateway(t)
	g.Set(func(s *control.Status) {
		s.Configured, s.Sending, s.Device, s.Account, s.Watches = false, control.Sending{}, "", "", nil
		s.Sending.Channel = control.Why(attachment.HoldNotConfigured, "", ago(time.Hour))
	})
	g.golden(t, "not-configured-empty", "status")
	g.Add(waiting(file(1, "pump-room.jpg", 2_000_000, attachment.Ready, time.Hour), attachment.HoldNotConfigured))
	g.golden(t, "not-configured", "status --check", "list")
}

// The remaining first lines: each kind of state has its own word.
func TestHeadlines(t *testing.T) {
	busy := func(g *gateway) {
		e := file(1, "pump-room.jpg", 2_000_000, attachment.Uploading, time.Minute)
		e.Confirmed = ptr(int64(1_000_000))
		g.Add(e)
		g.Add(waiting(file(2, "boiler.jpg", 1_000_000, attachment.Ready, time.Minute), attachment.HoldQueued))
	}
	one := func(g *gateway) {
		g.Add(waiting(file(1, "pump-room.jpg", 2_000_000, attachment.Ready, time.Minute), attachment.HoldQueued))
	}
	channel := func(code attachment.Code) func(*control.Status) {
		return func(s *control.Status) {
			s.Sending.Channel = control.Why(code, "", ago(10*time.Minute))
			s.Sending.Paused = code == attachment.HoldChannelPaused
		}
	}
	for name, c := range map[string]struct {
		fill   func(*gateway)
		change func(*control.Status)
	}{
		"sending":      {busy, func(*control.Status) {}},
		"waiting-turn": {one, func(*control.Status) {}},
		"paused":       {busy, channel(attachment.HoldChannelPaused)},
		"credentials":  {one, channel(attachment.HoldCredentials)},
		"no-credential": {one, func(s *control.Status) {
			s.Sending.Channel = control.Why(attachment.HoldCredentialUnusable, "", ago(10*time.Minute))
			s.Sending.Channel.Detail = "open credential: no such file or directory"
		}},
		"outside-window": {func(g *gateway) {
			held := waiting(file(1, "pump-room.jpg", 2_000_000, attachment.Ready, time.Minute), attachment.HoldOutsideWindow)
			held.Waiting.NextAttempt = ptr(clock().Add(3 * time.Hour))
			g.Add(held)
			front := file(2, "signature.png", 20_000, attachment.Uploading, time.Minute)
			front.Manifest.Priority = attachment.PriorityFront
			g.Add(front)
		}, func(s *control.Status) {
			s.Sending.Channel = control.Why(attachment.HoldOutsideWindow, "", time.Time{})
			s.Sending.Channel.Rule, s.Sending.Channel.NextAttempt = "uplink.windows", ptr(clock().Add(3*time.Hour))
			s.NextAttempt = s.Sending.Channel.NextAttempt
		}},
		"clock-unset": {one, func(s *control.Status) {
			s.Sending.Channel = control.Why(attachment.HoldClockUnset, "", time.Time{})
			s.Sending.Channel.Detail = "the clock shows 1970-01-01T00:00:09Z, but this program was built on 2026-11-30"
		}},
		"offline-but-all": {func(*gateway) {}, channel(attachment.HoldOffline)},
		"blocked": {busy, func(s *control.Status) {
			s.Capture.Blocked = control.Why(attachment.HoldStorageReserve, "", ago(time.Minute))
			s.Storage.State, s.Storage.FreeBytes = control.StorageBlocked, 20_000_000
		}},
		"queue-full": {busy, func(s *control.Status) {
			s.Capture.Blocked = control.Why(attachment.NotTakenQueueFull, "", ago(time.Minute))
			s.Capture.Blocked.Detail = "269000000 of 536870912 bytes are used"
		}},
		"error": {one, func(s *control.Status) {
			s.Problems = []control.Problem{{Code: "clock", Severity: control.SeverityError, Message: "The clock is wrong.", Action: "Set the clock."}}
			s.Storage.State = control.StorageUnknown
		}},
		"attention-offline": {func(g *gateway) {
			one(g)
			e := waiting(file(2, "a", 1, attachment.Attention, time.Minute), attachment.NeedsPayloadMissing)
			e.Manifest.Problem, e.Copy, e.Path = &attachment.Problem{Code: attachment.NeedsPayloadMissing}, control.CopyMissing, ""
			g.Add(e)
			e = waiting(file(3, "b", 1, attachment.Review, time.Minute), attachment.NeedsRefused)
			e.Manifest.Problem = &attachment.Problem{Code: attachment.NeedsRefused}
			g.Add(e)
		}, channel(attachment.HoldOffline)},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			c.fill(g)
			g.Set(c.change)
			g.golden(t, "headline-"+name, "status --check", "list")
		})
	}
}

// Names from outside cannot move the cursor, colour the screen, turn the line around, break a row or shift the columns.
func TestHostileNames(t *testing.T) {
	g := newGateway(t)
	const evil = "a\x1b[2J\x1b]0;owned\x07\nfieldgwctl: all is well\u202egpj.exe\u200b\xff"
	e := waiting(file(1, evil, 5, attachment.Ready, time.Minute), attachment.HoldQueued)
	e.Manifest.Parent.LocalID = attachment.NameOf("INS\r\n\x1b[31m\u2066")
	e.Waiting.Message = "line\nbreak \x1b[1m"
	e.Waiting.Detail = "no\nhost \x1b[1m"
	e.Path, e.Manifest.MediaType = "/spool/\x1b[0m", "image/\u202ejpeg"
	e.LastError = &control.LastError{Code: "x\x07", Message: "an\x1b[5merror", At: ago(time.Minute)}
	g.Add(e)
	wide := waiting(file(2, "点検写真.jpg", 5, attachment.Ready, time.Minute), attachment.HoldQueued)
	g.Add(wide)
	emoji := waiting(file(3, "👩‍🔧é.jpg", 5, attachment.Ready, time.Minute), attachment.HoldQueued)
	g.Add(emoji)
	g.AddNotTaken(control.NotTaken{Watch: "w\x1b", Path: attachment.NameOf(evil), Waiting: *control.Why(attachment.NotTakenOpen, "", ago(time.Minute))})
	g.Set(func(s *control.Status) {
		s.Sending.Channel = control.Why(attachment.HoldOffline, "", ago(time.Minute))
		s.Sending.Channel.Detail = "no\nroute \u202e"
		s.Device, s.Sending.Endpoint = "tablet\x1b[7m", "https://x\x07"
		s.Problems = []control.Problem{{Severity: control.SeverityWarning, Message: "watch\n\x1b[2K", Action: "\u202edo"}}
		s.Watches[0].Path, s.Watches[0].Available, s.Watches[0].Message = attachment.NameOf("/a\nb"), false, "gone\x1b"
	})
	g.golden(t, "hostile", "status", "list", "list -o wide", "list --not-taken", "records", "show "+control.ShortID(fixedID(1)),
		"list -o json", "list -o yaml", "pause "+control.ShortID(fixedID(1)), "wait --for needs-attention --timeout 1ms "+control.ShortID(fixedID(1)))
}
