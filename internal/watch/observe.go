package watch

import (
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// times are the durations that decide about the files of one watch.
type times struct {
	settle time.Duration // unchanged for so long
	quiet  time.Duration // the same for files on which no lease can be had; at least settle
	grace  time.Duration // how long an empty file may stay empty before it is offered as it is
}

// observation is what is known about one path by looking at it. Every time in it is running time, never the file's or the
// wall clock's, so that a camera without a clock and a clock that is set change nothing.
type observation struct {
	id    attachment.SourceIdentity
	since time.Duration // first look that saw this identity
	last  time.Duration // latest look that saw it
	empty time.Duration // since when the file has been empty; only meaningful while it is
}

func observe(now time.Duration, id attachment.SourceIdentity) observation {
	return observation{id: id, since: now, last: now, empty: now}
}

// look records one look and reports whether the file is another than before: replaced, grown, shrunk or touched. Then the
// observation starts again, except that a touched empty file has been empty all along.
func (o *observation) look(now time.Duration, id attachment.SourceIdentity) (changed bool) {
	if id == o.id {
		o.last = now
		return false
	}
	stillEmpty := id.Size == 0 && o.id.Size == 0 && id.Inode == o.id.Inode && id.Device == o.id.Device
	empty := o.empty
	*o = observe(now, id)
	if stillEmpty {
		o.empty = empty
	}
	return true
}

// next says what the file still waits for and when to look again; an empty code means that looking is not enough any
// more and the file is to be probed for writers. At least two looks, settle apart, have seen the same file by then.
func (o *observation) next(t times) (code attachment.Code, at time.Duration) {
	switch {
	case o.last-o.since < t.settle:
		return attachment.NotTakenSettling, o.since + t.settle
	case o.id.Size == 0 && o.last-o.empty < t.grace:
		return attachment.NotTakenEmpty, o.empty + t.grace
	}
	return "", 0
}

// writers is what a probe for writers found out.
type writers int

const (
	writersNone    writers = iota // a read lease was granted
	writersBusy                   // somebody has the file open for writing
	writersUnknown                // no lease can be had on this file
)

// probed says what a probe means for a file that next had nothing against: complete on some evidence, or to be looked at
// again later for the reason given.
func (o *observation) probed(now time.Duration, found writers, t times) (evidence attachment.Evidence, code attachment.Code, at time.Duration) {
	unchanged := now - o.since
	switch {
	case found == writersNone:
		return attachment.EvidenceLease, "", 0
	case found == writersBusy:
		// Closing a file makes no event, so it is asked for: often at first, then less, in step with how long nothing
		// has changed.
		return "", attachment.NotTakenOpen, now + min(max(t.settle, unchanged/2), busyRetry)
	case o.last-o.since < t.quiet:
		return "", attachment.NotTakenSettling, o.since + t.quiet
	}
	return attachment.EvidenceSettled, "", 0
}
