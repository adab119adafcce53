package uplink

import (
	"context"
	"io"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/receipt"
)

// Capabilities say what a driver can do with its kind of server. The conformance suite demands what is declared.
type Capabilities struct {
	// Resume: an interrupted session goes on where it was.
	Resume bool
	// ConfirmedOffsets: an append at another than the confirmed offset is refused and changes nothing, and the confirmed
	// offset never decreases while the session lives.
	ConfirmedOffsets bool
	// Digests: Verify returns a digest over the stored bytes, the server's own or one over bytes that were read back. A driver
	// that writes the receipt itself returns none where the server gives none, and the grade says so.
	Digests bool
	// ConditionalCreate: reserving again never harms what is stored, however many do it at once.
	ConditionalCreate bool
	// Registers: the server knows registrations; the receipt is its word. Without, the driver writes the receipt, of a
	// grade that says on what evidence.
	Registers bool
}

// Reservation is the server's answer to a reserve. Exactly one of BytesNeeded, Verified and Receipt is set.
type Reservation struct {
	// Session, Offset and the members below are set with BytesNeeded. Offset is the confirmed number of bytes.
	Session attachment.Session
	Offset  int64
	// MinAppend is the smallest append in bytes but for the last, and MaxAppend the largest; 0 for no limit. Where both are
	// the same, every append but the last has that size.
	MinAppend, MaxAppend int64
	// Streams: Append tells confirmed offsets while it lasts, so that it may be longer than one chunk.
	Streams bool
	// MediaID is the server's ID for the content; final only in a receipt.
	MediaID     string
	BytesNeeded bool
	// Verified: the server holds and checked every byte.
	Verified *Verdict
	// Receipt: the attachment is registered.
	Receipt *receipt.Receipt
}

// Verdict is what was found over the bytes that the server stored. SHA256 is lower-case hex; empty where only the length is
// known, which a driver whose server registers never says.
type Verdict struct {
	Length int64
	SHA256 string
}

// Append is one sending of payload bytes.
type Append struct {
	Manifest *attachment.Manifest
	Session  attachment.Session
	// Offset is where the bytes begin and Length how many they are; it may be 0, to make the server finish.
	Offset, Length int64
	// Body returns a new reader of the same bytes at each call, which may implement io.Closer: Close ends a Read that waits.
	Body func() io.Reader
	// Moved hears of bytes as they leave; it may be nil.
	Moved func(n int64)
	// Confirmed hears of an offset that the server confirmed while the append lasts. It is set only where the reservation
	// said Streams, and then the server must be told that it is waited for: the reader lets no more than a chunk go beyond
	// what is confirmed.
	Confirmed func(offset int64)
}

// Last reports whether the append ends with the attachment's last byte.
func (a Append) Last() bool { return a.Offset+a.Length == a.Manifest.Length }

// Driver speaks to one kind of server. Its methods may be called by several goroutines for different attachments; each
// ends when ctx does. Errors are *remote.Error, judged; a refused answer is one of them.
//
// The session that a method gets is the delivery's; the manifest's is the one that was recorded when the delivery began.
type Driver interface {
	// Name is the driver's name in the configuration.
	Name() string
	// Capabilities never change.
	Capabilities() Capabilities
	// Reserve announces the attachment and finds or opens its session. s is the session used so far, zero without one. A
	// server that remembers attachments finds it by their ID, and Reserve is idempotent; for another server s is all there
	// is to find it by, and a session that is gone is an error for which remote.Error.Gone holds. With a zero s a new one
	// is opened.
	Reserve(ctx context.Context, m *attachment.Manifest, s attachment.Session) (Reservation, error)
	// Offset asks for the session's confirmed offset.
	Offset(ctx context.Context, m *attachment.Manifest, s attachment.Session) (int64, error)
	// Append sends bytes and returns the confirmed offset from the answer, whatever it is. Nothing of a is used after the
	// return.
	Append(ctx context.Context, a Append) (int64, error)
	// Verify asks for the verdict over the stored bytes. A server that has not all bytes is an error with problem code
	// not_verified. Bytes that are read back for it are told to Progress(ctx).
	Verify(ctx context.Context, m *attachment.Manifest, s attachment.Session) (Verdict, error)
	// Register binds the attachment to its parent. It is idempotent. v is the verdict of this delivery; a driver whose
	// server registers may get a zero one, and none of its session. The receipt is unchecked. An error of kind pending says
	// that the server wants to know the parent first.
	Register(ctx context.Context, m *attachment.Manifest, s attachment.Session, v Verdict) (receipt.Receipt, error)
	// Cancel ends a session and lets the server forget its bytes. One that is gone already is no error.
	Cancel(ctx context.Context, s attachment.Session) error
}

// Comparer is a Driver whose server may tell of the stored bytes only what can be held against the file in custody: a digest
// over those of pieces. A delivery asks it instead of Verify.
type Comparer interface {
	// Compare is Verify with the payload at hand: each call of payload returns a new reader of all of it.
	Compare(ctx context.Context, m *attachment.Manifest, s attachment.Session, payload func() io.Reader) (Verdict, error)
}

// Payload is the file in custody, of the manifest's length. It is not used after Deliver returned.
type Payload interface {
	// Check reads every segment that touches [off, off+n) from the disk and compares it with its recorded digest.
	// Errors are ErrPayloadChanged, ErrPayloadMissing, or a passing failure to read.
	Check(ctx context.Context, off, n int64) error
	io.ReaderAt
}

// Gate is asked before every request, and at least once a second while one is under way. Calls for one delivery do not
// overlap.
type Gate interface {
	// MaySend returns nil, or a *Held: then the request under way is cancelled and Deliver returns the *Held.
	MaySend(ctx context.Context) error
}

// Recorder takes note of a delivery. What a method was told is durable when it returns nil; an error ends the delivery
// with ErrRecord. The context of a Recorder's call does not end with Deliver's: an answer that arrived is worth keeping.
type Recorder interface {
	// SessionOpened names the session before its first byte is sent, and at every later delivery that uses it. offset is
	// the confirmed offset from now on.
	SessionOpened(ctx context.Context, s attachment.Session, mediaID string, offset int64) error
	// Committed gives a larger confirmed offset of the session, before more bytes are sent.
	Committed(ctx context.Context, s attachment.Session, offset int64) error
	// Lost says that the session or its bytes are void; the confirmed offset is 0 and nothing is verified.
	Lost(ctx context.Context, reason attachment.Code, detail string) error
	// Verified says that the server's own length and digest are the manifest's.
	Verified(ctx context.Context, mediaID string) error
	// Registered gives a receipt that passed receipt.Check. Its grade is for the caller to weigh.
	Registered(ctx context.Context, r receipt.Receipt) error
	// Moved hears of n more bytes on their way: a sign of life, nothing to keep.
	Moved(n int64)
}
