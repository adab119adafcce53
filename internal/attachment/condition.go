package attachment

// Condition is what people are shown about an attachment. It derives from durable state alone. Persisted only as the key
// of counters, as this text.
type Condition string

// The conditions.
const (
	ShownCaptured  Condition = "captured"
	ShownWaiting   Condition = "waiting"
	ShownUploading Condition = "uploading"
	ShownPaused    Condition = "paused"
	ShownUploaded  Condition = "uploaded-awaiting-reconciliation"
	ShownDelivered Condition = "delivered"
	ShownAttention Condition = "needs-attention"
	ShownReview    Condition = "in-review"
	ShownSent      Condition = "sent"
	ShownDiscarded Condition = "discarded"
	ShownCancelled Condition = "cancelled"
)

// Conditions lists every condition, in the order in which a status screen names them.
func Conditions() []Condition {
	return []Condition{
		ShownAttention, ShownReview, ShownUploading, ShownWaiting, ShownPaused, ShownCaptured, ShownUploaded, ShownSent,
		ShownDelivered, ShownDiscarded, ShownCancelled,
	}
}

// Condition returns what is shown. Delivered comes from Reconciled, or from a copy released after that, and from
// nothing else.
func (m *Manifest) Condition() Condition {
	if m.Paused && m.State.Undelivered() && m.State != Attention && m.State != Review {
		return ShownPaused
	}
	switch m.State {
	case Captured:
		return ShownCaptured
	case Ready:
		return ShownWaiting
	case Uploading:
		return ShownUploading
	case Uploaded:
		if m.Sent() {
			return ShownSent
		}
		return ShownUploaded
	case Reconciled:
		return ShownDelivered
	case Released:
		if m.Discard != nil {
			return ShownDiscarded
		}
		return ShownDelivered
	case Review:
		return ShownReview
	case Cancelled:
		return ShownCancelled
	}
	return ShownAttention
}

// Owed reports whether evidence in this condition is not yet delivered and not decided upon.
func (c Condition) Owed() bool {
	switch c {
	case ShownDelivered, ShownDiscarded, ShownCancelled:
		return false
	}
	return true
}
