package watch

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

const sec = time.Second

var usual = times{settle: 2 * sec, quiet: 3 * sec, grace: 10 * time.Minute}

func fileOf(inode uint64, size, mtime int64) attachment.SourceIdentity {
	return attachment.SourceIdentity{Device: 1, Inode: inode, Size: size, MTimeNS: mtime}
}

// A file is ready for probing only after two looks, settle apart, that saw the same file; any change begins again. The
// modification time may be of any age and move in any direction: only that it moved counts.
func TestObservation(t *testing.T) {
	type look struct {
		at   time.Duration
		id   attachment.SourceIdentity
		code attachment.Code // what it waits for after this look; empty: to be probed
		due  time.Duration
	}
	const settle, empty = attachment.NotTakenSettling, attachment.NotTakenEmpty
	const old, future = -1, int64(4e18)
	for _, tc := range []struct {
		name  string
		looks []look
	}{
		{"quiet from the start", []look{{0, fileOf(1, 9, 5), settle, 2 * sec}, {2 * sec, fileOf(1, 9, 5), "", 0}}},
		{"one late look is not enough", []look{{5 * sec, fileOf(1, 9, 5), settle, 7 * sec}}},
		{"looked at too early", []look{
			{0, fileOf(1, 9, 5), settle, 2 * sec}, {sec, fileOf(1, 9, 5), settle, 2 * sec}, {2*sec - 1, fileOf(1, 9, 5), settle, 2 * sec},
			{2 * sec, fileOf(1, 9, 5), "", 0},
		}},
		{"grows", []look{
			{0, fileOf(1, 1, 5), settle, 2 * sec}, {2 * sec, fileOf(1, 2, 6), settle, 4 * sec}, {3 * sec, fileOf(1, 2, 6), settle, 4 * sec},
			{4 * sec, fileOf(1, 2, 6), "", 0},
		}},
		{"shrinks", []look{{0, fileOf(1, 9, 5), settle, 2 * sec}, {2 * sec, fileOf(1, 3, 5), settle, 4 * sec}}},
		{"replaced by a file of the same size and time", []look{{0, fileOf(1, 9, 5), settle, 2 * sec}, {2 * sec, fileOf(2, 9, 5), settle, 4 * sec}}},
		{"rewritten in place", []look{{0, fileOf(1, 9, 5), settle, 2 * sec}, {2 * sec, fileOf(1, 9, 6), settle, 4 * sec}}},
		{"from before 1970", []look{{0, fileOf(1, 9, old), settle, 2 * sec}, {2 * sec, fileOf(1, 9, old), "", 0}}},
		{"from the future", []look{{0, fileOf(1, 9, future), settle, 2 * sec}, {2 * sec, fileOf(1, 9, future), "", 0}}},
		{"the clock was set back while it was written", []look{
			{0, fileOf(1, 9, future), settle, 2 * sec}, {sec, fileOf(1, 10, old), settle, 3 * sec}, {3 * sec, fileOf(1, 10, old), "", 0},
		}},
		{"empty for the whole grace", []look{
			{0, fileOf(1, 0, 5), settle, 2 * sec}, {2 * sec, fileOf(1, 0, 5), empty, 600 * sec}, {599 * sec, fileOf(1, 0, 5), empty, 600 * sec},
			{600 * sec, fileOf(1, 0, 5), "", 0},
		}},
		{"empty and touched stays empty", []look{
			{0, fileOf(1, 0, 5), settle, 2 * sec}, {500 * sec, fileOf(1, 0, 6), settle, 502 * sec}, {502 * sec, fileOf(1, 0, 6), empty, 600 * sec},
			{600 * sec, fileOf(1, 0, 6), "", 0},
		}},
		{"empty, then another empty one", []look{
			{0, fileOf(1, 0, 5), settle, 2 * sec}, {500 * sec, fileOf(2, 0, 5), settle, 502 * sec}, {502 * sec, fileOf(2, 0, 5), empty, 1100 * sec},
		}},
		{"empty, then written", []look{
			{0, fileOf(1, 0, 5), settle, 2 * sec}, {2 * sec, fileOf(1, 0, 5), empty, 600 * sec}, {9 * sec, fileOf(1, 7, 6), settle, 11 * sec},
			{11 * sec, fileOf(1, 7, 6), "", 0},
		}},
		{"emptied", []look{
			{0, fileOf(1, 7, 5), settle, 2 * sec}, {9 * sec, fileOf(1, 0, 6), settle, 11 * sec}, {11 * sec, fileOf(1, 0, 6), empty, 609 * sec},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := observe(tc.looks[0].at, tc.looks[0].id)
			for i, l := range tc.looks {
				changed := o.look(l.at, l.id)
				if want := i > 0 && l.id != tc.looks[i-1].id; changed != want {
					t.Errorf("look %d: changed %v, want %v", i, changed, want)
				}
				if code, due := o.next(usual); code != l.code || due != l.due {
					t.Errorf("look %d at %s: waits for %q until %s, want %q until %s", i, l.at, code, due, l.code, l.due)
				}
			}
		})
	}
}

// A granted lease completes a file, a busy one has it asked again in growing steps, and without leases only a longer
// quiet completes it, on the lesser evidence.
func TestProbed(t *testing.T) {
	for _, tc := range []struct {
		name       string
		now, quiet time.Duration // since the file was first seen as it is: at the probe, at the last look
		found      writers
		t          times
		evidence   attachment.Evidence
		code       attachment.Code
		due        time.Duration
	}{
		{"nobody has it open", 2 * sec, 2 * sec, writersNone, usual, attachment.EvidenceLease, "", 0},
		{"open", 2 * sec, 2 * sec, writersBusy, usual, "", attachment.NotTakenOpen, 4 * sec},
		{"open for long", 12 * sec, 12 * sec, writersBusy, usual, "", attachment.NotTakenOpen, 18 * sec},
		{"open for very long", 900 * sec, 900 * sec, writersBusy, usual, "", attachment.NotTakenOpen, 910 * sec},
		{"open, with a long settle time", 60 * sec, 60 * sec, writersBusy, times{settle: 60 * sec, quiet: 60 * sec}, "", attachment.NotTakenOpen, 70 * sec},
		{"unknown, too soon", 2 * sec, 2 * sec, writersUnknown, usual, "", attachment.NotTakenSettling, 3 * sec},
		{"unknown, quiet", 3 * sec, 3 * sec, writersUnknown, usual, attachment.EvidenceSettled, "", 0},
		{"unknown, last look too early", 9 * sec, 2 * sec, writersUnknown, usual, "", attachment.NotTakenSettling, 3 * sec},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := observe(0, fileOf(1, 9, 5))
			o.look(tc.quiet, fileOf(1, 9, 5))
			evidence, code, due := o.probed(tc.now, tc.found, tc.t)
			if evidence != tc.evidence || code != tc.code || due != tc.due {
				t.Errorf("got %q, %q until %s", evidence, code, due)
			}
		})
	}
}

// A program that records for 20 minutes and keeps its file open, with pauses far longer than settle and a clock that is set
// meanwhile, is waited for: the file is offered once, whole.
func TestLongRecording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newFakeSource()
		h := build(t, Options{Source: source}).start()
		f, err := os.Create(h.path("video.mp4"))
		must(t, err)
		source.events <- Event{Path: h.path("video.mp4")}
		for minute := range 20 {
			_, err := f.WriteString("a minute")
			must(t, err)
			clock := time.Date([]int{1970, 2099, 2026}[minute%3], 1, 1, 0, 0, 0, 0, time.UTC)
			must(t, os.Chtimes(f.Name(), clock, clock))
			source.events <- Event{Path: h.path("video.mp4")}
			pass(time.Minute)
			h.expect()
			h.expectReason("video.mp4", attachment.NotTakenOpen)
		}
		must(t, f.Close())
		pass(busyRetry + time.Second)
		c := h.expect("video.mp4")[0]
		if c.Identity.Size != 20*int64(len("a minute")) || c.Evidence != attachment.EvidenceLease {
			t.Errorf("got %+v", c)
		}
		h.Done(c, Disposition{Kind: Taken})
		must(t, os.Remove(c.Path))
		pass(10 * time.Minute)
		h.expect()
	})
}

// A file that shrinks, is replaced, rewritten or renamed while it settles is looked at again from the start, and only what
// stands there in the end is offered.
func TestChangedWhileSettling(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(h *harness)
		offers string
		size   int64
	}{
		"shrinks":   {func(h *harness) { must(h.t, os.Truncate(h.path("a.jpg"), 2)) }, "a.jpg", 2},
		"rewritten": {func(h *harness) { write(h.t, h.path("a.jpg"), "other") }, "a.jpg", 5},
		"replaced": {func(h *harness) {
			write(h.t, h.root+".new", "other")
			must(h.t, os.Rename(h.root+".new", h.path("a.jpg")))
		}, "a.jpg", 5},
		"renamed": {func(h *harness) { must(h.t, os.Rename(h.path("a.jpg"), h.path("b.jpg"))) }, "b.jpg", 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := newFakeSource()
				h := build(t, Options{Source: source})
				h.t = t
				write(t, h.path("a.jpg"), "first")
				past := time.Unix(1, 0) // so that a change shows however coarse the clock is
				must(t, os.Chtimes(h.path("a.jpg"), past, past))
				h.start()
				pass(1500 * time.Millisecond)
				tc.change(h)
				source.events <- Event{Path: h.path("a.jpg")}
				pass(1500 * time.Millisecond)
				h.expect()
				pass(1500 * time.Millisecond)
				if c := h.expect(tc.offers)[0]; c.Identity.Size != tc.size {
					t.Errorf("got %+v", c)
				}
			})
		})
	}
}
