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
	// ConfirmedOffsets: an offset in an answer means that the server holds these bytes durably.
	ConfirmedOffsets bool
	// Digests: Verify returns a digest that the server computed over the stored bytes.
	Digests bool
	// ConditionalCreate: reserving again never harms what is stored, however many do it at once.
	ConditionalCreate bool
}

// Reservation is the server's answer to a reserve. Exactly one of BytesNeeded, Verified and Receipt is set.
type Reservation struct {
	// Session, Offset and MaxAppend are set with BytesNeeded. Offset is the confirmed number of bytes; MaxAppend is the
	// largest append in bytes, 0 for no limit.
	Session   attachment.Session
	Offset    int64
	MaxAppend int64
	// MediaID is the server's ID for the content; final only in a receipt.
	MediaID     string
	BytesNeeded bool
	// Verified: the server holds and checked every byte.
	Verified *Verdict
	// Receipt: the attachment is registered.
	Receipt *receipt.Receipt
}

// Verdict is what the server found over the bytes it stored. SHA256 is lower-case hex.
type Verdict struct {
	Length int64
	SHA256 string
}

// Driver speaks to one kind of server. Its methods may be called by several goroutines for different attachments; each
// ends when ctx does. Errors are *remote.Error, judged; a refused answer is one of them.
type Driver interface {
	// Name is the driver's name in the configuration.
	Name() string
	// Capabilities never change.
	Capabilities() Capabilities
	// Reserve announces the attachment and finds or opens its session. It is idempotent.
	Reserve(ctx context.Context, m *attachment.Manifest) (Reservation, error)
	// Offset asks for the session's confirmed offset.
	Offset(ctx context.Context, s attachment.Session) (int64, error)
	// Append sends n bytes that begin at offset, and returns the confirmed offset from the answer, whatever it is. body
	// returns a new reader of the same bytes at each call; moved hears of bytes as they leave, and may be nil. Neither
	// is used after the return. n may be 0, to make the server finish.
	Append(ctx context.Context, s attachment.Session, offset int64, body func() io.Reader, n int64, moved func(int64)) (int64, error)
	// Verify asks for the server's verdict. A server that has not all bytes answers with problem code not_verified.
	Verify(ctx context.Context, m *attachment.Manifest) (Verdict, error)
	// Register binds the attachment to its parent. It is idempotent. The receipt is what the server said, unchecked. An
	// error of kind pending says that the server wants to know the parent first.
	Register(ctx context.Context, m *attachment.Manifest) (receipt.Receipt, error)
	// Cancel ends a session and lets the server forget its bytes. One that is gone already is no error.
	Cancel(ctx context.Context, s attachment.Session) error
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
