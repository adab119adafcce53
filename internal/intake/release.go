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

// asidePrefix begins the name that a source has while it is being removed; its sidecar's name ends with asideSidecar. Watches
// pass such names over.
const (
	asidePrefix  = ".fieldgw-release-"
	asideSidecar = ".sidecar"
)

// Why a source is kept although its watch moves files.
const (
	keptNoLease = "no lease can be had on it, so nobody can prove that no program still writes to it"
	keptChanged = "it changed after it was taken; the new content is a new file"
)

// leaving is a file that is to leave a capture directory: a source that was copied, or a sidecar that was kept.
type leaving struct {
	id          attachment.ID
	path, aside string
	// source says where it was seen, and as what.
	source attachment.Source
	sha256 attachment.Digest
	// released, vanished and kept record what became of it.
	released, vanished func(context.Context, attachment.ID) error
	kept               func(ctx context.Context, id attachment.ID, why string) error
}

func (in *Intake) sourceOf(m *attachment.Manifest) leaving {
	path := m.Source.Path.Exact()
	return leaving{
		id: m.ID, path: path, aside: filepath.Join(filepath.Dir(path), asidePrefix+string(m.ID)), source: m.Source,
		sha256: m.SHA256, released: in.Queue.SourceReleased, vanished: in.Queue.SourceVanished, kept: in.Queue.SourceKept,
	}
}

func (in *Intake) sidecarOf(m *attachment.Manifest) leaving {
	s := m.Binding.Sidecar
	path := s.Path.Exact()
	source := m.Source // it lay beside the file, on the same medium
	source.Identity = s.Identity
	return leaving{
		id: m.ID, path: path, aside: filepath.Join(filepath.Dir(path), asidePrefix+string(m.ID)+asideSidecar), source: source,
		sha256: s.SHA256, released: in.Queue.SidecarReleased, vanished: in.Queue.SidecarReleased, kept: in.Queue.SidecarKept,
	}
}

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
			err := in.releaseBoth(ctx, m)
			in.letGo(string(m.ID))
			if err != nil {
				return err
			}
		}
	}
}

func (in *Intake) releaseBoth(ctx context.Context, m *attachment.Manifest) error {
	if m.Source.ReleasePending {
		if _, err := in.release(ctx, in.sourceOf(m)); err != nil {
			return err
		}
	}
	if s := m.Binding.Sidecar; s != nil && s.ReleasePending {
		_, err := in.release(ctx, in.sidecarOf(m))
		return err
	}
	return nil
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
	return a.release(ctx, a.sourceOf(e.Manifest))
}

// release renames the source aside, so that nobody can open it by its name any more, proves that it is still the file
// that was copied and that nobody writes to it, and unlinks it. Otherwise it goes back: a changed file is a new
// candidate. A crash in between leaves the file under its other name, where the next call finds it. An error means that
// the queue cannot record what was done; trouble with the source itself leaves it pending and is logged.
func (in *Intake) release(ctx context.Context, l leaving) (released bool, err error) {
	medium, there, gone, err := in.whereabouts(l)
	switch {
	case err != nil:
		in.notRemoved(ctx, l.id, err)
		return false, nil
	case gone:
		return true, l.vanished(ctx, l.id)
	case !there:
		return false, nil // its card is not mounted; nothing follows from that
	}
	kept, err := in.setAside(l, medium)
	if err != nil {
		in.notRemoved(ctx, l.id, err)
		return false, nil
	}
	if kept != "" {
		return false, l.kept(ctx, l.id, kept)
	}
	gone, kept, err = in.removeAside(ctx, l, medium)
	if !gone && (err == nil || errors.Is(err, errOtherCard)) {
		err = errors.Join(err, in.putBack(l))
	}
	if err != nil {
		in.notRemoved(ctx, l.id, err)
		return false, nil
	}
	if kept != "" {
		return false, l.kept(ctx, l.id, kept)
	}
	if !gone {
		in.Logger.Debug("source is in use", slog.String(logging.KeyAttachment, string(l.id)))
		return false, nil
	}
	return true, l.released(ctx, l.id)
}

// whereabouts says whether the source is there, under its own name or aside, or provably gone: its directory stands on the
// medium that it was seen on, without it. Anything else proves nothing, since a card that is not mounted looks the same, and
// what stands on another card is none of its business.
func (in *Intake) whereabouts(l leaving) (medium Medium, there, gone bool, err error) {
	info, err := in.FS.Lstat(filepath.Dir(l.path))
	if durable.IsNotExist(err) {
		return medium, false, false, nil
	}
	if err != nil {
		return medium, false, false, err
	}
	dir, _, _ := durable.IdentityOf(info)
	medium = in.mediumOf(l.source.Watch, l.path, dir.Device)
	same, named := medium.same(l.source.Medium)
	if named && !same {
		// Only a card that was changed in the very moment of a release has a file of its own aside.
		if ok, err := in.FS.Exists(l.aside); err != nil || !ok {
			return medium, false, false, err
		}
		return medium, false, false, in.putBack(l)
	}
	for _, p := range []string{l.aside, l.path} {
		if ok, err := in.FS.Exists(p); err != nil || ok {
			return medium, ok, false, err
		}
	}
	return medium, false, same || dir.Device == l.source.Identity.Device, nil
}

// notRemoved tells of trouble with removing sources, without filling the log while it lasts.
func (in *Intake) notRemoved(ctx context.Context, id attachment.ID, err error) {
	in.trouble.Fail(ctx, in.Logger, "release", "a source is not removed yet", slog.String(logging.KeyAttachment, string(id)), slog.Any(logging.KeyErr, err))
}

// setAside looks at the source under its own name before it is touched, and renames it. A source that stands aside already
// is fine.
func (in *Intake) setAside(l leaving, medium Medium) (kept string, err error) {
	if ok, err := in.FS.Exists(l.aside); err != nil || ok {
		return "", err
	}
	info, err := in.FS.Lstat(l.path)
	if err != nil {
		return "", err
	}
	if kept, err := medium.changed(info, l.source.Identity, l.source.Medium); kept != "" || err != nil {
		return kept, err
	}
	f, err := in.FS.OpenRead(l.path)
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
	if err := in.FS.RenameNew(l.path, l.aside); err != nil {
		return "", err
	}
	return "", in.FS.SyncDir(filepath.Dir(l.path))
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
func (in *Intake) removeAside(ctx context.Context, l leaving, medium Medium) (gone bool, kept string, err error) {
	f, err := in.FS.OpenRead(l.aside)
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
	if kept, err := medium.changed(info, l.source.Identity, l.source.Medium); kept != "" || err != nil {
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
	if sum.SHA256 != l.sha256 {
		return false, keptChanged, nil
	}
	if held() != nil {
		return false, "", nil
	}
	if err := in.FS.Remove(l.aside); err != nil {
		return false, "", err
	}
	return true, "", in.FS.SyncDir(filepath.Dir(l.aside))
}

// putBack gives a source its name back, or one beside it when another file has that name by now.
func (in *Intake) putBack(l leaving) error {
	err := in.FS.RenameNew(l.aside, l.path)
	if durable.IsExist(err) {
		err = in.FS.RenameNew(l.aside, besideName(l.path, l.id))
	}
	if err != nil {
		return err
	}
	return in.FS.SyncDir(filepath.Dir(l.path))
}
