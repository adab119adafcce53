package daemon

import (
	"net/http"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/config"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// simWindows is a window of every day, open for some hours.
func simWindows(s *sim) []config.Window {
	var w config.Window
	for d := range w.Days {
		w.Days[d] = true
	}
	w.From = s.rnd.IntN(24 * 60)
	w.To = (w.From + 60 + s.rnd.IntN(12*60)) % (24 * 60)
	s.note("files are sent %s", w)
	return []config.Window{w}
}

// prioritize puts one attachment to the front.
func (s *sim) prioritize(a control.Action) {
	out, err := s.device.session.Prioritize(s.ctx, simPerson, a)
	s.note("%s is put to the front: %d done, %v", a.IDs, out.Done, err)
}

// inWindow complains about a request for an attachment that comes while no window is open, and has not been for simPatience,
// unless a person put it to the front.
func (s *sim) inWindow(r *http.Request, id attachment.ID) {
	windows, now := s.device.cfg.Uplink.Schedule(), time.Now()
	if windows.Open(now) || windows.Open(now.Add(-simPatience)) || s.device.disk.dead.Load() {
		return
	}
	e, err := s.device.session.queue.Get(id)
	if err == nil && e.Manifest != nil && e.Manifest.Priority < attachment.PriorityFront {
		s.t.Errorf("%s %s arrived at %s, outside of %v", r.Method, r.URL.Path, now, windows)
	}
}

// lookLanes checks that a worker is left for what is small or urgent.
func (s *sim) lookLanes(page []queue.Entry) {
	s.t.Helper()
	small, bulk := s.device.cfg.Uplink.Small.Bytes(), 0
	for _, e := range page {
		if e.Manifest != nil && e.Claimed && !s.device.session.dispatcher.unsettled(e.ID) && !queue.IsQuick(e.Manifest, small) {
			bulk++
		}
	}
	if workers := s.device.cfg.Uplink.Workers; bulk > max(1, workers-1) {
		s.t.Errorf("%d workers, %d of them carry large ones", workers, bulk)
	}
}
