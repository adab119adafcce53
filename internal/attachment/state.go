package attachment

// State is where an attachment is on its way. Persisted as this text.
type State string

// The states. Holds and backing off are not states: they are derived and a time, so they cannot get stuck.
const (
	// Absent is the state before adoption.
	Absent State = ""
	// Captured: payload secured, manifest committed; something it needs before sending is still awaited.
	Captured State = "captured"
	// Ready: may be sent.
	Ready State = "ready"
	// Uploading: a session exists and a worker is at it. Found at start it means that the process died: back to ready.
	Uploading State = "uploading"
	// Uploaded: the server holds and verified every byte; registration is outstanding.
	Uploaded State = "uploaded"
	// Reconciled: a receipt of delivered or accepted grade is recorded. With Released after it, the only state that is shown as delivered.
	Reconciled State = "reconciled"
	// Released: the local copy is gone, by retention after delivery or by a person's decision.
	Released State = "released"
	// Attention: a person is needed; the bytes are kept.
	Attention State = "attention"
	// Review: the parent was deleted here while evidence was pending; kept until somebody decides.
	Review State = "review"
	// Cancelled: an undelivered library item that is no longer wanted; its source is untouched.
	Cancelled State = "cancelled"
)

// States lists every state in the order of an attachment's life, Absent first.
func States() []State {
	return []State{Absent, Captured, Ready, Uploading, Uploaded, Reconciled, Released, Attention, Review, Cancelled}
}

func (s State) orAbsent() State {
	if s == Absent {
		return "absent"
	}
	return s
}

// Undelivered reports whether the payload is evidence that is still owed to the server or to a person.
func (s State) Undelivered() bool {
	switch s {
	case Captured, Ready, Uploading, Uploaded, Attention, Review:
		return true
	}
	return false
}

// Sendable reports whether the dispatcher may work on an attachment in this state.
func (s State) Sendable() bool { return s == Ready || s == Uploading || s == Uploaded }

// Event is something that happened to an attachment. Persisted as this text in the journal.
type Event string

// The events.
const (
	EventAdopted       Event = "adopted"          // custody taken
	EventPrepared      Event = "prepared"         // what was missing before sending is there, or is no longer waited for
	EventSessionOpened Event = "session_opened"   // the server gave a session; its ID is durable
	EventInterrupted   Event = "interrupted"      // a delivery stopped through no fault of the item; session and offset kept
	EventFailed        Event = "failed"           // an attempt failed and is charged to the item
	EventLost          Event = "lost"             // the server lost the session or the bytes; start from byte zero
	EventVerified      Event = "verified"         // the server's own length and digest equal ours
	EventSent          Event = "sent"             // a receipt arrived whose grade is not delivery; kept, and not tried again
	EventRegistered    Event = "registered"       // a delivered-grade receipt arrived
	EventAccepted      Event = "accepted"         // a person's setting lets a receipt of a lower grade count as delivery
	EventAttention     Event = "attention_raised" // a person is needed
	EventReview        Event = "review_opened"    // parent deleted here with evidence pending
	EventRetried       Event = "retried"          // a person says: try again now
	EventKept          Event = "kept"             // review decided: deliver
	EventDiscarded     Event = "discarded"        // a person's decision to delete undelivered evidence
	EventReleased      Event = "released"         // local copy removed by retention
	EventCancelled     Event = "cancelled"        // library item no longer wanted
	EventPaused        Event = "paused"           // a person's pause of this item
	EventResumed       Event = "resumed"          // the pause is lifted
	EventBound         Event = "bound"            // a sidecar or the server said more about what it belongs to
	EventPrioritized   Event = "prioritized"      // a person put it before all others
	EventRescheduled   Event = "rescheduled"      // the clock was set; the same wait counts from now
	EventRestored      Event = "restored"         // a damaged record was made again from what travels with the payload
	EventSourceGone    Event = "source_released"  // the source left its capture directory after custody
	EventSourceKept    Event = "source_kept"      // the source stays, and why
	EventSeenAgain     Event = "seen_again"       // its bytes were seen under another name and not taken again
)

// Events lists every event.
func Events() []Event {
	return []Event{
		EventAdopted, EventPrepared, EventSessionOpened, EventInterrupted, EventFailed, EventLost, EventVerified,
		EventSent, EventRegistered, EventAccepted, EventAttention, EventReview, EventRetried, EventKept, EventDiscarded, EventReleased,
		EventCancelled, EventPaused, EventResumed, EventBound, EventRescheduled, EventRestored, EventSourceGone, EventSourceKept,
		EventSeenAgain, EventPrioritized,
	}
}

// Facts are the durable facts from which the state after a person's decision is computed anew.
type Facts struct {
	// Verified: the server's length and digest were compared with ours for the session at hand.
	Verified bool
	// Prepared: nothing is missing before sending.
	Prepared bool
}

// back is where an attachment goes when a person ends attention or review: computed, never remembered.
const back State = "back"

// same marks an event that is recorded and moves nothing.
const same State = "same"

// transitions is the whole machine: what is not in it is refused.
var transitions = map[Event]map[State]State{
	EventAdopted:       {Absent: Captured},
	EventPrepared:      {Captured: Ready, Attention: back},
	EventSessionOpened: {Ready: Uploading, Uploading: Uploading},
	EventInterrupted:   {Ready: Ready, Uploading: Ready, Uploaded: Uploaded},
	EventFailed:        {Ready: Ready, Uploading: Ready, Uploaded: Uploaded},
	EventLost:          {Ready: Ready, Uploading: Ready, Uploaded: Ready},
	EventVerified:      {Ready: Uploaded, Uploading: Uploaded, Uploaded: Uploaded},
	EventSent:          {Uploaded: same},
	EventAccepted:      {Uploaded: Reconciled},
	EventRegistered:    {Uploaded: Reconciled, Attention: Reconciled, Review: Reconciled},
	EventAttention:     {Captured: Attention, Ready: Attention, Uploading: Attention, Uploaded: Attention},
	EventReview:        {Captured: Review, Ready: Review, Uploading: Review, Uploaded: Review},
	EventRetried:       {Captured: same, Ready: same, Uploading: same, Uploaded: same, Attention: back},
	EventKept:          {Review: back},
	EventDiscarded:     {Attention: Released, Review: Released},
	EventReleased:      {Reconciled: Released},
	EventCancelled:     {Captured: Cancelled, Ready: Cancelled, Uploading: Cancelled, Uploaded: Cancelled},
	EventPaused:        undelivered,
	EventResumed:       undelivered,
	EventBound:         undelivered,
	EventPrioritized:   {Captured: same, Ready: same, Uploading: same, Uploaded: same},
	EventRescheduled:   {Ready: same, Uploading: same, Uploaded: same},
	EventRestored:      secured,
	EventSourceGone:    secured,
	EventSourceKept:    secured,
	EventSeenAgain:     secured,
}

var undelivered = map[State]State{
	Captured: same, Ready: same, Uploading: same, Uploaded: same, Attention: same, Review: same,
}

var secured = map[State]State{
	Captured: same, Ready: same, Uploading: same, Uploaded: same, Attention: same, Review: same,
	Reconciled: same, Released: same,
}

// Next returns the state that an event leads to. It is the only place that decides; errors are *TransitionError.
func Next(from State, event Event, facts Facts) (State, error) {
	to, ok := transitions[event][from]
	if !ok {
		return from, &TransitionError{From: from, Event: event}
	}
	switch to {
	case same:
		return from, nil
	case back:
		return resting(facts), nil
	}
	return to, nil
}

func resting(facts Facts) State {
	switch {
	case facts.Verified:
		return Uploaded
	case facts.Prepared:
		return Ready
	}
	return Captured
}
