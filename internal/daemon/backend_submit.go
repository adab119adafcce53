package daemon

import (
	"context"
	"errors"
	"io"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/control/server"
	"github.com/fieldgw/fieldgw/internal/intake"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// Submit takes custody of files that a program hands over, all or nothing.
func (s *session) Submit(ctx context.Context, by server.Caller, sub control.Submission, next func() (io.Reader, error)) (control.SubmissionResult, error) {
	result := control.SubmissionResult{SubmissionID: sub.SubmissionID}
	ids, known, err := s.queue.Submission(sub.SubmissionID)
	if err != nil {
		return result, err
	}
	if !known {
		request := intake.Submission{ID: sub.SubmissionID, Parent: attachment.Parent{LocalID: sub.Record}, By: by.String()}
		for _, f := range sub.Files {
			request.Files = append(request.Files, intake.SubmissionFile{
				Name: f.Name, Length: f.Length, Modified: f.ModifiedAt, Source: f.SourcePath,
			})
		}
		if ids, err = s.intake.Submit(ctx, request, next); err != nil {
			return result, submissionRefusal(err)
		}
		s.dispatcher.poke()
	}
	for i, id := range ids {
		e, err := s.queue.Get(id)
		if err != nil {
			return result, err
		}
		if known && !sameSubmission(sub, ids, i, e) {
			return result, control.Refuse(control.CodeSubmissionReused, "")
		}
		result.Items = append(result.Items, s.item(e))
	}
	return result, nil
}

// sameSubmission compares what is announced now with what was taken under the same submission ID.
func sameSubmission(sub control.Submission, ids []attachment.ID, i int, e queue.Entry) bool {
	if len(ids) != len(sub.Files) {
		return false
	}
	m := e.Manifest
	return m == nil || m.Filename.Exact() == sub.Files[i].Name.Exact() && m.Length == sub.Files[i].Length &&
		m.Parent.LocalID.Exact() == sub.Record.Exact()
}

func submissionRefusal(err error) error {
	var (
		nt      *intake.NotTakenError
		refused *control.Error
	)
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, intake.ErrSubmissionLength):
		return control.Refuse(control.CodeLengthMismatch, err.Error())
	case errors.Is(err, intake.ErrSubmissionInvalid):
		return control.Refuse(control.CodeInvalid, err.Error())
	case errors.Is(err, intake.ErrSubmissionBusy):
		return control.Refuse(control.CodeBusy, err.Error())
	case errors.As(err, &nt) && nt.Code == attachment.NotTakenStorage:
		return control.Refuse(control.CodeStorageFull, nt.Detail)
	case errors.As(err, &nt) && nt.Code == attachment.NotTakenQueueFull:
		return control.Refuse(control.CodeQueueFull, nt.Detail)
	}
	return err
}

// subscriberBuffer is how many transitions a subscriber may be behind before it is told that it missed some.
const subscriberBuffer = 1024

// Subscribe passes on the queue's transitions. A subscriber that falls too far behind loses its channel, which tells it to
// read again.
func (s *session) Subscribe(ctx context.Context) <-chan control.Transition {
	events := make(chan control.Transition, subscriberBuffer)
	feed := &subscriber{events: events}
	cancel := s.queue.Subscribe(feed.send)
	context.AfterFunc(ctx, func() {
		cancel()
		feed.close()
	})
	return events
}
