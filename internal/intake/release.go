package intake

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// asidePrefix begins the name that a source has while it is being removed. Watches pass such names over.
const asidePrefix = ".fieldgw-release-"

// Why a source is kept although its watch moves files.
const (
	keptNoLease = "no lease can be had on it, so nobody can prove that no program still writes to it"
	keptChanged = "it changed after it was taken; the new content is a new file"
)

// errOtherCard says that another file stands in a source's place, on another device: perhaps another card is mounted.
var errOtherCard = errors.New("another file stands in its place on another device")

// releasePage bounds how many sources are looked at before the next page is read.
const releasePage = 64

// ReleasePending removes the sources of copied files that were secured and whose source could not be removed at once:
// after a crash, or while a program had it open. Sources in use stay pending.
func (in *Intake) ReleasePending(ctx context.Context) error {
	var after attachment.ID
	for {
		page, err := in.Queue.Unreleased(after, releasePage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, m := range page {
			after = m.ID
			if !in.hold(string(m.ID)) {
				continue
			}
			_, err := in.release(ctx, m)
			in.letGo(string(m.ID))
			if err != nil {
				return err
			}
		}
	}
}

// releaseOpen is release right after a copy.
func (a *adoption) releaseOpen(ctx context.Context) (released bool, err error) {
	e, err := a.Queue.Get(a.id)
	if err != nil || e.Manifest == nil {
		return false, err
	}
	// The copy's lease ends here; release takes its own on the file under its other name.
	if a.lease != nil {
		if err := a.lease.Release(); err != nil {
			a.warn("lease could not be released", a.id, err)
		}
	}
	return a.release(ctx, e.Manifest)
}

// release renames the source aside, so that nobody can open it by its name any more, proves that it is still the file
// that was copied and that nobody writes to it, and unlinks it. Otherwise it goes back: a changed file is a new
// candidate. A crash in between leaves the file under its other name, where the next call finds it. An error means that
// the queue cannot record what was done; trouble with the source itself leaves it pending and is logged.
func (in *Intake) release(ctx context.Context, m *attachment.Manifest) (released bool, err error) {
	path := m.Source.Path.Exact()
	aside := filepath.Join(filepath.Dir(path), asidePrefix+string(m.ID))
	medium, there, gone, err := in.whereabouts(path, aside, m)
	switch {
	case err != nil:
		in.notRemoved(ctx, m.ID, err)
		return false, nil
	case gone:
		return true, in.Queue.SourceVanished(ctx, m.ID)
	case !there:
		return false, nil // its card is not mounted; nothing follows from that
	}
	kept, err := in.setAside(path, aside, m, medium)
	if err != nil {
		in.notRemoved(ctx, m.ID, err)
		return false, nil
	}
	if kept != "" {
		return false, in.Queue.SourceKept(ctx, m.ID, kept)
	}
	gone, kept, err = in.removeAside(ctx, aside, m, medium)
	if !gone && (err == nil || errors.Is(err, errOtherCard)) {
		err = errors.Join(err, in.putBack(aside, path, m.ID))
	}
	if err != nil {
		in.notRemoved(ctx, m.ID, err)
		return false, nil
	}
	if kept != "" {
		return false, in.Queue.SourceKept(ctx, m.ID, kept)
	}
	if !gone {
		in.Logger.Debug("source is in use", slog.String(logging.KeyAttachment, string(m.ID)))
		return false, nil
	}
	return true, in.Queue.SourceReleased(ctx, m.ID)
}

// whereabouts says whether the source is there, under its own name or aside, or provably gone: its directory stands on the
// medium that it was seen on, without it. Anything else proves nothing, since a card that is not mounted looks the same, and
// what stands on another card is none of its business.
func (in *Intake) whereabouts(path, aside string, m *attachment.Manifest) (medium Medium, there, gone bool, err error) {
	info, err := in.FS.Lstat(filepath.Dir(path))
	if durable.IsNotExist(err) {
		return medium, false, false, nil
	}
	if err != nil {
		return medium, false, false, err
	}
	dir, _, _ := durable.IdentityOf(info)
	medium = in.mediumOf(m.Source.Watch, path, dir.Device)
	same, named := medium.same(m.Source.Medium)
	if named && !same {
		// Only a card that was changed in the very moment of a release has a file of its own aside.
		if ok, err := in.FS.Exists(aside); err != nil || !ok {
			return medium, false, false, err
		}
		return medium, false, false, in.putBack(aside, path, m.ID)
	}
	for _, p := range []string{aside, path} {
		if ok, err := in.FS.Exists(p); err != nil || ok {
			return medium, ok, false, err
		}
	}
	return medium, false, same || dir.Device == m.Source.Identity.Device, nil
}

// notRemoved tells of trouble with removing sources, without filling the log while it lasts.
func (in *Intake) notRemoved(ctx context.Context, id attachment.ID, err error) {
	in.trouble.Fail(ctx, in.Logger, "release", "a source is not removed yet", slog.String(logging.KeyAttachment, string(id)), slog.Any(logging.KeyErr, err))
}

// setAside looks at the source under its own name before it is touched, and renames it. A source that stands aside already
// is fine.
func (in *Intake) setAside(path, aside string, m *attachment.Manifest, medium Medium) (kept string, err error) {
	if ok, err := in.FS.Exists(aside); err != nil || ok {
		return "", err
	}
	info, err := in.FS.Lstat(path)
	if err != nil {
		return "", err
	}
	if kept, err := medium.changed(info, m.Source.Identity, m.Source.Medium); kept != "" || err != nil {
		return kept, err
	}
	f, err := in.FS.OpenRead(path)
	if err != nil {
		return "", err
	}
	lease, err := f.Lease()
	if lease != nil {
		err = lease.Release()
	}
	if err := errors.Join(err, f.Close()); errors.Is(err, durable.ErrNoLease) {
		return keptNoLease, nil
	} else if err != nil {
		return "", err
	}
	if err := in.FS.RenameNew(path, aside); err != nil {
		return "", err
	}
	return "", in.FS.SyncDir(filepath.Dir(path))
}

// changed says why what stands in a source's place cannot be it. On another device than the medium's, or on one that cannot
// be told to be the source's, it proves nothing: perhaps another card is mounted, since a moment ago.
func (m Medium) changed(info fs.FileInfo, want attachment.SourceIdentity, recorded string) (kept string, err error) {
	got, _, _ := durable.IdentityOf(info)
	same, _ := m.same(recorded)
	switch {
	case got.Device != m.Device:
		return "", errOtherCard
	case m.maybe(attachment.SourceIdentity(got), want, recorded):
		return "", nil
	case !same && got.Device != want.Device:
		return "", errOtherCard
	}
	return keptChanged, nil
}

// removeAside unlinks the file under its other name when it is provably the one that was copied.
func (in *Intake) removeAside(ctx context.Context, aside string, m *attachment.Manifest, medium Medium) (gone bool, kept string, err error) {
	f, err := in.FS.OpenRead(aside)
	if durable.IsNotExist(err) {
		return true, "", nil
	}
	if err != nil {
		return false, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lease, err := f.Lease()
	if errors.Is(err, durable.ErrBusy) {
		return false, "", nil
	}
	if errors.Is(err, durable.ErrNoLease) {
		return false, keptNoLease, nil
	}
	if err != nil {
		return false, "", err
	}
	info, err := f.Stat()
	if err != nil {
		return false, "", err
	}
	if kept, err := medium.changed(info, m.Source.Identity, m.Source.Medium); kept != "" || err != nil {
		return false, kept, err
	}
	held := func() error {
		if !lease.Held() {
			return errBroken
		}
		return nil
	}
	sum, err := spool.Fingerprint(ctx, f, held)
	if errors.Is(err, errBroken) {
		return false, "", nil
	}
	if err != nil {
		return false, "", err
	}
	if sum.SHA256 != m.SHA256 {
		return false, keptChanged, nil
	}
	if held() != nil {
		return false, "", nil
	}
	if err := in.FS.Remove(aside); err != nil {
		return false, "", err
	}
	return true, "", in.FS.SyncDir(filepath.Dir(aside))
}

// putBack gives a source its name back, or one beside it when another file has that name by now.
func (in *Intake) putBack(aside, path string, id attachment.ID) error {
	err := in.FS.RenameNew(aside, path)
	if durable.IsExist(err) {
		err = in.FS.RenameNew(aside, besideName(path, id))
	}
	if err != nil {
		return err
	}
	return in.FS.SyncDir(filepath.Dir(path))
}
