package intake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// fat is a card as FAT shows it: it has a name, and its files get new numbers with each mount.
func fat(name string) Medium { return Medium{Name: "uuid:" + name, Fleeting: true} }

// replug mounts the card again: every file keeps its name and bytes and gets another inode number, and its time moves by
// what a change of the time zone makes of it.
func (s *site) replug(shift time.Duration) {
	s.t.Helper()
	old := s.capture + ".old"
	if err := errors.Join(os.Rename(s.capture, old), os.Mkdir(s.capture, 0o755)); err != nil {
		s.t.Fatal(err)
	}
	entries, err := os.ReadDir(old)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(old, e.Name()))
		if err != nil {
			s.t.Fatal(err)
		}
		info, err := e.Info()
		if err != nil {
			s.t.Fatal(err)
		}
		at := info.ModTime().Add(shift)
		if err := os.Chtimes(s.write(e.Name(), string(content)), at, at); err != nil {
			s.t.Fatal(err)
		}
	}
}

// taken adopts and expects a new attachment.
func (p *process) taken(path string, move bool) Result {
	p.s.t.Helper()
	r, err := p.Adopt(context.Background(), p.s.request(path, move))
	if err != nil || r.Known {
		p.s.t.Fatalf("%s: %+v, %v; want a new attachment", path, r, err)
	}
	return r
}

// knownAs adopts and expects that nothing is taken.
func (p *process) knownAs(path string, id attachment.ID) {
	p.s.t.Helper()
	r, err := p.Adopt(context.Background(), p.s.request(path, false))
	if err != nil || !r.Known || !r.Stays || r.ID != id || !exists(path) {
		p.s.t.Errorf("%s: %+v, %v; want known as %s", path, r, err, id)
	}
}

// A source that stays is read once when its description changed, recognized by its bytes, and not read again: not when it
// was touched, not when its card comes back with other numbers and times, not after the configuration named the card.
func TestRecognizedByContent(t *testing.T) {
	unplugged := func(shift time.Duration) func(*site, string) {
		return func(s *site, _ string) { s.replug(shift) }
	}
	for name, c := range map[string]struct {
		first, then Medium
		change      func(s *site, path string)
	}{
		"touched": {change: func(s *site, path string) {
			if err := os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)); err != nil {
				s.t.Fatal(err)
			}
		}},
		"mounted in another time zone": {first: fat("A"), then: fat("A"), change: unplugged(time.Hour)},
		"no name, other numbers":       {change: unplugged(0)},
		"named since":                  {first: fat("A"), then: Medium{Name: "marker:1", Fleeting: true}, change: unplugged(0)},
		"name lost":                    {first: fat("A"), change: unplugged(0)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.medium = c.first
			path := s.write("DSC_0001.JPG", "a picture")
			p := s.restart()
			id := p.taken(path, false).ID
			p.stop()
			s.medium = c.then
			c.change(s, path)
			reads := 0
			p = s.start(durable.Hooked(func(c durable.Call) error {
				if c.Op == durable.OpRead && c.Path == path {
					reads++
				}
				return nil
			}))
			p.knownAs(path, id)
			once := reads
			p.knownAs(path, id)
			if once == 0 || reads != once {
				t.Errorf("read %d times, then %d times", once, reads-once)
			}
			if n := len(p.contents()); n != 1 {
				t.Errorf("%d attachments", n)
			}
			p.stop()
		})
	}
}

// A card that is known by name and comes back as it was is recognized without being read, whatever its files' numbers.
func TestCardComesBackUnread(t *testing.T) {
	s := newSite(t)
	s.medium = fat("A")
	path := s.write("DSC_0001.JPG", "a picture")
	p := s.restart()
	id := p.taken(path, false).ID
	p.stop()
	s.replug(0)
	p = s.start(durable.Hooked(func(c durable.Call) error {
		if c.Op == durable.OpRead && c.Path == path {
			t.Error("it is read")
		}
		return nil
	}))
	defer p.stop()
	p.knownAs(path, id)
}

// The same name, size and time is not the same picture: on another card, on a card without a name, and where the camera
// has no clock.
func TestReusedNameIsNew(t *testing.T) {
	real, none := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC), time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		first, then Medium
		at          time.Time
	}{
		"another card":             {fat("A"), fat("B"), real},
		"cards without a name":     {Medium{Fleeting: true}, Medium{Fleeting: true}, real},
		"disk without a name":      {Medium{}, Medium{}, real},
		"named disk":               {Medium{Name: "uuid:D"}, Medium{Name: "uuid:D"}, real},
		"camera without clock":     {fat("A"), fat("A"), none},
		"another marker, no clock": {Medium{Name: "marker:1"}, Medium{Name: "marker:2"}, none},
	} {
		for _, move := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " move ", move), func(t *testing.T) {
				s := newSite(t)
				s.medium = c.first
				path := s.write("DSC_0001.JPG", "one")
				if err := os.Chtimes(path, c.at, c.at); err != nil {
					t.Fatal(err)
				}
				p := s.restart()
				first := p.taken(path, move)
				p.stop()
				s.medium = c.then
				// Made while the first one stands, it has another inode number.
				fresh := s.write("fresh", "two")
				if err := errors.Join(os.Chtimes(fresh, c.at, c.at), os.Rename(fresh, path)); err != nil {
					t.Fatal(err)
				}
				p = s.restart()
				defer p.stop()
				second := p.taken(path, move)
				if m := p.manifest(second.ID); m.Repeats != "" {
					t.Errorf("it repeats %s", m.Repeats)
				}
				if got := p.contents(); got[first.ID] != "one" || got[second.ID] != "two" {
					t.Errorf("%q", got)
				}
			})
		}
	}
}

// A renamed file that stays is known under its new name, after a restart too. In another parent it is another reference,
// and a copy beside it is a repetition.
func TestRenamedIsNotTakenAgain(t *testing.T) {
	s := newSite(t)
	path := s.write("a.jpg", "a picture")
	p := s.restart()
	id := p.taken(path, false).ID
	renamed := filepath.Join(s.capture, "pump.jpg")
	if err := os.Rename(path, renamed); err != nil {
		t.Fatal(err)
	}
	p.knownAs(renamed, id)
	p.stop()
	p = s.restart()
	defer func() { p.stop() }()
	p.knownAs(renamed, id)
	if m := p.manifest(id); m.Source.Path.Exact() != renamed || m.Filename.Text != "a.jpg" {
		t.Errorf("source %q, name %q", m.Source.Path.Exact(), m.Filename.Text)
	}
	rows, err := p.Queue.History(id, 10)
	if err != nil || rows[len(rows)-1].Event != attachment.EventSeenAgain || !strings.Contains(rows[len(rows)-1].Detail, "pump.jpg") {
		t.Errorf("journal: %+v, %v", rows, err)
	}
	// A new picture under the old name does not make the rename undone.
	p.taken(s.write("a.jpg", "other pix"), false)
	p.knownAs(renamed, id)

	linked := filepath.Join(s.capture, "second-name.jpg")
	if err := os.Link(renamed, linked); err != nil {
		t.Fatal(err)
	}
	p.knownAs(linked, id)
	if m := p.manifest(p.taken(s.write("copy.jpg", "a picture"), false).ID); m.Repeats != id {
		t.Errorf("the copy repeats %q", m.Repeats)
	}
	req := s.request(s.write("elsewhere.jpg", "a picture"), false)
	req.Parent = "insp-8"
	if r, err := p.Adopt(context.Background(), req); err != nil || r.Known || p.manifest(r.ID).Repeats != "" {
		t.Errorf("in another parent: %+v, %v", r, err)
	}
}

// The same bytes dropped again in the same parent are taken and marked, or left where they are with the reason, whether the
// first ones were moved away or stand there still. What is damaged or of another parent does not count.
func TestRepeated(t *testing.T) {
	for _, move := range []bool{false, true} {
		for _, skip := range []bool{false, true} {
			t.Run(fmt.Sprintf("move %v skip %v", move, skip), func(t *testing.T) {
				s := newSite(t)
				p := s.restart()
				first := p.taken(s.write("a.jpg", "a picture"), move).ID
				again := s.write("b.jpg", "a picture")
				for range 2 {
					p.repetition(again, move, skip, first)
					p.stop()
					p = s.restart()
				}
				if s.medium = fat("A"); skip && move {
					p.repetition(again, move, skip, first) // its card got a name
				}
				want := map[bool]int{false: 2, true: 1}[skip]
				if n := len(p.contents()); n != want {
					t.Errorf("%d attachments, want %d", n, want)
				}
				if err := p.Queue.RaiseAttention(context.Background(), first, queue.Failure{Code: attachment.NeedsPayloadMissing}); err != nil {
					t.Fatal(err)
				}
				if !skip || !move {
					again = s.write("c.jpg", "a picture")
				}
				fresh := s.request(again, true)
				fresh.SkipRepeated = skip
				if r, err := p.Adopt(context.Background(), fresh); skip && (err != nil || r.Known || p.manifest(r.ID).Repeats != "") {
					t.Errorf("the first one is damaged: %+v, %v", r, err)
				}
				p.stop()
			})
		}
	}
}

// repetition offers a file that repeats first; what was taken and marked once is known afterwards.
func (p *process) repetition(path string, move, skip bool, first attachment.ID) {
	p.s.t.Helper()
	if !exists(path) {
		return // taken by move
	}
	req := p.s.request(path, move)
	req.SkipRepeated = skip
	r, err := p.Adopt(context.Background(), req)
	var nt *NotTakenError
	switch {
	case skip && move:
		if !errors.As(err, &nt) || nt.Code != attachment.NotTakenRepeated || !strings.Contains(nt.Detail, string(first)) || !exists(path) {
			p.s.t.Errorf("%+v, %v", r, err)
		}
	case err != nil:
		p.s.t.Error(err)
	case skip:
		if !r.Known || r.ID != first || !r.Stays {
			p.s.t.Errorf("%+v, want known as %s", r, first)
		}
	case p.manifest(r.ID).Repeats != first:
		p.s.t.Errorf("%+v repeats %q, want %s", r, p.manifest(r.ID).Repeats, first)
	}
}

// A watch that is told to send repetitions takes those that it left alone before, and what comes under their names then is
// new.
func TestSkippedThenSent(t *testing.T) {
	s := newSite(t)
	s.medium = fat("A")
	p := s.restart()
	defer p.stop()
	first := p.taken(s.write("a.jpg", "a picture"), true).ID
	again := s.write("b.jpg", "a picture")
	p.repetition(again, true, true, first)
	r := p.taken(again, true)
	m := p.manifest(r.ID)
	if exists(again) || m.Repeats != first {
		t.Errorf("%+v", m)
	}
	at := time.Unix(0, m.Source.Identity.MTimeNS)
	if err := os.Chtimes(s.write("b.jpg", "A PICTURE"), at, at); err != nil {
		t.Fatal(err)
	}
	req := s.request(again, true)
	req.SkipRepeated = true
	if r, err := p.Adopt(context.Background(), req); err != nil || p.contents()[r.ID] != "A PICTURE" {
		t.Errorf("%v, %q", err, p.contents())
	}
}

// Another content under the same name, of the same size, with the same time and even the same inode number, as ext4 gives
// it to the next file and as a copy over the old one has it, is new: nothing but the change time tells.
func TestSameDescriptionIsNew(t *testing.T) {
	for _, at := range []time.Time{time.Unix(0, 0), time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)} {
		s := newSite(t)
		s.medium = Medium{Name: "uuid:ext4"}
		path := s.write("DSC_0001.JPG", "first picture")
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		p := s.restart()
		first := p.taken(path, false).ID
		<-time.After(20 * time.Millisecond) // more than the kernel's tick
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("other picture"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Close(), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		second := p.taken(path, false).ID
		p.knownAs(path, second)
		if n := len(p.contents()); n != 2 || first == second {
			t.Errorf("%d attachments", n)
		}
		p.stop()
	}
}
