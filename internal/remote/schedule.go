package remote

import "time"

// Range bounds a delay that is drawn at random; Min is at most Max.
type Range struct{ Min, Max time.Duration }

// Schedule says how long to wait after the first, second and third failure in a row. After further failures the range of
// the third is doubled each time until it reaches Cap.
type Schedule struct{ First, Second, Third, Cap Range }

// OnlineSpread is the time over which devices come back that came online in the same moment, for Channel.Reset.
const OnlineSpread = 15 * time.Second

// DefaultSchedule is 15 to 45 s, 1 to 3 min, 5 to 15 min, growing to 30 to 60 min.
func DefaultSchedule() Schedule {
	return Schedule{
		First:  Range{15 * time.Second, 45 * time.Second},
		Second: Range{time.Minute, 3 * time.Minute},
		Third:  Range{5 * time.Minute, 15 * time.Minute},
		Cap:    Range{30 * time.Minute, time.Hour},
	}
}

// Delay returns the wait after so many failures in a row; fewer than one counts as one. rnd returns numbers in [0, 1).
//
// retryAfter is what the server asked for, 0 for nothing. It is a floor, and up to a quarter is added to it at random so
// that a fleet that was told the same time does not return at the same time. Nothing exceeds Cap.Max.
func (s Schedule) Delay(failures int, retryAfter time.Duration, rnd func() float64) time.Duration {
	r := s.after(failures)
	delay := r.Min + time.Duration(rnd()*float64(r.Max-r.Min))
	if retryAfter > delay {
		delay = retryAfter + time.Duration(rnd()*float64(retryAfter)/4)
	}
	return min(delay, s.Cap.Max)
}

func (s Schedule) after(failures int) Range {
	switch {
	case failures <= 1:
		return s.First
	case failures == 2:
		return s.Second
	}
	r := s.Third
	for range failures - 3 {
		r = Range{min(2*r.Min, s.Cap.Min), min(2*r.Max, s.Cap.Max)}
		if r == s.Cap {
			break
		}
	}
	return r
}
