package intake

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// errMayNotMove is returned when the source's directory may not be written to.
var errMayNotMove = errors.New("the source's directory may not be written to")

// errNotSynced is returned when the source's own blocks could not be made durable. The kernel reports such an error once
// and takes the pages for written from then on (fsync(2), "EIO"): the bytes can still be read, but no later sync of that
// file means anything, so they are copied to new blocks.
var errNotSynced = errors.New("the source could not be made durable where it is")

// errBroken says that a program opened the file for writing while it was being moved.
var errBroken = errors.New("lease is broken")

// move renames the source itself into the spool. The lease is held from before the hash until the last rename is done,
// so that what was hashed is what is kept. durable.IsCrossDevice tells that the source lies on another mount; nothing
// was changed then.
func (a *adoption) move(ctx context.Context) error {
	if err := a.askRoom(ctx, 0); err != nil {
		return err
	}
	if err := a.hashSource(ctx); err != nil {
		return err
	}
	sum, head := a.read.sum, a.read.head
	it := a.intake(attachment.CustodyMove)
	it.Fingerprint = &sum
	if err := a.Queue.PutIntakes(ctx, it); err != nil {
		return storageError(err)
	}
	info, err := a.src.Stat()
	if err != nil {
		return errors.Join(notTaken(attachment.NotTakenUnreadable, "", err), a.Queue.DropIntakes(ctx, a.id))
	}
	if err := a.Spool.MoveIn(a.req.Path, a.id); err != nil {
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
			err = errors.Join(errMayNotMove, err)
		}
		return a.giveBack(ctx, err)
	}
	adoption := a.build(it, sum, head, info.ModTime())
	if err := a.secureMoved(adoption); err != nil {
		return a.giveBack(ctx, err)
	}
	// From here on nobody can reach the file by a name of theirs, and nobody had it open for writing: the lease has done
	// its work.
	if err := a.lease.Release(); err != nil {
		a.warn("lease could not be released", a.id, err)
	}
	err = a.Queue.Adopt(ctx, adoption)
	if err != nil && storageErrorIsFull(err) {
		return a.giveBack(ctx, err)
	}
	return err
}

func storageErrorIsFull(err error) bool {
	var nt *NotTakenError
	return errors.As(storageError(err), &nt) && (nt.Code == attachment.NotTakenStorage || nt.Code == attachment.NotTakenQueueFull)
}

// hashSource makes the source durable where it is and reads it, once in all.
func (a *adoption) hashSource(ctx context.Context) error {
	if err := a.src.Sync(); err != nil {
		if err := a.distrust(ctx); err != nil {
			return err
		}
		return errors.Join(errNotSynced, err)
	}
	if a.read != nil {
		return a.proceed()
	}
	return a.readSource(ctx)
}

// reading is what a source was found to hold.
type reading struct {
	sum  attachment.Fingerprint
	head []byte
}

// readSource reads the source from its beginning, under the lease where there is one.
func (a *adoption) readSource(ctx context.Context) error {
	var head headWriter
	h := attachment.NewHasher()
	if _, err := spool.CopyHashing(ctx, &head, a.src, h, a.proceed); err != nil {
		return readError(err)
	}
	r := reading{sum: h.Sum(), head: head.head}
	if err := sameFile(a.src, a.req.Identity); err != nil {
		return err
	}
	if r.sum.Length != a.req.Identity.Size {
		return notTaken(attachment.NotTakenChanged, "", nil)
	}
	a.read = &r
	return a.proceed()
}

// readError sorts a failure to read a source.
func readError(err error) error {
	var nt *NotTakenError
	if errors.As(err, &nt) || errors.Is(err, context.Canceled) {
		return err
	}
	return notTaken(attachment.NotTakenUnreadable, "", err)
}

// secureMoved does the steps from the first rename to the last, and looks at the lease after each rename.
func (a *adoption) secureMoved(adoption queue.Adoption) error {
	if err := a.stillLeased(spool.Staging); err != nil {
		return err
	}
	if err := a.Spool.WriteManifest(travelling(adoption)); err != nil {
		return err
	}
	if err := a.Spool.Secure(a.id); err != nil {
		return err
	}
	return a.stillLeased(spool.Payloads)
}

// stillLeased checks that the file now in the spool is the one that the lease is on, and that the lease is unbroken.
func (a *adoption) stillLeased(area spool.Area) error {
	info, err := a.FS.Lstat(a.Spool.Path(area, a.id))
	if err != nil {
		return err
	}
	got, links, _ := durable.IdentityOf(info)
	if attachment.SourceIdentity(got) != a.req.Identity {
		return fmt.Errorf("move %s: another file was renamed: %w", a.id, errBroken)
	}
	if links != 1 {
		// Somebody gave the file a second name meanwhile, and could write to it by that one after custody.
		return fmt.Errorf("move %s: it has %d names: %w", a.id, links, errBroken)
	}
	if !a.lease.Held() {
		return fmt.Errorf("move %s: %w", a.id, errBroken)
	}
	return nil
}

// giveBack undoes a move that failed with cause: the file goes back to where it was, before the lease ends, so that a
// writer who waits in open() goes on with a file that has a name. When even that fails the intake stays, and Resume or
// the next start continues from it.
func (a *adoption) giveBack(ctx context.Context, cause error) error {
	inSpool, err := a.inSpool()
	if err == nil && inSpool {
		err = a.returnTo(a.req.Path)
	}
	if err == nil {
		err = a.Spool.DropUncommitted(a.id)
	}
	if err == nil {
		err = a.Queue.DropIntakes(ctx, a.id)
	}
	if err != nil {
		a.warn("a moved file could not be given back; its intake stays", a.id, err)
		return errors.Join(cause, err)
	}
	if errors.Is(cause, errBroken) {
		return notTaken(attachment.NotTakenOpen, "a program opened it while it was being taken", cause)
	}
	return moveError(cause)
}

// moveError sorts the failure of a move that was undone.
func moveError(cause error) error {
	var nt *NotTakenError
	sorted := storageError(cause)
	switch {
	case errors.As(sorted, &nt), cannotMove(cause), errors.Is(cause, context.Canceled):
		return sorted
	case durable.IsNotExist(cause):
		return notTaken(attachment.NotTakenChanged, "the file is gone", cause)
	}
	return notTaken(attachment.NotTakenUnreadable, "", cause)
}

func (a *adoption) inSpool() (bool, error) {
	for _, area := range []spool.Area{spool.Staging, spool.Payloads} {
		if ok, err := a.FS.Exists(a.Spool.Path(area, a.id)); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// returnIn moves the file out of the spool, to its old name or, where that is taken by now, to one beside it.
func (in *Intake) returnIn(id attachment.ID, path string) error {
	err := in.Spool.MoveOut(id, path)
	if durable.IsExist(err) {
		err = in.Spool.MoveOut(id, besideName(path, id))
	}
	return err
}

func (a *adoption) returnTo(path string) error { return a.returnIn(a.id, path) }

// besideName keeps the extension, so that the returned file is still what its name says.
func besideName(path string, id attachment.ID) string {
	ext := filepath.Ext(path)
	return path[:len(path)-len(ext)] + ".returned-" + string(id[len(id)-6:]) + ext
}
