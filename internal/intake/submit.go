package intake

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// MaxSubmissionFiles bounds the files of one submission.
const MaxSubmissionFiles = 1000

// Submission is a set of files that a program hands over, all or nothing.
type Submission struct {
	// ID is a UUID made by the caller: repeating a submission whose answer was lost gives the same attachments.
	ID     string
	Parent attachment.Parent
	Files  []SubmissionFile
	// By names the caller, for the journal.
	By string
}

// SubmissionFile describes one file before its bytes come.
type SubmissionFile struct {
	Name attachment.Name
	// Length is how many bytes will come.
	Length   int64
	Modified time.Time
	// Source is the path that the caller read it from, for start-up after a crash; it is never opened.
	Source attachment.Name
}

// Submit secures all files of a submission and then commits all their manifests in one transaction. next gives the bytes
// of each file in turn. An error means that nothing was taken and that the caller must keep its files. Errors:
// ErrSubmissionInvalid, ErrSubmissionLength, ErrSubmissionBusy, *NotTakenError when there is no room, or the queue's.
func (in *Intake) Submit(ctx context.Context, s Submission, next func() (io.Reader, error)) ([]attachment.ID, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if !in.hold("submission " + s.ID) {
		return nil, fmt.Errorf("submission %s: %w", s.ID, ErrSubmissionBusy)
	}
	defer in.letGo("submission " + s.ID)
	if ids, found, err := in.Queue.Submission(s.ID); err != nil || found {
		return ids, err
	}
	var total int64
	for _, f := range s.Files {
		total += f.Length
	}
	if err := in.askRoom(ctx, total); err != nil {
		return nil, err
	}
	intakes, err := in.intakesOf(s)
	if err != nil {
		return nil, err
	}
	for _, it := range intakes {
		in.hold(string(it.ID))
		defer in.letGo(string(it.ID))
	}
	if err := in.Queue.PutIntakes(ctx, intakes...); err != nil {
		return nil, storageError(err)
	}
	adoptions, err := in.secureAll(ctx, intakes, s.Files, next)
	for i := range adoptions {
		adoptions[i].By = s.By
	}
	if err == nil {
		err = in.Queue.Submit(ctx, s.ID, adoptions)
		if err != nil && !storageErrorIsFull(err) {
			return nil, err // the outcome is not known: start-up looks what became of it
		}
	}
	if err != nil {
		for _, it := range intakes {
			err = in.dropCopy(ctx, it.ID, err)
		}
		return nil, storageError(err)
	}
	ids := make([]attachment.ID, len(adoptions))
	for i, a := range adoptions {
		ids[i] = a.Manifest.ID
	}
	return ids, nil
}

func (s *Submission) validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrSubmissionInvalid}, args...)...)
	}
	if u, err := uuid.Parse(s.ID); err != nil || u.String() != s.ID {
		return invalid("its ID is not a UUID")
	}
	if len(s.Files) == 0 || len(s.Files) > MaxSubmissionFiles {
		return invalid("it has %d files, 1 to %d are allowed", len(s.Files), MaxSubmissionFiles)
	}
	if strings.ContainsRune(s.Parent.LocalID.Exact(), 0) || len(s.Parent.LocalID.Exact()) > maxParent {
		return invalid("the record's ID is longer than %d bytes or holds a NUL", maxParent)
	}
	for i, f := range s.Files {
		name := f.Name.Exact()
		if name == "" || name == "." || name == ".." || filepath.Base(name) != name || len(name) > maxName || strings.ContainsRune(name, 0) {
			return invalid("file %d has no proper name", i+1)
		}
		if f.Length < 0 {
			return invalid("file %d has a negative length", i+1)
		}
	}
	return nil
}

// Limits of names, in bytes: NAME_MAX on Linux, and the wire's limit for parents.
const (
	maxName   = 255
	maxParent = 1024
)

func (in *Intake) intakesOf(s Submission) ([]queue.Intake, error) {
	intakes := make([]queue.Intake, 0, len(s.Files))
	for _, f := range s.Files {
		id, err := attachment.NewID()
		if err != nil {
			return nil, err
		}
		intakes = append(intakes, queue.Intake{
			ID: id, Way: attachment.CustodySubmit, Parent: s.Parent, Filename: f.Name,
			Binding: attachment.Binding{Rule: attachment.BindCaller}, Submission: s.ID, Declared: f.Length,
			Source: attachment.Source{
				Path: f.Source, Evidence: attachment.EvidenceSubmitted,
				Identity: attachment.SourceIdentity{Size: f.Length, MTimeNS: modifiedNS(f.Modified)},
			},
		})
	}
	return intakes, nil
}

func modifiedNS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// secureAll stages every file first and then secures them, so that the names in staging are made durable once.
func (in *Intake) secureAll(ctx context.Context, intakes []queue.Intake, files []SubmissionFile, next func() (io.Reader, error)) ([]queue.Adoption, error) {
	adoptions := make([]queue.Adoption, 0, len(intakes))
	for i, it := range intakes {
		r, err := next()
		if err != nil {
			return nil, fmt.Errorf("submission %s, file %d: %w", it.Submission, i+1, err)
		}
		// One byte more than declared shows a file that has grown.
		sum, head, err := in.stage(ctx, it.ID, func(f *durable.File) (*attachment.Fingerprint, error) {
			return copyInto(ctx, f, io.LimitReader(r, it.Declared+1), nil)
		})
		if err != nil {
			return nil, err
		}
		if sum.Length != it.Declared {
			return nil, fmt.Errorf("submission %s, file %d: %w", it.Submission, i+1, ErrSubmissionLength)
		}
		adoptions = append(adoptions, in.build(it, sum, head, files[i].Modified))
	}
	if err := in.Spool.SyncStaging(); err != nil {
		return nil, err
	}
	for _, a := range adoptions {
		if err := in.secureCopied(a); err != nil {
			return nil, err
		}
	}
	return adoptions, nil
}

// sourceStands reports whether the source of a copy or of a submission is still where it was, unchanged, so that a copy
// of it may be thrown away. A source that cannot be seen does not stand.
func (in *Intake) sourceStands(it queue.Intake) bool {
	path := it.Source.Path.Exact()
	if path == "" || !filepath.IsAbs(path) {
		return false
	}
	f, err := in.FS.OpenRead(path)
	if err != nil {
		return false
	}
	want := it.Source.Identity
	info, err := f.Stat()
	if err != nil || f.Close() != nil {
		return false
	}
	seen, _, _ := durable.IdentityOf(info)
	got := attachment.SourceIdentity(seen)
	if it.Way == attachment.CustodySubmit {
		return got.Size == want.Size && want.MTimeNS != 0 && got.MTimeNS == want.MTimeNS
	}
	return in.mediumOf(it.Source.Watch, path, got.Device).maybe(got, want, it.Source.Medium)
}
