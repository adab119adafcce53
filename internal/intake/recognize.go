package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// A source that was seen before is recognized in two steps. The ledger knows it by path, medium, size and time, and that
// is enough where nothing contradicts it. Otherwise, when anything of its length came from its watch, it is read, and its
// bytes decide:
//
//	its path became the same bytes before         it was touched or mounted elsewhere: known
//	they stay in the same parent under a name     it was renamed: known under its new name (copy)
//	that leads to them no more
//	they were taken in the same parent            a repetition: taken again and marked, or left alone
//	anything else                                 a new file, whatever its name

func (a *adoption) sighting() queue.Sighting {
	return queue.Sighting{Watch: a.req.Watch, RelPath: a.req.RelPath, Medium: a.medium.Name, Identity: a.req.Identity, ChangedNS: a.changed}
}

// lookUp asks the ledger. alike says that the source is not known by its description and may be by its bytes.
func (a *adoption) lookUp() (result Result, alike bool, err error) {
	row, found, err := a.Queue.Known(a.sighting())
	if err != nil {
		return Result{}, false, err
	}
	if !found {
		alike, err := a.Queue.HasLength(a.req.Watch, a.req.Identity.Size)
		return Result{}, alike, err
	}
	e, err := a.Queue.Get(row.ID)
	if errors.Is(err, queue.ErrNotFound) {
		return Result{}, true, nil
	}
	if err != nil {
		return Result{}, false, err
	}
	if !a.certain(row) {
		return Result{}, true, nil
	}
	if m := e.Manifest; m != nil && a.req.Move && m.Source.RelPath.Exact() != a.req.RelPath {
		// It was left alone as a repetition, and is one for as long as the watch skips them.
		if a.req.SkipRepeated && queue.Kept(m) {
			return Result{}, false, repeated(m)
		}
		return Result{}, true, nil
	}
	return Result{ID: row.ID, Known: true, Stays: true}, false, nil
}

// certain reports whether a source that the ledger knows needs no reading. Another file of the same name can have been
// given the old one's time and, on ext4, its inode number, and a camera without a clock gives all its files one time. The
// change time, which no program can set, tells them apart where numbers of files last.
func (a *adoption) certain(row queue.Known) bool {
	sameInode := row.Inode == a.req.Identity.Inode
	sameDevice := row.Device == a.req.Identity.Device
	clock := a.req.Identity.MTimeNS >= clockless
	named := a.medium.Name != ""
	if a.medium.Fleeting {
		return clock && (named || sameInode && sameDevice)
	}
	return sameInode && (named || sameDevice) && row.ChangedNS != 0 && row.ChangedNS == a.changed
}

// recognize reads the source and looks its bytes up.
func (a *adoption) recognize(ctx context.Context) (Result, error) {
	if err := a.readSource(ctx); err != nil {
		return Result{}, err
	}
	s := a.sighting()
	samePath, sameParent, err := a.Queue.Alike(s, a.req.Parent, a.read.sum.SHA256)
	if err != nil {
		return Result{}, err
	}
	for _, m := range append(samePath, sameParent...) {
		if m.Source.RelPath.Exact() == a.req.RelPath && stayed(m) && !queue.Damaged(m) {
			return a.known(m, a.Queue.Remember(ctx, s, m.ID))
		}
	}
	var first *attachment.Manifest
	for _, m := range sameParent {
		if !queue.Kept(m) {
			continue
		}
		if first == nil {
			first = m
		}
		if !a.req.Move && stayed(m) && !a.standsElsewhere(m) {
			return a.known(m, a.Queue.SeenAgain(ctx, s, m.ID, a.req.Path, "seen as "+attachment.Printable(a.req.RelPath)))
		}
	}
	switch {
	case first == nil || !a.req.SkipRepeated:
		return Result{}, nil // where first is something, the commit marks the new one as its repetition
	case a.req.Move:
		if err := a.Queue.Remember(ctx, s, first.ID); err != nil {
			return Result{}, err
		}
		return Result{}, repeated(first)
	}
	return a.known(first, a.Queue.SeenAgain(ctx, s, first.ID, "", "the same bytes stand at "+attachment.Printable(a.req.RelPath)+"; skipped"))
}

func (a *adoption) known(m *attachment.Manifest, err error) (Result, error) {
	return Result{ID: m.ID, Known: true, Stays: true}, storageError(err)
}

// stayed reports whether an attachment's source was left in its directory.
func stayed(m *attachment.Manifest) bool {
	return (m.Custody == attachment.CustodyCopy || m.Custody == attachment.CustodyClone) && !m.Source.Released
}

// standsElsewhere reports whether an attachment's source still stands beside the one at hand. Two names of one file are one
// source.
func (a *adoption) standsElsewhere(m *attachment.Manifest) bool {
	info, err := a.FS.Lstat(m.Source.Path.Exact())
	if err != nil {
		return !durable.IsNotExist(err)
	}
	got, _, _ := durable.IdentityOf(info)
	at := attachment.SourceIdentity(got)
	switch {
	case at.Device == a.req.Identity.Device && at.Inode == a.req.Identity.Inode:
		return false
	case !info.Mode().IsRegular() || at.Size != m.Length:
		return false
	}
	// The name may have been given to another file since.
	return a.medium.Fleeting || m.Source.Identity.Inode != a.req.Identity.Inode
}

func repeated(m *attachment.Manifest) error {
	return notTaken(attachment.NotTakenRepeated, fmt.Sprintf("repeats %s, taken as %s", m.Filename.Printable(), m.ID), nil)
}
