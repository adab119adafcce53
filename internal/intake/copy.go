package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// errStagedDiffers is returned when a staged file, read again, is not what was written.
var errStagedDiffers = errors.New("staged file is not what was written")

// copy brings the bytes of the source into the spool and leaves the source alone: by sharing its blocks where the
// filesystem can, else by copying them. A crash finds a copy in either case, and the intake says so.
func (a *adoption) copy(ctx context.Context) error {
	if err := a.askRoom(ctx, a.req.Identity.Size); err != nil {
		return err
	}
	it := a.intake(attachment.CustodyCopy)
	if err := a.Queue.PutIntakes(ctx, it); err != nil {
		return storageError(err)
	}
	info, err := a.src.Stat()
	if err != nil {
		return errors.Join(notTaken(attachment.NotTakenUnreadable, "", err), a.Queue.DropIntakes(ctx, a.id))
	}
	sum, head, err := a.stage(ctx, a.id, func(f *durable.File) (*attachment.Fingerprint, error) {
		err := durable.ErrNoClone
		if !a.unsynced {
			err = f.CloneFrom(a.src)
		}
		if err == nil {
			it.Way = attachment.CustodyClone
			return nil, nil
		}
		if !errors.Is(err, durable.ErrNoClone) {
			// The kernel writes the source's pages first, and tells of a failure once.
			if err := errors.Join(a.distrust(ctx), f.Truncate(0)); err != nil {
				return nil, err
			}
		}
		return copyInto(ctx, f, sourceReader{a.src}, a.proceed)
	})
	if err == nil {
		err = a.Spool.SyncStaging()
	}
	if err == nil {
		err = a.sourceUnchanged(sum)
	}
	adoption := a.build(it, sum, head, info.ModTime())
	if err == nil {
		err = a.secureCopied(adoption)
	}
	if err == nil {
		err = a.Queue.Adopt(ctx, adoption)
		if err != nil && !storageErrorIsFull(err) {
			return err // the outcome is not known: start-up looks what became of it
		}
	}
	if err != nil {
		return a.drop(ctx, storageError(err))
	}
	return nil
}

// readStaged reads a staged file: its fingerprint and its first bytes.
func (in *Intake) readStaged(ctx context.Context, id attachment.ID) (sum attachment.Fingerprint, head []byte, err error) {
	f, err := in.Spool.OpenStaged(id)
	if err != nil {
		return sum, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var first headWriter
	h := attachment.NewHasher()
	if _, err := spool.CopyHashing(ctx, &first, f, h, nil); err != nil {
		return sum, nil, err
	}
	return h.Sum(), first.head, nil
}

// sourceReader marks a failure of reading the source, to tell it from one of writing the copy.
type sourceReader struct{ io.Reader }

func (r sourceReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = notTaken(attachment.NotTakenUnreadable, "", err)
	}
	return n, err
}

// stage makes a new staging file, lets fill put bytes into it, makes them durable, and reads them back from the medium.
// fill returns the fingerprint of what it wrote, or nil when only the file can tell. The file's name is not durable yet.
func (in *Intake) stage(ctx context.Context, id attachment.ID, fill func(*durable.File) (*attachment.Fingerprint, error)) (sum attachment.Fingerprint, head []byte, err error) {
	f, err := in.Spool.CreateStaged(id)
	if err != nil {
		return sum, nil, err
	}
	written, err := fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.DropCache()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return sum, nil, err
	}
	sum, head, err = in.readStaged(ctx, id)
	if err == nil && written != nil && !sum.Equal(*written) {
		err = fmt.Errorf("stage %s: %w", id, errStagedDiffers)
	}
	return sum, head, err
}

// copyInto copies everything that r gives and hashes it on the way.
func copyInto(ctx context.Context, f *durable.File, r io.Reader, proceed func() error) (*attachment.Fingerprint, error) {
	h := attachment.NewHasher()
	if _, err := spool.CopyHashing(ctx, f, r, h, proceed); err != nil {
		return nil, err
	}
	sum := h.Sum()
	return &sum, nil
}

// sourceUnchanged holds the source against what it was when the copy began: the open file and the path.
func (a *adoption) sourceUnchanged(sum attachment.Fingerprint) error {
	if err := a.proceed(); err != nil {
		return err
	}
	if sum.Length != a.req.Identity.Size {
		return notTaken(attachment.NotTakenChanged, "", nil)
	}
	if err := sameFile(a.src, a.req.Identity); err != nil {
		return err
	}
	again, err := a.openSource(a.req.Path, a.req.Identity)
	if err != nil {
		return err
	}
	return again.Close()
}

func (in *Intake) secureCopied(adoption queue.Adoption) error {
	if err := in.Spool.WriteManifest(travelling(adoption)); err != nil {
		return err
	}
	return in.Spool.Secure(adoption.Manifest.ID)
}

// drop clears what a copy left in the spool and ends its intake; the source is untouched. cause is returned.
func (a *adoption) drop(ctx context.Context, cause error) error { return a.dropCopy(ctx, a.id, cause) }

func (in *Intake) dropCopy(ctx context.Context, id attachment.ID, cause error) error {
	// Clearing goes on when the caller's context has ended: it is short, and what stays would wait for the next start.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
	defer cancel()
	err := in.Spool.DropStaged(id)
	if err == nil {
		err = in.Spool.DropUncommitted(id)
	}
	if err == nil {
		err = in.Queue.DropIntakes(ctx, id)
	}
	if err != nil {
		in.warn("a copy could not be cleared; its intake stays", id, err)
	}
	return cause
}

// clearTimeout bounds the clearing after a failure.
const clearTimeout = 30 * time.Second
