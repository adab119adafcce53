package policy

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

func windows(t testing.TB, texts ...string) (ws Windows) {
	t.Helper()
	for _, text := range texts {
		w, err := ParseWindow(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		ws = append(ws, w)
	}
	return ws
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What is no window is refused with the place and, where there is one, the remedy; what is one reads back.
func TestParseWindow(t *testing.T) {
	for text, want := range map[string]string{
		"mon-fri 18:00-06:00":    "mon-fri 18:00-06:00",
		"sat,sun 00:00-24:00":    "sat-sun 00:00-24:00",
		"fri-mon 00:00-00:01":    "mon,fri-sun 00:00-00:01",
		"sun 23:59-24:00":        "sun 23:59-24:00",
		"wed,mon,tue 12:00-13:0": "want a time at character 23",
		"":                       "want a day at character 1",
		"Mon 12:00-13:00":        "want a day at character 1",
		"mon,fro 12:00-13:00":    "want a day at character 5",
		"mon- 12:00-13:00":       "want a day at character 5",
		"mon  12:00-13:00":       "want a time at character 5",
		"mon12:00-13:00":         "want one space between days and times at character 4",
		"mon 12:00":              "want a hyphen between the times at character 10",
		"mon 1:00-13:00":         "want a time at character 6",
		"mon 24:00-13:00":        "no such time at character 5",
		"mon 12:60-13:00":        "no such time at character 5",
		"mon 12:00-24:01":        "no such time at character 11",
		"mon 12:00-13:00 ":       "want nothing after the second time at character 16",
		"mon 08:00-08:00":        "the window ends when it begins at character 11",
	} {
		w, err := ParseWindow(text)
		var refused *WindowError
		switch {
		case err == nil && w.String() == want:
		case errors.As(err, &refused) && err.Error() == want && w == (Window{}):
		default:
			t.Errorf("%q: %q, %v; want %q", text, w, err, want)
		}
	}
}

// Every text is a window or an error with a place in it, and every window reads back as itself.
func FuzzParseWindow(f *testing.F) {
	f.Add("mon-fri 18:00-06:00")
	f.Add("sat,sun 00:00-24:00")
	f.Add("mon,fri-\xff 1:")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWindow(text)
		var refused *WindowError
		if errors.As(err, &refused) {
			if refused.At < 0 || refused.At > len(text) || refused.Msg == "" {
				t.Errorf("%q: %+v", text, refused)
			}
			return
		}
		if again, err := ParseWindow(w.String()); err != nil || again != w {
			t.Errorf("%q is %q, which is %+v, %v", text, w, again, err)
		}
	})
}

// The edges: a window has its first minute and not its last, goes over midnight and over the week's end, and follows the
// clock on the wall where that leaves an hour out or repeats one.
func TestWindowEdges(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	nights := windows(t, "mon-fri 18:00-06:00", "sun 00:00-24:00")
	gap := windows(t, "sun 02:15-02:45")
	for _, c := range []struct {
		in   Windows
		at   string // in Berlin
		open bool
		next string
	}{
		{nil, "2026-06-01 12:00", true, ""},
		{nights, "2026-06-01 17:59", false, "2026-06-01 18:00 CEST"},
		{nights, "2026-06-01 18:00", true, ""},
		{nights, "2026-06-02 05:59", true, ""},
		{nights, "2026-06-02 06:00", false, "2026-06-02 18:00 CEST"},
		{nights, "2026-06-06 05:59", true, ""},                       // Saturday, of Friday's window
		{nights, "2026-06-06 06:00", false, "2026-06-07 00:00 CEST"}, // until Sunday
		{nights, "2026-06-08 00:00", false, "2026-06-08 18:00 CEST"}, // Monday: Sunday's ended
		{windows(t, "sun 22:00-04:00"), "2026-06-08 03:59", true, ""},
		// Summer time begins: the hour from 2 to 3 is left out, and with it the whole window.
		{gap, "2026-03-29 01:59", false, "2026-04-05 02:15 CEST"},
		{windows(t, "sun 02:15-04:00"), "2026-03-29 01:59", false, "2026-03-29 03:00 CEST"},
		// It ends: the hour from 2 to 3 comes twice.
		{gap, "2026-10-25 01:59", false, "2026-10-25 02:15 CEST"},
	} {
		at, err := time.ParseInLocation("2006-01-02 15:04", c.at, berlin)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.in.Open(at); got != c.open {
			t.Errorf("%v at %s: open %v", c.in, c.at, got)
		}
		if next := c.in.Next(at).Format("2006-01-02 15:04 MST"); !c.open && next != c.next {
			t.Errorf("%v after %s: %s, want %s", c.in, c.at, next, c.next)
		}
	}
	between := time.Date(2026, 10, 25, 0, 50, 0, 0, time.UTC).In(berlin) // 02:50 for the first time
	if next := gap.Next(between).Format("15:04 MST"); gap.Open(between) || next != "02:15 CET" {
		t.Errorf("in the repeated hour: %s", next)
	}
}

// The next opening is the first minute in which the windows are open, for random windows, zones and times.
func TestNextIsTheFirstOpenMinute(t *testing.T) {
	zones := []*time.Location{
		zone(t, "Europe/Berlin"), zone(t, "America/Havana"), zone(t, "Australia/Lord_Howe"), zone(t, "Africa/Casablanca"), time.UTC,
	}
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		var ws Windows
		for range 1 + rnd.IntN(3) {
			w := Window{From: rnd.IntN(day), To: 1 + rnd.IntN(day)}
			for range 1 + rnd.IntN(2) {
				w.Days[rnd.IntN(7)] = true
			}
			if w.From != w.To {
				ws = append(ws, w)
			}
		}
		z := zones[rnd.IntN(len(zones))]
		now := time.Unix(1_770_000_000+rnd.Int64N(2*365*86400), 0).In(z)
		if rnd.IntN(2) == 0 { // near a change of the zone
			if _, end := now.ZoneBounds(); !end.IsZero() {
				now = end.Add(-time.Duration(rnd.Int64N(int64(30 * time.Hour))))
			}
		}
		if ws.Open(now) {
			continue
		}
		want := now.Truncate(time.Minute).Add(time.Minute)
		for !ws.Open(want) {
			want = want.Add(time.Minute)
		}
		if got := ws.Next(now); !got.Equal(want) {
			t.Errorf("seed %d: %v after %s: %s, want %s", seed, ws, now, got, want)
		}
	}
}

// Windows come after configuration and pause, before the item's pause; storage that runs short and a person lift them, a
// clock that cannot be right does not.
func TestWindowHold(t *testing.T) {
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, zone(t, "Europe/Berlin"))
	closed := Sending{Configured: true, Windows: windows(t, "mon 18:00-20:00"), Now: noon}
	change := func(edit func(*Sending)) Sending {
		s := closed
		edit(&s)
		return s
	}
	for name, c := range map[string]struct {
		in   Sending
		want attachment.Code
	}{
		"closed":       {closed, attachment.HoldOutsideWindow},
		"open":         {change(func(s *Sending) { s.Now = noon.Add(7 * time.Hour) }), ""},
		"doubted":      {change(func(s *Sending) { s.ClockDoubt = "it is 1970" }), attachment.HoldClockUnset},
		"doubted open": {change(func(s *Sending) { s.Now, s.ClockDoubt = noon.Add(7*time.Hour), "it is 1970" }), attachment.HoldClockUnset},
		"always":       {change(func(s *Sending) { s.Windows, s.ClockDoubt = nil, "it is 1970" }), ""},
		"short":        {change(func(s *Sending) { s.StorageShort, s.ClockDoubt = true, "it is 1970" }), ""},
		"front":        {change(func(s *Sending) { s.AtFront, s.ClockDoubt = true, "it is 1970" }), ""},
		"front paused": {change(func(s *Sending) { s.AtFront, s.ItemPaused = true, true }), attachment.HoldPaused},
		"paused":       {change(func(s *Sending) { s.ItemPaused = true }), attachment.HoldOutsideWindow},
		"all paused":   {change(func(s *Sending) { s.ChannelPaused = true }), attachment.HoldChannelPaused},
	} {
		got := Send(c.in)
		ofWindow := c.want == attachment.HoldOutsideWindow || c.want == attachment.HoldClockUnset
		if code(got) != c.want || got.OfWindow() != ofWindow {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
	h := Send(closed)
	if want := noon.Add(6 * time.Hour); !h.Until.Equal(want) || h.Ends != "the next opening, Mon 2026-06-01 18:00 CEST" || h.Rule != "uplink.windows" {
		t.Errorf("%+v", h)
	}
}
