package intake

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/queue"
)

// mark sends an attachment to attention, where its state allows it: a delivered copy that is damaged here is delivered all
// the same.
func (in *Intake) mark(ctx context.Context, m *attachment.Manifest, code attachment.Code) (bool, error) {
	err := in.Queue.RaiseAttention(ctx, m.ID, queue.Failure{Code: code, Message: "found by a check"})
	if errors.Is(err, attachment.ErrTransition) {
		return false, nil
	}
	return err == nil, err
}

// rewriteReceipt writes a receipt's file anew from the queue's copy.
func (in *Intake) rewriteReceipt(id attachment.ID) (bool, error) {
	r, err := in.Queue.Receipt(id)
	if err != nil || r == nil {
		return false, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	return true, in.Spool.WriteReceipt(id, data)
}
