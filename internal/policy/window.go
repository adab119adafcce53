package policy

import (
	"fmt"
	"strings"
	"time"
)

// day is the length of a window's day in minutes of the wall clock.
const day = 24 * 60

// horizon is how many days ahead an opening is looked for: more than a week, since a window may lie in the hour that a
// change to summer time leaves out.
const horizon = 16

// dayNames are the days as a window names them, in the order of time.Weekday.
var dayNames = [7]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// Window is a time of the wall clock on some days of the week. Where a change to or from summer time leaves an hour out or
// repeats one, the window follows the clock on the wall.
type Window struct {
	// Days are those on which it begins, by time.Weekday.
	Days [7]bool
	// From and To are minutes since midnight. To may be 24:00; where it is before From, it is on the next day.
	From, To int
}

// WindowError is a text that is no window.
type WindowError struct {
	// At is where it ceases to be one, in bytes from its beginning.
	At        int
	Msg, Hint string
}

// Error implements error.
func (e *WindowError) Error() string { return fmt.Sprintf("%s at character %d", e.Msg, e.At+1) }

// ParseWindow reads days and times, such as "mon-fri 18:00-06:00" or "sat,sun 00:00-24:00". Errors are *WindowError.
func ParseWindow(text string) (w Window, err error) {
	p := windowParser{text: text}
	p.days(&w)
	p.sign(' ', "want one space between days and times")
	w.From = p.minute(day - 1)
	p.sign('-', "want a hyphen between the times")
	at := p.at
	w.To = p.minute(day)
	if p.at < len(text) {
		p.refuse(p.at, "want nothing after the second time", "further times are windows of their own")
	}
	if w.From == w.To {
		p.refuse(at, "the window ends when it begins", "the whole day is 00:00-24:00")
	}
	if p.err != nil {
		return Window{}, p.err
	}
	return w, nil
}

// windowParser reads a window from left to right; the first error stays.
type windowParser struct {
	text string
	at   int
	err  *WindowError
}

func (p *windowParser) refuse(at int, msg, hint string) {
	if p.err == nil {
		p.err = &WindowError{At: at, Msg: msg, Hint: hint}
	}
}

// next reports whether a sign comes next, and goes past it.
func (p *windowParser) next(sign byte) bool {
	if p.err != nil || p.at >= len(p.text) || p.text[p.at] != sign {
		return false
	}
	p.at++
	return true
}

func (p *windowParser) sign(sign byte, msg string) {
	if !p.next(sign) {
		p.refuse(p.at, msg, `as in "mon-fri 18:00-06:00"`)
	}
}

// days reads days and ranges of days with commas between. A range may go past the end of the week.
func (p *windowParser) days(w *Window) {
	for p.err == nil {
		first := p.day()
		last := first
		if p.next('-') {
			last = p.day()
		}
		for d := first; p.err == nil; d = (d + 1) % len(dayNames) {
			w.Days[d] = true
			if d == last {
				break
			}
		}
		if !p.next(',') {
			return
		}
	}
}

func (p *windowParser) day() int {
	for d, name := range dayNames {
		if strings.HasPrefix(p.text[p.at:], name) {
			p.at += len(name)
			return d
		}
	}
	p.refuse(p.at, "want a day", "the days are mon, tue, wed, thu, fri, sat, sun")
	return 0
}

// minute reads HH:MM, at most latest.
func (p *windowParser) minute(latest int) int {
	const form = "00:00"
	rest := p.text[p.at:]
	n := 0
	for i := range form {
		switch {
		case i >= len(rest), (form[i] == ':') != (rest[i] == ':'), form[i] != ':' && (rest[i] < '0' || rest[i] > '9'):
			p.refuse(p.at+min(i, len(rest)), "want a time", `as in "06:30"`)
			return 0
		case form[i] != ':':
			n = 10*n + int(rest[i]-'0')
		}
	}
	if n%100 > 59 || n/100*60+n%100 > latest {
		p.refuse(p.at, "no such time", "times are 00:00 to 23:59; a window may end at 24:00")
	}
	p.at += len(form)
	return n/100*60 + n%100
}

// String renders the window so that ParseWindow reads it back: the days from Monday on, neighbours as a range.
func (w Window) String() string {
	var days []string
	for i := 0; i < len(dayNames); i++ {
		first := i
		for i < len(dayNames) && w.Days[(i+1)%len(dayNames)] {
			i++
		}
		switch name := func(n int) string { return dayNames[(n+1)%len(dayNames)] }; {
		case i-first == 1:
			days = append(days, name(first))
		case i > first:
			days = append(days, name(first)+"-"+name(i-1))
		}
	}
	return fmt.Sprintf("%s %02d:%02d-%02d:%02d", strings.Join(days, ","), w.From/60, w.From%60, w.To/60, w.To%60)
}

// Windows are the times in which files may be sent; none means always.
type Windows []Window

// Open reports whether a window is open at a time, by the clock of the time's zone.
func (ws Windows) Open(now time.Time) bool {
	minute, today := now.Hour()*60+now.Minute(), now.Weekday()
	yesterday := (today + 6) % 7
	for _, w := range ws {
		switch {
		case w.From < w.To:
			if w.Days[today] && minute >= w.From && minute < w.To {
				return true
			}
		case w.Days[today] && minute >= w.From, w.Days[yesterday] && minute < w.To:
			return true
		}
	}
	return len(ws) == 0
}

// Next returns when a window opens that is closed now; zero where none does.
func (ws Windows) Next(now time.Time) (next time.Time) {
	consider := func(at time.Time) {
		if at.After(now) && (next.IsZero() || at.Before(next)) && ws.Open(at) {
			next = at
		}
	}
	zone := now.Location()
	for i := range horizon {
		midnight := time.Date(now.Year(), now.Month(), now.Day()+i, 0, 0, 0, 0, zone)
		_, before := midnight.Zone()
		_, after := midnight.AddDate(0, 0, 1).Zone()
		for _, w := range ws {
			// On a day that changes the zone, a time of the wall clock may be two moments, or none: what is none is closed.
			wall := time.Date(now.Year(), now.Month(), now.Day()+i, 0, w.From, 0, 0, time.UTC).Unix()
			consider(time.Unix(wall-int64(before), 0).In(zone))
			consider(time.Unix(wall-int64(after), 0).In(zone))
		}
	}
	// A change of the zone may itself lead into a window.
	for at := now; ; {
		_, end := at.ZoneBounds()
		if end.IsZero() || end.Sub(now) > horizon*24*time.Hour {
			return next
		}
		consider(end)
		at = end
	}
}
