package daemon

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// damagedQueue is what takes the place of the queue file.
var damagedQueue = []byte("this was a queue once")

// everyState makes a device that holds attachments in every state between custody and delivery, stops it, and damages its
// queue file.
func (s *sim) everyState() {
	pauseSending(s)
	uploaded := s.captured("uploaded.jpg", 3000)
	resume := func() {
		s.net.set(0, false)
		_, err := s.device.session.ResumeChannel(s.ctx, simPerson, control.ChannelAction{})
		must(s.t, err)
	}
	resume()
	s.endAt("the receipt", func(c durable.Call) bool {
		return c.Op == durable.OpCreate && filepath.Base(filepath.Dir(c.Path)) == "receipts"
	})
	s.device.start(0)
	s.pauseOne(uploaded)
	s.net.set(0, false)
	s.rest(time.Minute)
	s.endInTransfer()
	s.device.start(0)
	for id, e := range s.records() {
		if e.Manifest.Filename.Text == "uploading.jpg" {
			s.pauseOne(id)
		}
	}
	resume()
	s.captured("delivered.jpg", 5000)
	s.rest(5 * time.Minute)
	pauseSending(s)
	s.captured("waiting.jpg", 4000)
	s.expectStates()
	s.device.stop(false)
	must(s.t, os.WriteFile(filepath.Join(s.device.dir, queueFile), damagedQueue, 0o600))
	clear(s.requests)
	clear(s.sent)
	clear(s.seen)
}

// expectStates holds the world that a rebuild starts from against what it is meant to be.
func (s *sim) expectStates() {
	want := map[string]attachment.State{
		"uploaded.jpg": attachment.Uploaded, "uploading.jpg": attachment.Ready, "delivered.jpg": attachment.Reconciled, "waiting.jpg": attachment.Ready,
	}
	records := s.records()
	for _, e := range records {
		m := e.Manifest
		if m.State != want[m.Filename.Text] || (m.Filename.Text == "uploading.jpg") != (e.Confirmed > 0 && m.State == attachment.Ready) {
			s.t.Errorf("%s is %s with %d confirmed bytes", m.Filename.Text, m.State, e.Confirmed)
		}
	}
	if len(records) != len(want) {
		s.t.Errorf("%d records", len(records))
	}
}

func (s *sim) pauseOne(id attachment.ID) {
	_, err := s.device.session.Pause(s.ctx, simPerson, control.Action{IDs: []attachment.ID{id}})
	must(s.t, err)
	s.hold(id, true)
}

func (s *sim) rebuild() error {
	opts := s.offline()
	opts.FS = durable.Hooked(s.device.disk.before)
	r, err := Rebuild(s.ctx, opts, false)
	s.note("rebuild: %+v", r)
	return err
}

// rebuildAgain is what the message of a failed rebuild asks for.
func (s *sim) rebuildAgain() {
	r, err := Rebuild(s.ctx, s.offline(), false)
	if err != nil && !errors.Is(err, ErrQueueHealthy) {
		s.t.Errorf("rebuilt again: %v", err)
	}
	s.note("rebuilt again: %+v, %v", r, err)
}

// rebuiltOnce expects that the damaged file is kept, that the order of capture is, and that the server was asked for nothing
// that is delivered and was sent no byte again that it had confirmed.
func rebuiltOnce(s *sim) {
	kept, err := filepath.Glob(filepath.Join(s.device.dir, queueFile+".damaged-*"))
	if err != nil || len(kept) != 1 {
		s.t.Fatalf("kept %v, %v", kept, err)
	}
	if data, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(data, damagedQueue) {
		s.t.Errorf("the kept file holds %q, %v", data, err)
	}
	records := s.records()
	var names []string
	for _, id := range slices.SortedFunc(maps.Keys(records), func(a, b attachment.ID) int {
		return cmp.Compare(records[a].Manifest.Seq, records[b].Manifest.Seq)
	}) {
		m := records[id].Manifest
		names = append(names, m.Filename.Text)
		most := m.Length
		switch m.Filename.Text {
		case "delivered.jpg":
			most = 0
			if s.requests[id] > 0 {
				s.t.Errorf("%d requests for what was delivered", s.requests[id])
			}
		case "uploaded.jpg":
			most = 0
		case "uploading.jpg":
			most -= simChunk
		}
		if s.sent[id] > most {
			s.t.Errorf("%s: %d bytes were sent after the rebuild, want at most %d", m.Filename.Text, s.sent[id], most)
		}
	}
	if !slices.Equal(names, []string{"uploaded.jpg", "uploading.jpg", "delivered.jpg", "waiting.jpg"}) {
		s.t.Errorf("not the attachments in the order of their capture: %v", names)
	}
}
