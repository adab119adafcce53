package upload

import (
	"context"
	"errors"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Errors of the data plane; those of package store come through as they are.
var (
	// ErrBusy is returned by Append while another append of the session is moving.
	ErrBusy = errors.New("another append of this session is moving")
	// ErrTooMany is returned by Append while the device has its largest number of appends moving.
	ErrTooMany = errors.New("this device has too many appends moving")
	// ErrOvertaken is returned by Append when a newer request took the session over. What had arrived is confirmed.
	ErrOvertaken = errors.New("a newer request took the upload over")
	// ErrAppendLimit is returned by Append for a body with checksums that exceeds the largest of them. Nothing of it counts.
	ErrAppendLimit = errors.New("append exceeds the largest with a checksum")
	// ErrExcess is returned by Append for a body that exceeds the length of the upload. What was confirmed before stays.
	ErrExcess = errors.New("append exceeds the length of the upload")
	// ErrLength is returned by Append where the lengths that its request tells contradict each other or what is known.
	ErrLength = errors.New("lengths contradict each other")
	// ErrChecksum is returned by Append for a body that has not its checksum. Nothing of it counts.
	ErrChecksum = errors.New("body has another checksum")
	// ErrIdle is returned by Append when no byte arrived for the idle time. What had arrived is confirmed.
	ErrIdle = errors.New("no byte arrived for too long")
	// ErrBody is returned by Append when the body ended early. What had arrived is confirmed.
	ErrBody = errors.New("body ended early")
	// ErrTooLarge is returned by Create, SetLength and Append for more bytes than the server takes of one attachment.
	ErrTooLarge = errors.New("attachment is larger than this server takes")
	// ErrFinished is returned by Terminate for a session whose bytes are verified: what is received stays.
	ErrFinished = errors.New("upload is finished")
	// ErrStopping is returned while the server stops. What had arrived is confirmed.
	ErrStopping = errors.New("server is stopping")
)

// refusals says what a client is told for each error. Order matters where an error wraps several.
var refusals = []struct {
	err    error
	code   wire.Code
	detail string
}{
	{ErrBusy, wire.CodeBusy, "another append of this session is moving"},
	{ErrTooMany, wire.CodeTooMany, "this device has too many appends moving"},
	{ErrOvertaken, wire.CodeBusy, "a newer request took the upload over; what had arrived is confirmed"},
	{ErrAppendLimit, wire.CodeAppendLimit, "the body exceeds the largest append with a checksum; nothing of it was kept"},
	{ErrExcess, wire.CodeAppendLimit, "the body exceeds the length of the upload; only what was confirmed before was kept"},
	{ErrLength, wire.CodeLength, "the lengths in this request contradict each other, or what is known of the upload"},
	{ErrChecksum, wire.CodeChecksum, "the body has another checksum than declared; nothing of it was kept"},
	{ErrTooLarge, wire.CodeSizeLimit, "the attachment is larger than this server takes"},
	{ErrFinished, wire.CodeMethod, "the upload is finished, and what was received stays"},
	{ErrIdle, wire.CodeTimeout, "no byte arrived for too long; what had arrived is confirmed"},
	{ErrBody, wire.CodeInvalid, "the body ended early; what had arrived is confirmed"},
	{ErrStopping, wire.CodeShuttingDown, "the server is stopping"},
	{context.Canceled, wire.CodeShuttingDown, "the request was given up"},
	{store.ErrDigest, wire.CodeDigestMismatch, "the stored bytes are not the declared ones; reserve again and send from the start"},
	{store.ErrGone, wire.CodeSessionGone, "the upload session is gone; reserve again"},
	{store.ErrNotFound, wire.CodeNotFound, "no such attachment or upload session"},
	{store.ErrConflict, wire.CodeIdentityConflict, "this ID is known with another length, sha256 or role"},
	{store.ErrOffset, wire.CodeOffsetMismatch, "the append does not start at the confirmed offset"},
	{store.ErrNotVerified, wire.CodeNotVerified, "bytes are missing"},
	{store.ErrParent, wire.CodeParentPolicy, "the attachment is registered with another parent"},
	{store.ErrTooManySessions, wire.CodeTooMany, "the account has too many open upload sessions"},
	{store.ErrFull, wire.CodeServerFull, "the server has no room for this"},
}

// Refusal returns the problem code and the sentence for an error of this package or of package store. Whatever is not
// in the table is internal: the caller logs it, and the client learns no more than that.
func Refusal(err error) (wire.Code, string) {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.code, r.detail
		}
	}
	if errors.Is(err, wire.ErrInvalid) {
		return wire.CodeInvalid, err.Error()
	}
	if durable.IsNoSpace(err) {
		return wire.CodeServerFull, "the server has no room for this"
	}
	return wire.CodeInternal, "the server could not do this; its log says why"
}
