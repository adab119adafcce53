package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
)

// visit looks at one entry of a directory that is being listed. An error ends the listing.
func (s *scanner) visit(n *node, dir string, d fs.DirEntry, number uint64) error {
	if err := s.breathe(); err != nil {
		return err
	}
	if n.gone {
		return errGone
	}
	path := join(dir, d.Name())
	if d.IsDir() {
		return s.visitDirectory(n, path, d, number)
	}
	return s.visitFile(n, path, d, number)
}

// breathe counts what is visited and gives everything else its turn from time to time.
func (s *scanner) breathe() error {
	if s.visited++; s.visited%breath != 0 {
		return nil
	}
	began := s.tree.now()
	s.tree.breathe(s.ctx)
	s.inner += s.tree.now() - began
	return s.ctx.Err()
}

func (s *scanner) visitDirectory(n *node, path string, d fs.DirEntry, number uint64) error {
	t, name := s.tree, d.Name()
	if !t.root.Recursive {
		return nil
	}
	if code, detail := t.closedTo(n, name, path); code != "" {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.listDirectory(n, name, code, detail, number)
		return nil
	}
	info, err := d.Info()
	switch {
	case durable.IsNotExist(err):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return err
	case err != nil:
		t.mu.Lock()
		defer t.mu.Unlock()
		t.listDirectory(n, name, attachment.NotTakenUnreadable, cause(err), number)
		return nil
	}
	kid, enter := s.kid(n, name, inodeOf(info), number)
	if enter {
		// A directory that is new is entered at once, and so is everything below it, which is new too: what was put
		// there before it was watched made no event. Meanwhile this one may be listed again for what is new in it.
		n.listing = false
		s.scan(kid, path)
		n.listing = true
	}
	return nil
}

// closedTo says why a directory is not entered.
func (t *tree) closedTo(n *node, name, path string) (attachment.Code, string) {
	switch {
	case hidden(name):
		return attachment.NotTakenTemporary, "hidden directories are not entered"
	case n.depth >= t.limits.depth:
		return attachment.NotTakenTooDeep, fmt.Sprintf("more than %d directories deep", t.limits.depth)
	case len(path) >= t.limits.path:
		return attachment.NotTakenTooDeep, fmt.Sprintf("the path is longer than %d bytes", t.limits.path)
	}
	return "", ""
}

// kid returns the node of a directory that a listing met, and whether it is to be entered.
func (s *scanner) kid(n *node, name string, id inode, number uint64) (kid *node, enter bool) {
	t := s.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	e := n.files[name]
	if e != nil && e.directory {
		e.scan = number
	}
	kid = n.kids[name]
	if kid != nil {
		kid.scan = number
	}
	if !s.deep && (kid == nil || kid.id == id) && e != nil && e.directory && e.code == attachment.NotTakenNotWatched {
		// It cannot be watched, was looked at when it was found and has its turn in the periodic scan.
		return nil, false
	}
	if kid == nil {
		kid = newNode(n, name)
		if n.kids == nil {
			n.kids = map[string]*node{}
		}
		n.kids[name] = kid
		if s.missing {
			kid.doubt, kid.doubtSince = n.witness()
		}
	}
	kid.scan = number
	return kid, s.deep || !kid.watched || kid.id != id
}

// witness is where an event should have announced what a rescan finds in n, and since when.
func (n *node) witness() (*node, time.Duration) {
	if !n.listed {
		return n.doubt, n.doubtSince
	}
	if !n.watched {
		return nil, 0
	}
	return n, n.began
}

func (s *scanner) visitFile(n *node, path string, d fs.DirEntry, number uint64) error {
	t, name := s.tree, d.Name()
	judged := t.names.judge(name)
	if judged == nameSkipped || t.isMarker(n, name) {
		return nil
	}
	info, err := d.Info()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case durable.IsNotExist(err):
		return nil
	case errors.Is(err, unix.ENAMETOOLONG), len(path) > t.limits.path:
		t.list(n, name, attachment.NotTakenTooDeep, fmt.Sprintf("the path is longer than %d bytes", t.limits.path), 0, number)
	case errors.Is(err, fs.ErrPermission):
		// The directory can be listed and not entered: every file in it is the same.
		return err
	case err != nil:
		t.list(n, name, attachment.NotTakenUnreadable, cause(err), 0, number)
	case info.IsDir():
		// It was replaced while the directory was listed; the event, or the next scan, shows it.
	case !info.Mode().IsRegular():
		t.list(n, name, attachment.NotTakenSpecial, kindOf(info.Mode()), 0, number)
	case judged == nameTemporary:
		t.list(n, name, attachment.NotTakenTemporary, "", info.Size(), number)
	default:
		s.see(n, path, name, info, number)
	}
	return nil
}

// kindOf names what is not a regular file.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link, which is not followed"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}

// identityOf is a file's identity in the words of the domain.
func identityOf(info fs.FileInfo) attachment.SourceIdentity {
	id, _, _ := durable.IdentityOf(info)
	return attachment.SourceIdentity(id)
}

// see records that a scan met a regular file. It is called with t.mu held.
func (s *scanner) see(n *node, path, name string, info fs.FileInfo, number uint64) {
	t, now, id := s.tree, s.tree.now(), identityOf(info)
	e := n.files[name]
	if e != nil && e.phase == passive {
		t.forget(e)
		e = nil
	}
	if e == nil {
		rel, _ := below(t.root.Path, path)
		if out := t.offered[rel]; out != nil {
			out.changed = true
			return
		}
		if t.stays.holds(rel, id, durable.ChangeTime(info), t.walking) {
			return
		}
		if s.walk && t.count[fresh] >= t.limits.fresh-t.limits.fresh/announcedShare {
			t.postpone(fresh)
			return
		}
		if e = t.newEntry(n, name, fresh, number); e == nil {
			return
		}
		e.walked, e.altered = s.walk, durable.ChangeTime(info)
		if s.missing {
			e.witness, e.before = n.witness()
		}
		t.restart(e, now, observe(now, id))
		return
	}
	e.scan = number
	switch {
	case e.phase == offered && t.next != e:
		e.changed = e.changed || id != e.seen.id
	case e.seen.look(now, id):
		t.restart(e, now, e.seen)
	case e.phase == parked && e.index < 0:
		// It could not be opened when it was tried; its permissions may be others now.
		t.schedule(e, now+t.timesIn(n).settle)
	}
}
