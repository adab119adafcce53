package intake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/sidecar"
	"github.com/fieldgw/fieldgw/internal/spool"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Binding by a sidecar comes after custody of the file, in whichever order the two arrived:
//
//	1  write what the sidecar says beside the payload as ID.sidecar        nothing: the sidecar still stands
//	2  write ID.manifest anew, with the facts                              a queue made anew would know them
//	3  commit facts, journal, and that nothing is missing                  COMMIT POINT: "bound" is logged
//	4  in a watch that moves: remove the sidecar as a copied source is     sidecar gone
//
// A crash before 3 is settled by finishBinding.

// TakeSidecar binds what a sidecar speaks of. A *NotTakenError leaves the sidecar where it was and says why; any other error
// means that queue or spool cannot be trusted to go on.
func (in *Intake) TakeSidecar(ctx context.Context, req Request) (Result, error) {
	name := filepath.Base(req.Path)
	target, one := sidecar.Target(name)
	limit := sidecar.MaxFile
	if !one {
		limit = sidecar.MaxManifest
	}
	data, err := in.readSidecar(req, limit)
	if err != nil {
		return Result{}, err
	}
	if !one {
		return Result{Stays: true}, in.takeManifest(ctx, req, data)
	}
	cut := len(name) - len(target)
	rel, path := req.RelPath[:len(req.RelPath)-cut], req.Path[:len(req.Path)-cut]
	found, err := in.Queue.Unbound(req.Watch, rel, shownIDs)
	if err != nil {
		return Result{}, err
	}
	facts, refused := sidecar.ParseFile(data)
	if refused != nil {
		return Result{}, in.refuse(ctx, name, refused, found)
	}
	if len(found) == 0 {
		return in.nothingToBind(req, data, rel, path)
	}
	if err := in.bind(ctx, req, binding{facts: facts, data: data, found: found}); err != nil {
		return Result{}, err
	}
	released, err := in.releaseSidecar(ctx, found[0].ID)
	return Result{ID: found[0].ID, Stays: !released}, err
}

// releaseSidecar removes a sidecar that was just used, where its watch wants that. What cannot be removed now stays pending.
func (in *Intake) releaseSidecar(ctx context.Context, id attachment.ID) (released bool, err error) {
	if !in.hold(string(id)) {
		return false, nil
	}
	defer in.letGo(string(id))
	e, err := in.Queue.Get(id)
	if err != nil || e.Manifest == nil || e.Manifest.Binding.Sidecar == nil || !e.Manifest.Binding.Sidecar.ReleasePending {
		return false, err
	}
	return in.release(ctx, in.sidecarOf(e.Manifest))
}

// shownIDs bounds how many attachments of one path are looked at and named.
const shownIDs = 5

// readSidecar reads a sidecar that nobody writes to, and one byte more than it may have.
func (in *Intake) readSidecar(req Request, limit int) (data []byte, err error) {
	f, err := in.openSource(req.Path, req.Identity)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lease, err := f.Lease()
	if errors.Is(err, durable.ErrBusy) {
		return nil, notTaken(attachment.NotTakenOpen, "", err)
	}
	if data, err = io.ReadAll(io.LimitReader(f, int64(limit)+1)); err != nil {
		return nil, readError(err)
	}
	if lease != nil && !lease.Held() {
		return nil, notTaken(attachment.NotTakenOpen, "a program opened it for writing", nil)
	}
	return data, sameFile(f, req.Identity)
}

// refuse has people look at what a sidecar that cannot be used belongs to.
func (in *Intake) refuse(ctx context.Context, name string, refused error, found []*attachment.Manifest) error {
	detail := attachment.NameOf(name).Printable() + ":" + refused.Error()
	for _, m := range found {
		if _, err := in.Queue.RefuseSidecar(ctx, m.ID, detail); err != nil {
			return storageError(err)
		}
	}
	return notTaken(attachment.NeedsSidecarInvalid, detail, nil)
}

// nothingToBind says what a sidecar waits for when nothing that it could bind came from its path.
func (in *Intake) nothingToBind(req Request, data []byte, rel, path string) (Result, error) {
	id, sum, known, err := in.Queue.SidecarAt(req.Watch, req.RelPath)
	switch {
	case err != nil:
		return Result{}, err
	case known && sum == sha256.Sum256(data):
		return Result{ID: id, Known: true, Stays: true}, nil
	case known:
		return Result{}, notTaken(attachment.NotTakenSidecarLate, "another content of this sidecar bound "+string(id), nil)
	}
	info, err := in.FS.Lstat(path)
	if durable.IsNotExist(err) {
		return Result{}, notTaken(attachment.NotTakenSidecarAlone, "", nil)
	}
	if err != nil {
		return Result{}, notTaken(attachment.NotTakenUnreadable, "", err)
	}
	identity, _, _ := durable.IdentityOf(info)
	taken, done, err := in.Queue.Known(queue.Sighting{
		Watch: req.Watch, RelPath: rel, Medium: in.mediumOf(req.Watch, path, identity.Device).Name,
		Identity: attachment.SourceIdentity(identity),
	})
	if err != nil {
		return Result{}, err
	}
	if done {
		return Result{}, notTaken(attachment.NotTakenSidecarLate, "its file is "+string(taken.ID), nil)
	}
	return Result{}, notTaken(attachment.NotTakenSidecarWaits, "", nil)
}

// takeManifest binds what a directory's manifest names of what came from that directory. A sidecar of a file's own goes
// first. The manifest stays where it is.
func (in *Intake) takeManifest(ctx context.Context, req Request, data []byte) error {
	dir := req.RelPath[:len(req.RelPath)-len(filepath.Base(req.RelPath))]
	files, refused := sidecar.ParseManifest(data)
	if refused != nil {
		found, err := in.Queue.UnboundBelow(req.Watch, strings.TrimSuffix(dir, "/"), refusedPage)
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(m *attachment.Manifest) bool { return in.hasOwn(req, m) })
		return in.refuse(ctx, filepath.Base(req.Path), refused, found)
	}
	var first error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		found, err := in.Queue.Unbound(req.Watch, dir+name, shownIDs)
		if err != nil {
			return err
		}
		if len(found) == 0 || in.hasOwn(req, found[0]) {
			continue
		}
		err = in.bind(ctx, req, binding{facts: files[name].Facts, data: files[name].Text, found: found, entry: true})
		var nt *NotTakenError
		if err != nil && !errors.As(err, &nt) {
			return err
		}
		if nt != nil && nt.Code != attachment.NotTakenSidecarLate && first == nil {
			first = err
		}
	}
	return first
}

// hasOwn reports whether a sidecar of its own stands beside the file that an attachment came from.
func (in *Intake) hasOwn(req Request, m *attachment.Manifest) bool {
	for _, own := range sidecar.Own(m.Source.Path.Exact()) {
		if there, err := in.FS.Exists(own); (err != nil || there) && filepath.Base(own) != filepath.Base(req.Path) {
			return true
		}
	}
	return false
}

// refusedPage bounds how many attachments are sent to attention for one manifest that cannot be used.
const refusedPage = 1000

// binding is what is about to be bound.
type binding struct {
	facts sidecar.Facts
	// data is what travels with the payload: the sidecar, or an entry of a manifest.
	data  []byte
	entry bool
	// found are the attachments that came from the path.
	found []*attachment.Manifest
}

// bind does the steps of the table above, all but the last.
func (in *Intake) bind(ctx context.Context, req Request, b binding) error {
	m := b.found[0]
	if len(b.found) > 1 {
		return ambiguous(b.found)
	}
	if !in.hold(string(m.ID)) {
		return notTaken(attachment.NotTakenSidecarWaits, "its file is being worked on", nil)
	}
	defer in.letGo(string(m.ID))
	if err := in.Queue.Bindable(m.ID); err != nil {
		return in.notBound(m.ID, err)
	}
	edit := b.edit(req)
	bound := m.Clone()
	edit(bound)
	switch {
	case bound.Validate() != nil:
		refused := fmt.Errorf("1:1: supersedes or of names the file itself, %s", m.ID)
		return in.refuse(ctx, filepath.Base(req.Path), refused, b.found)
	case m.Prepared && bound.Role != m.Role:
		// The server may know it already, and compares the role with what it knows.
		return notTaken(attachment.NotTakenSidecarLate, "its file was announced as "+string(m.Role), nil)
	}
	if p := bound.Problem; p != nil && p.Code == attachment.NeedsSidecarInvalid {
		bound.State, bound.Problem = attachment.Captured, nil // answered: it must not travel
	}
	segments, err := in.Queue.Segments(m.ID)
	if err != nil {
		return err
	}
	err = in.Spool.WriteSidecar(m.ID, b.data)
	if err == nil {
		err = in.Spool.RewriteManifest(&attachment.Travelling{Manifest: *bound, Segments: segments})
	}
	if err == nil {
		err = in.Queue.Bind(ctx, m.ID, edit)
		if err != nil && !refusedByQueue(err) {
			return err // the outcome is not known: start-up looks what became of it
		}
	}
	if err == nil {
		return nil
	}
	if uerr := in.unbind(m.ID); uerr != nil {
		in.warn("a binding could not be undone; the next start looks at it", m.ID, uerr)
	}
	if errors.Is(err, spool.ErrMissing) {
		return notTaken(attachment.NotTakenSidecarWaits, "its payload is missing", err)
	}
	return in.notBound(m.ID, err)
}

func ambiguous(found []*attachment.Manifest) error {
	var ids []string
	for _, m := range found {
		ids = append(ids, string(m.ID))
	}
	return notTaken(attachment.NotTakenSidecarAmbiguous, strings.Join(ids, ", "), nil)
}

// notBound sorts an error of Queue.Bind: what is known to have changed nothing is a *NotTakenError. A worker that has the
// attachment is stopped, so that the sidecar is not late.
func (in *Intake) notBound(id attachment.ID, err error) error {
	switch {
	case errors.Is(err, queue.ErrClaimed):
		in.Queue.Interrupt(id, queue.ErrBinding)
		return notTaken(attachment.NotTakenSidecarWaits, "its file is being sent", err)
	case errors.Is(err, queue.ErrNotUnbound):
		return notTaken(attachment.NotTakenSidecarLate, "its file is "+string(id), err)
	case errors.Is(err, queue.ErrAmbiguous):
		return notTaken(attachment.NotTakenSidecarAmbiguous, "", err)
	}
	return storageError(err)
}

// refusedByQueue reports whether an error of Queue.Bind says that nothing changed.
func refusedByQueue(err error) bool {
	for _, of := range []error{queue.ErrClaimed, queue.ErrNotUnbound, queue.ErrAmbiguous, store.ErrNoSpace, attachment.ErrBadManifest} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// edit writes into a manifest what the sidecar says. What it leaves out stays as it was.
func (b binding) edit(req Request) func(*attachment.Manifest) {
	s := attachment.Sidecar{
		Path: attachment.NameOf(req.Path), RelPath: attachment.NameOf(req.RelPath), Identity: req.Identity,
		SHA256: sha256.Sum256(b.data), Entry: b.entry, ReleasePending: req.Move && !b.entry,
	}
	f := b.facts
	return func(m *attachment.Manifest) {
		kept := s
		m.Parent.LocalID, m.Binding.Sidecar = attachment.NameOf(f.Parent), &kept
		setPriority(m, f.Priority)
		m.Supersedes, m.Description, m.Of = f.Supersedes, f.Description, f.Of
		if f.Role != "" {
			m.Role = f.Role
		}
		if !f.CapturedAt.IsZero() {
			m.CapturedAt, m.CapturedAtSource = f.CapturedAt, "sidecar"
		}
	}
}

// setPriority sets what a sidecar says. What a person put to the front stays there.
func setPriority(m *attachment.Manifest, priority int) {
	if m.Priority < attachment.PriorityFront {
		m.Priority = priority
	}
}

// adopted copies what a sidecar said from one manifest of an attachment to another.
func adopted(from *attachment.Manifest) func(*attachment.Manifest) {
	return func(m *attachment.Manifest) {
		kept := *from.Binding.Sidecar
		m.Parent.LocalID, m.Binding.Sidecar = from.Parent.LocalID, &kept
		setPriority(m, from.Priority)
		m.Supersedes, m.Description, m.Of, m.Role = from.Supersedes, from.Description, from.Of, from.Role
		m.CapturedAt, m.CapturedAtSource = from.CapturedAt, from.CapturedAtSource
	}
}

// unbind takes back the first two steps: the manifest first, so that it never speaks of a sidecar that is not there.
func (in *Intake) unbind(id attachment.ID) error {
	e, err := in.Queue.Get(id)
	if err != nil || e.Manifest == nil || e.Manifest.Binding.Sidecar != nil {
		return err
	}
	segments, err := in.Queue.Segments(id)
	if err == nil {
		err = in.Spool.RewriteManifest(&attachment.Travelling{Manifest: *e.Manifest, Segments: segments})
	}
	if err != nil && !errors.Is(err, spool.ErrMissing) {
		return err
	}
	return in.Spool.DropSidecar(id)
}

// finishBinding deals with a sidecar beside a payload whose record is not bound: it commits what the manifest there says, and
// takes it back where the manifest says nothing or the attachment cannot be bound any more. The sidecar's source stands.
func (in *Intake) finishBinding(ctx context.Context, m *attachment.Manifest) error {
	area, found, err := in.Spool.Locate(m.ID)
	if err != nil {
		return err
	}
	if found {
		t, terr := in.Spool.ReadManifest(area, m.ID)
		kept, serr := in.Spool.ReadSidecar(m.ID)
		if terr == nil && serr == nil && t.Manifest.Binding.Sidecar != nil && t.Manifest.Binding.Sidecar.SHA256 == sha256.Sum256(kept) {
			err := in.Queue.Bind(ctx, m.ID, adopted(&t.Manifest))
			if err == nil || !refusedByQueue(err) {
				return err
			}
		}
	}
	return in.unbind(m.ID)
}
