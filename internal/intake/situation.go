package intake

import (
	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/queue"
	"github.com/fieldgw/fieldgw/internal/spool"
)

// Situation is what start-up finds of one ID, named by what is done about it. ARCHITECTURE.md lists them all.
type Situation string

// The situations with an intake.
const (
	// Nothing staged: the source was not touched.
	NothingStaged Situation = "nothing-staged"
	// Staged or secured, and the source still stands: the copy is thrown away and the watch offers the source again.
	CopyRepeatable Situation = "copy-repeatable"
	// Staged by a move: the only copy. It is secured and committed.
	MoveStaged Situation = "move-staged"
	// Secured and equal to its manifest: it is made durable again and committed.
	Secured Situation = "secured"
	// The bytes are not what they should be, and no source stands: the only copy, secured into attention.
	DamagedOnlyCopy Situation = "damaged-only-copy"
	// Half a copy whose source is not to be seen: it is waited for, since a card may not be mounted yet.
	SourceAwaited Situation = "source-awaited"
	// A submission nobody got an answer to, whose source is gone: secured into attention.
	Unanswered Situation = "submission-unanswered"
	// Committed already: a stale intake.
	StaleIntake Situation = "stale-intake"
)

// The situations without an intake.
const (
	// A record and its payload where it should be.
	InPlace Situation = "in-place"
	// A sidecar beside the payload of a record that is not bound: the binding is finished, or undone where it cannot be.
	BindingUnfinished Situation = "binding-unfinished"
	// Delivered, and the payload still in the spool: the move to the delivered copies is finished.
	DeliveryUnfinished Situation = "delivery-unfinished"
	// Among the delivered copies without a recorded delivery: it goes back to the spool.
	DeliveredTooEarly Situation = "delivered-too-early"
	// A payload without a record: committed from its travelling manifest.
	Unrecorded Situation = "unrecorded-payload"
	// A payload without a record and without a readable manifest: secured into attention.
	Unnamed Situation = "unnamed-payload"
	// A record without its payload: attention.
	PayloadMissing Situation = "payload-missing"
	// A record that cannot be read, restored from the manifest beside the payload.
	RecordRestored Situation = "record-restored"
	// A record that cannot be read, and no manifest to restore it from: it stays parked.
	RecordDamaged Situation = "record-damaged"
	// Rebuilt into an empty queue: a delivered copy with its receipt.
	RebuiltDelivered Situation = "rebuilt-delivered"
	// Something stands in the way of one item, such as a directory where a file should be: it is named and left alone.
	Unreadable Situation = "unreadable"
	// Staging without an intake: removed after the grace period.
	AbandonedStaging Situation = "abandoned-staging"
	// A file that is none of ours, or a manifest without payload and record: left alone, and named.
	Stray Situation = "stray"
)

// Report counts what Recover found.
type Report map[Situation]int

// classify names the situation of an adoption under way from what is on the disk. whole reports whether the bytes are
// exactly those expected; sourceStands whether the source could be taken again.
func classify(it queue.Intake, committed bool, f spool.Found, whole, sourceStands bool) Situation {
	secured := f.Area == spool.Payloads && f.Payload
	staged := f.Area == spool.Staging && f.Payload
	switch {
	case committed:
		return StaleIntake
	case !secured && !staged:
		return NothingStaged
	case it.Way == attachment.CustodyMove && whole && secured:
		return Secured
	case it.Way == attachment.CustodyMove && whole:
		return MoveStaged
	case it.Way == attachment.CustodyMove:
		return DamagedOnlyCopy
	case it.Way == attachment.CustodySubmit && sourceStands:
		return CopyRepeatable
	case it.Way == attachment.CustodySubmit && whole:
		return Unanswered
	case secured && whole:
		return Secured
	case sourceStands:
		return CopyRepeatable
	}
	return DamagedOnlyCopy
}
