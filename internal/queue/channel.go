package queue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/store"
)

// Events of the journal that concern the channel and no attachment.
const (
	EventChannelPaused  attachment.Event = "channel_paused"
	EventChannelResumed attachment.Event = "channel_resumed"
)

// PutChannel makes the state of a channel's backoff durable, so that a restart does not hammer the server. The value is
// the caller's JSON.
func (q *Queue) PutChannel(ctx context.Context, name string, state any) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		return store.PutJSON(tx.Bucket(bChannel), []byte(name), state)
	})
}

// Channel reads what PutChannel wrote into state; found is false when there is nothing, or only damage, since a lost
// backoff means no more than an early attempt.
func (q *Queue) Channel(name string, state any) (found bool, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		value, err := tx.Bucket(bChannel).Get([]byte(name))
		if isBadValue(err) || err == nil && value == nil {
			return nil
		}
		if err == nil {
			found = json.Unmarshal(value, state) == nil
		}
		return err
	})
	return found, err
}

// Decision is a person's standing decision about a channel. Its travelling copy lies in the outbox.
type Decision struct {
	Name   string    `json:"name"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// DecisionPauseChannel is the name of the decision that pauses all sending.
const DecisionPauseChannel = "pause-channel"

// PutDecision records a standing decision, durable in the outbox already, and journals it.
func (q *Queue) PutDecision(ctx context.Context, d Decision) error {
	return q.store.Update(ctx, func(tx *store.Tx) error {
		if tx.Bucket(bDecisions).Has([]byte(d.Name)) {
			return nil
		}
		if err := store.PutJSON(tx.Bucket(bDecisions), []byte(d.Name), d); err != nil {
			return err
		}
		return q.journalChannel(tx, EventChannelPaused, d.By, d.Reason)
	})
}

// LiftDecision removes a standing decision and journals that; the travelling copy is removed afterwards.
func (q *Queue) LiftDecision(ctx context.Context, name, by, reason string) (changed bool, err error) {
	err = q.store.Update(ctx, func(tx *store.Tx) error {
		changed = tx.Bucket(bDecisions).Has([]byte(name))
		if !changed {
			return nil
		}
		if err := tx.Bucket(bDecisions).Delete([]byte(name)); err != nil {
			return err
		}
		return q.journalChannel(tx, EventChannelResumed, by, reason)
	})
	return changed, err
}

func (q *Queue) journalChannel(tx *store.Tx, event attachment.Event, by, reason string) error {
	row := Row{At: q.clock(), Event: event, By: by, Detail: reason}
	if err := appendRow(tx, &row); err != nil {
		return err
	}
	t := Transition{Row: row}
	tx.OnCommit(func() {
		q.logTransition(t)
		q.publish(t)
	})
	return nil
}

// StandingDecision returns a decision; found is false when it does not stand. A damaged one stands: it was made.
func (q *Queue) StandingDecision(name string) (d Decision, found bool, err error) {
	err = q.store.View(func(tx *store.Tx) error {
		d, found, err = store.GetJSON[Decision](tx.Bucket(bDecisions), []byte(name))
		if isBadValue(err) {
			d, found, err = Decision{Name: name}, true, nil
		}
		return err
	})
	return d, found, err
}

// keyLastDelivery is where the channel bucket keeps when an attachment was delivered last.
const keyLastDelivery = "last-delivery"

// LastDelivery returns when an attachment was delivered last, on this device's clock; zero when none was yet.
func (q *Queue) LastDelivery() (at time.Time, err error) {
	_, err = q.Channel(keyLastDelivery, &at)
	return at, err
}
