package main

import (
	"bufio"
	"bytes"
	"os"
	"strings"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/logging"
)

// A transition is one "attachment changed" line of the daemon's log, which is written after the commit: what it says is
// promised.
type transition struct {
	id    string
	event attachment.Event
	state attachment.State
}

// readLog returns the transitions in a daemon's log, oldest first. The text format quotes only values that need it; the
// keys read here never do.
func readLog(path string) ([]transition, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []transition
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var t transition
		for word := range strings.FieldsSeq(lines.Text()) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case logging.KeyAttachment:
				t.id = value
			case logging.KeyEvent:
				t.event = attachment.Event(value)
			case logging.KeyState:
				t.state = attachment.State(value)
			}
		}
		if t.id != "" && t.event != "" && t.state != "" {
			all = append(all, t)
		}
	}
	return all, nil
}

// shown is what the control socket said about an attachment.
type shown struct {
	name      string
	sha256    string
	confirmed int64
	delivered bool
}

// A phase is what a cut met. A cut meets several attachments in different phases and counts for the first of these that
// one of them is in: the shortest come first.
type phase string

// The phases, in the order of that choice.
const (
	adopting    phase = "adopting"    // out of its place or being copied, not logged as adopted
	registering phase = "registering" // verified by the server, no receipt logged
	uploading   phase = "uploading"   // with a session
	waiting     phase = "waiting"     // in custody, not being sent
	settling    phase = "settling"    // only in the capture directory
	delivered   phase = "delivered"   // all files
	nothing     phase = "nothing"     // no file was captured yet
)

var phases = []phase{adopting, registering, uploading, waiting, settling, delivered}

// facts are what the device had promised when the power was cut.
type facts struct {
	// state is the last logged state of every attachment.
	state map[string]attachment.State
	// sending holds the attachments with a session that are not verified: bytes of them may be on their way.
	sending map[string]bool
	// shown is the last word of the control socket.
	shown map[string]shown
	// dropped are the files that the writer had made durable; staged counts those under adoption.
	dropped, staged int
}

func (f *facts) count() map[phase]int {
	n := map[phase]int{}
	for _, s := range f.state {
		switch s {
		case attachment.Reconciled, attachment.Released:
			n[delivered]++
		case attachment.Uploaded:
			n[registering]++
		case attachment.Uploading:
			n[uploading]++
		default:
			n[waiting]++
		}
	}
	outside := max(0, f.dropped-len(f.state))
	n[adopting] = min(f.staged, outside)
	n[settling] = outside - n[adopting]
	return n
}

func (f *facts) phase() phase {
	n := f.count()
	for _, p := range phases {
		if n[p] > 0 {
			return p
		}
	}
	return nothing
}
