package watch

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// lookAgain looks at every file whose time has come.
func (t *tree) lookAgain(ctx context.Context) {
	for ctx.Err() == nil {
		t.mu.Lock()
		if len(t.agenda) == 0 || t.agenda[0].due > t.now() {
			t.mu.Unlock()
			return
		}
		e := t.agenda[0]
		t.unschedule(e)
		path := join(t.pathOf(e.dir), e.name)
		t.mu.Unlock()

		info, err := t.fs.Lstat(path)

		t.mu.Lock()
		t.looked(e, info, err)
		t.mu.Unlock()
	}
}

// looked is called with t.mu held, as is everything below that touches no file.
func (t *tree) looked(e *entry, info fs.FileInfo, err error) {
	now := t.now()
	if err == nil {
		e.altered = durable.ChangeTime(info)
	}
	switch {
	case err != nil:
		t.blocked(e, err)
	case info.IsDir():
		t.forget(e)
	case !info.Mode().IsRegular():
		t.list(e.dir, e.name, attachment.NotTakenSpecial, kindOf(info.Mode()), 0, e.scan)
	case e.seen.look(now, identityOf(info)):
		t.restart(e, now, e.seen)
	default:
		code, at := e.seen.next(t.timesIn(e.dir))
		switch code {
		case "":
			t.enqueue(e)
		case attachment.NotTakenEmpty:
			t.park(e, held, code, "", at)
		default:
			e.phase = settling
			t.show(e, code, "")
			t.schedule(e, at)
		}
	}
}

// enqueue makes a file wait for its turn to be probed. The reason why it was held back before stands until then.
func (t *tree) enqueue(e *entry) {
	if !t.place(e, fresh) {
		return
	}
	e.phase = ready
	if e.code == attachment.NotTakenSettling || e.code == attachment.NotTakenEmpty {
		t.show(e, attachment.HoldQueued, "")
	}
	t.queue.add(e, 2*t.count[fresh]+breath)
}

// blocked deals with an error of looking at or opening a file.
func (t *tree) blocked(e *entry, err error) {
	switch {
	case durable.IsNotExist(err):
		t.forget(e)
	case errors.Is(err, durable.ErrNotRegular):
		t.list(e.dir, e.name, attachment.NotTakenSpecial, "", 0, e.scan)
	case errors.Is(err, unix.ENAMETOOLONG):
		t.list(e.dir, e.name, attachment.NotTakenTooDeep, "", e.seen.id.Size, e.scan)
	case errors.Is(err, fs.ErrPermission):
		t.park(e, listed, attachment.NotTakenPermission, "", 0)
	default:
		t.park(e, listed, attachment.NotTakenUnreadable, cause(err), 0)
	}
}

// offer probes files whose turn it is and hands the complete ones over, as many as the channel takes. One more stays
// probed and waits in the loop for room.
func (t *tree) offer(ctx context.Context) {
	for range batch {
		if t.next != nil {
			select {
			case t.out <- t.candidate:
				t.next = nil
			default:
				return
			}
		}
		if ctx.Err() != nil || !t.prepare() {
			return
		}
	}
}

// prepare probes the file whose turn it is; false when none waits.
func (t *tree) prepare() bool {
	t.mu.Lock()
	e := t.queue.next()
	if e == nil {
		t.mu.Unlock()
		return false
	}
	rel := relOf(e.dir.rel(), e.name)
	t.mu.Unlock()

	path := join(t.root.Path, rel)
	id, found, err := t.probe(path)
	linked := err == nil && (t.throughLink(rel) || t.checkMarker() != nil)

	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	switch {
	case linked:
		// A directory on the way was replaced by a link, which a scan will not follow, or the medium is not there any more.
		t.forget(e)
		t.wanted = true
	case err != nil:
		t.blocked(e, err)
	case e.seen.look(now, id):
		t.restart(e, now, e.seen)
	default:
		t.conclude(e, rel, found)
	}
	return true
}

// conclude makes a candidate of a probed file, or has it wait.
func (t *tree) conclude(e *entry, rel string, found writers) {
	evidence, code, at := e.seen.probed(t.now(), found, t.timesIn(e.dir))
	switch code {
	case "":
	case attachment.NotTakenOpen:
		t.park(e, held, code, "", at)
		return
	default:
		e.phase, e.answered = settling, false
		t.show(e, code, "nothing tells whether a program still has it open, so it is watched for longer")
		t.schedule(e, at)
		return
	}
	e.phase, e.changed = offered, false
	if !e.answered {
		t.show(e, attachment.HoldQueued, "")
	}
	if e.witness != nil && e.witness.marked < e.before {
		t.stats.FoundByRescan++
	}
	e.witness = nil
	t.offered[rel] = e
	t.next = e
	t.candidate = Candidate{
		Watch: t.root.Name, Root: t.root.Path, Path: join(t.root.Path, rel), RelPath: rel, ParentDir: parentOf(rel),
		Identity: e.seen.id, Evidence: evidence, Empty: e.seen.id.Size == 0,
		Sidecar: t.names.sidecar(e.name),
	}
}

// throughLink reports whether a directory between the root and a file is not a directory any more.
func (t *tree) throughLink(rel string) bool {
	for i := strings.IndexByte(rel, '/'); i >= 0; {
		info, err := t.fs.Lstat(join(t.root.Path, rel[:i]))
		if err != nil || !info.IsDir() {
			return true
		}
		following := strings.IndexByte(rel[i+1:], '/')
		if following < 0 {
			break
		}
		i += 1 + following
	}
	return false
}

// probeFile opens a file, describes what was opened and asks for a read lease, which it gives back at once: for the
// length of two system calls a program that opens the file for writing waits.
func (t *tree) probeFile(path string) (id attachment.SourceIdentity, found writers, err error) {
	file, err := t.fs.OpenRead(path)
	if err != nil {
		return id, writersUnknown, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return id, writersUnknown, err
	}
	id = identityOf(info)
	lease, err := file.Lease()
	switch {
	case errors.Is(err, durable.ErrBusy):
		return id, writersBusy, nil
	case errors.Is(err, durable.ErrNoLease):
		return id, writersUnknown, nil
	case err != nil:
		return id, writersUnknown, err
	}
	return id, writersNone, lease.Release()
}

// answer leaves the taker's answer for the loop. Only what is out is answered, and only once.
func (t *tree) answer(c Candidate, d Disposition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.offered[c.RelPath]
	if _, answered := t.answers[c.RelPath]; answered || e == nil || e.seen.id != c.Identity {
		return
	}
	t.answers[c.RelPath] = d
	t.signal()
}

// takeAnswers follows the answers that came in.
func (t *tree) takeAnswers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rel, d := range t.answers {
		if e := t.offered[rel]; e != nil && e != t.next {
			t.follow(e, rel, d)
		}
	}
	clear(t.answers)
	t.takeReconsidered()
	if t.full && t.count[fresh] <= t.limits.fresh/2 {
		// There is room again for the files that a scan had to leave.
		t.full, t.wanted = false, true
	}
}

func (t *tree) follow(e *entry, rel string, d Disposition) {
	now, changed := t.now(), e.changed
	if e.again && d.Kind != Taken {
		// What the taker answered may rest on what is no longer so.
		e.again, d = false, Disposition{Kind: Again, Code: d.Code, Detail: d.Detail, Retry: againFloor}
	}
	if d.Kind == Taken || d.Kind == Stays || e.dir.gone {
		t.forget(e)
		if d.Kind == Stays && !t.stays.add(rel, e.seen.id, e.altered, t.walking) {
			t.left = true
		}
		dir := rel[:max(0, strings.LastIndexByte(rel, '/'))]
		if n := t.top.find(dir); changed && n != nil {
			// Something else stands there already, which no scan has observed yet.
			t.enlist(n)
		}
		return
	}
	delete(t.offered, rel)
	e.phase = ready
	if changed {
		// What it is now is not known; the next look tells, and settling begins with it.
		t.restart(e, now, e.seen)
		t.schedule(e, now)
		return
	}
	retry := d.Retry
	if retry <= 0 {
		retry = againRetry
	}
	code := d.Code
	if code == "" {
		code = attachment.HoldQueued
	}
	t.park(e, held, code, d.Detail, now+max(retry, againFloor))
	e.answered = true
}
