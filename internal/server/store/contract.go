package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Identity is who sends a request. It comes from the credential alone, never from anything in the request.
type Identity struct {
	Account string
	Device  string
}

// Token is a device's credential as the server keeps it: without its text.
type Token struct {
	// ID names the token to operators; it is the beginning of Hash in hex.
	ID        string     `json:"id"`
	Account   string     `json:"account"`
	Device    string     `json:"device"`
	Hash      TokenHash  `json:"hash"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// Valid reports whether the token is accepted at the time now.
func (t Token) Valid(now time.Time) bool {
	return t.RevokedAt == nil && (t.ExpiresAt == nil || now.Before(*t.ExpiresAt))
}

// TokenHash is the SHA-256 of a token's whole text, in lower-case hex. The secret has 256 random bits, so a plain hash
// is enough; rows are looked up by it, so no comparison reveals how much of a guess was right.
type TokenHash string

// HashToken returns the hash of a token's text.
func HashToken(text string) TokenHash {
	sum := sha256.Sum256([]byte(text))
	return TokenHash(hex.EncodeToString(sum[:]))
}

// ID is the part of the hash that names the token to operators.
func (h TokenHash) ID() string { return string(h[:min(len(h), 16)]) }

// Attachment is the server's record of one attachment.
type Attachment struct {
	Account string `json:"account"`
	ID      string `json:"id"`
	// Facts are what the device declared. Length, SHA256 and Role never change once they are known: a creating client may
	// tell the length later (UnknownLength) and leave the digest to the server (empty until it has read the bytes).
	Facts wire.Reserve `json:"facts"`
	// MediaID is the canonical media item; empty while the digest is unknown.
	MediaID string               `json:"media_id"`
	State   wire.AttachmentState `json:"state"`
	// Generation counts upload sessions, from 1.
	Generation int `json:"generation"`
	// Session is the current upload session; empty while none is open or was needed.
	Session string `json:"session,omitempty"`
	// Void says why the last generation ended without its bytes; empty otherwise.
	Void VoidReason `json:"void,omitempty"`
	// Device reserved first; Holder reserved last, since HeldSince.
	Device     string    `json:"device"`
	Holder     string    `json:"holder"`
	HeldSince  time.Time `json:"held_since"`
	ReservedAt time.Time `json:"reserved_at"`
	// Sequence orders registered attachments; 0 before registration.
	Sequence uint64 `json:"sequence,omitempty"`
	// Receipt is there from the first registration on and stays. In a state before registered it says that the content
	// was lost since (see rules.go).
	Receipt *receipt.Receipt `json:"receipt,omitempty"`
}

// VoidReason says why a session ended without a verified attachment. Persisted as text.
type VoidReason string

// The reasons.
const (
	VoidDigest VoidReason = "digest_mismatch" // the stored bytes were not the declared ones
	VoidLost   VoidReason = "lost"            // the stored bytes are missing or cannot be trusted
	// VoidExpired: nothing was appended for a long time, or for at least IdleSession while another attachment needed the
	// session's place.
	VoidExpired    VoidReason = "expired"
	VoidTerminated VoidReason = "terminated" // a client ended it
	VoidExcess     VoidReason = "excess"     // a client sent more than the length
)

// Err is the error that operations on a void attachment fail with; nil for the empty reason.
func (v VoidReason) Err() error {
	switch v {
	case "":
		return nil
	case VoidDigest:
		return ErrDigest
	default:
		return ErrGone
	}
}

// SessionState is where an upload session stands. Persisted as text.
type SessionState string

// The states of a session.
const (
	SessionOpen     SessionState = "open"     // takes bytes, or has them all and waits for verification
	SessionComplete SessionState = "complete" // its bytes are verified
	SessionVoid     SessionState = "void"     // answers 410 from now on
)

// Session is one upload session: one generation of an attachment.
type Session struct {
	ID           string `json:"id"`
	Account      string `json:"account"`
	AttachmentID string `json:"attachment_id"`
	Generation   int    `json:"generation"`
	// Length is the declared number of bytes, or UnknownLength while the client has yet to tell it.
	Length int64        `json:"length"`
	State  SessionState `json:"state"`
	// Offset is the confirmed number of bytes: those before it are durable. It never decreases.
	Offset int64 `json:"offset"`
	// AppendedAt is when bytes were last confirmed, or when the session was opened.
	AppendedAt time.Time `json:"appended_at"`
	// Created says that a client opened it by creating an upload, which knows no registration: its attachment is
	// registered as soon as it is verified.
	Created bool `json:"created,omitempty"`
	// Metadata is what a creating client said of the file, in its own words; it is given back and otherwise not used.
	Metadata string `json:"metadata,omitempty"`
}

// UnknownLength stands for the length of an upload whose client has yet to tell it.
const UnknownLength = -1

// EndsAt reports whether the session has all its bytes when it has those before offset.
func (s Session) EndsAt(offset int64) bool { return s.Length == offset }

// Whole reports whether every byte of the session is confirmed.
func (s Session) Whole() bool { return s.EndsAt(s.Offset) }

// MediaState is the catalogue's view of a media item. Persisted as text.
type MediaState string

// The states of a media item.
const (
	MediaPending MediaState = "PENDING_UPLOAD" // no attachment of this content is registered yet
	MediaReady   MediaState = "READY"          // the server hashed the content itself and registered it
)

// Media is the catalogue's item for one content of one account.
type Media struct {
	ID      string     `json:"id"`
	Account string     `json:"account"`
	SHA256  string     `json:"sha256"`
	Length  int64      `json:"length"`
	State   MediaState `json:"state"`
}

// Reservation is the input of Reserve.
type Reservation struct {
	By    Identity
	ID    string
	Facts wire.Reserve
	Now   time.Time
	// Stored reports that the account's content file of the declared digest and length is there and sound: for a
	// registered attachment as far as is known, for any other by a reading of this process.
	Stored bool
	// Seen is the state for which Stored was found out; empty where there was no attachment. Stored says nothing against
	// an attachment that was verified or registered since.
	Seen wire.AttachmentState
	// Room is how many bytes a new session may promise to take.
	Room int64
	// MaxSessions is the largest number of open sessions of the account.
	MaxSessions int
	// Busy reports whether a session must not be ended now, however long its last append is past; nil means none. It
	// is called within the transaction.
	Busy func(session string) bool
	// NewSession and NewMedia are fresh identifiers, used where the reservation needs one.
	NewSession string
	NewMedia   string
	// Create says that a client creates an upload: it may not know length and digest, gets a session also where no bytes
	// are needed, and registers nothing. Metadata goes with it.
	Create   bool
	Metadata string
}

// Reserved is the outcome of Reserve.
type Reserved struct {
	Attachment Attachment
	// Session is the open session; nil when no bytes are needed. For a creation it is the current one, open or complete.
	Session *Session
	// Created tells a new attachment from a replay.
	Created bool
	// Expired is the session that was ended to make room; nil where none was. Its data file is of no use any more.
	Expired *Session
}

// Registration is the input of Register.
type Registration struct {
	By     Identity
	ID     string
	Parent receipt.Parent
	Now    time.Time
}

// Store is the contract for records. Every method is one transaction that is durable when it returns nil, may be called
// by any number of goroutines, and answers ErrNotFound for another account's row. Damage to one row is ErrDamaged from
// the methods that need that row.
type Store interface {
	// Epoch names this store; a copy of it has the same.
	Epoch() string
	// Failed is closed when the outcome of a commit is unknown. No later call succeeds: the process must end and
	// start again.
	Failed() <-chan struct{}
	// Close releases the store.
	Close() error

	// CreateToken adds a token. Errors: ErrExists.
	CreateToken(ctx context.Context, t Token) error
	// Token finds a token by account and hash, whether valid or not. Errors: ErrNotFound.
	Token(ctx context.Context, account string, hash TokenHash) (Token, error)
	// Tokens lists all tokens by account and hash, at most MaxTokens.
	Tokens(ctx context.Context) ([]Token, error)
	// RevokeToken ends a token by its ID and returns it; a revoked one keeps its first time. Errors: ErrNotFound.
	RevokeToken(ctx context.Context, id string, at time.Time) (Token, error)

	// Reserve is one transaction over attachment, session, media item and content. It follows the rules in rules.go.
	// Errors: ErrConflict, ErrTooManySessions, ErrFull.
	Reserve(ctx context.Context, r Reservation) (Reserved, error)
	// Attachment returns one attachment. Errors: ErrNotFound.
	Attachment(ctx context.Context, account, id string) (Attachment, error)
	// Attachments lists up to limit attachments in any state, in order of account and ID, after the one named by
	// both; with only set, those of the account alone. A damaged one is there with account and ID alone.
	Attachments(ctx context.Context, account, id string, only bool, limit int) ([]Attachment, error)
	// Registered lists up to limit registered attachments of an account with a sequence above after, in that order. A
	// damaged one is there with account, sequence and, where the index tells, ID alone; one whose content was lost is
	// there in an earlier state.
	Registered(ctx context.Context, account string, after uint64, limit int) ([]Attachment, error)

	// Session returns one session in any state. Errors: ErrNotFound.
	Session(ctx context.Context, account, id string) (Session, error)
	// Advance confirms bytes: the session's offset moves from one value to a larger one, at most the length. The
	// bytes must be durable before the call, which is made at the time now. Errors: ErrNotFound, ErrGone, ErrOffset.
	Advance(ctx context.Context, account, session string, from, to int64, now time.Time) error
	// Void ends the session of this generation without its bytes and returns the attachment to reserved; it does
	// nothing when the attachment is at a later generation or is void already. Errors: ErrNotFound, ErrState once
	// registered.
	Void(ctx context.Context, account, id string, generation int, why VoidReason) error
	// SetLength tells the length of a session that was created without one; telling it again does nothing. Room is as
	// for Reserve. Errors: ErrNotFound, ErrGone, ErrConflict for another length or one below the offset, ErrFull.
	SetLength(ctx context.Context, account, session string, length, room int64) (Session, error)
	// Expire ends a session to which nothing was appended since the time before, unless it has all its bytes or is busy
	// (as for Reserve). It reports whether it did. Errors: ErrNotFound.
	Expire(ctx context.Context, account, session string, before time.Time, busy func(session string) bool) (bool, error)
	// Measured takes the server's own length and digest over the stored bytes for the declared ones, where nobody declared
	// a digest; elsewhere it does nothing. newMedia is as for Reserve. Errors: ErrNotFound, ErrGone at another generation,
	// ErrNotVerified below the full length.
	Measured(ctx context.Context, account, id string, generation int, found Content, newMedia string) error
	// Verified records that the server's own length and digest over the stored bytes are the declared ones; the
	// content must be durable before the call. It does nothing when the attachment is verified already. An attachment
	// whose session was created is registered by the same transaction. Errors:
	// ErrNotFound, ErrGone at another generation, ErrNotVerified below the full length.
	Verified(ctx context.Context, account, id string, generation int, now time.Time) error
	// Audit records what reading an attachment's content back showed, and returns the attachment as it is then. Sound
	// content makes one that has a receipt registered; unsound content makes a verified or registered one reserved and
	// void, so that its bytes are taken again. Where the state changes its current session is void; ended is that session
	// if it took bytes until then: its data file is of no use any more. Errors: ErrNotFound.
	Audit(ctx context.Context, account, id string, sound bool) (a Attachment, ended *Session, err error)
	// Register binds a verified attachment to its parent and returns the receipt, the same at each call but for a
	// server ID that is filled in later; fresh is false at a replay. Errors: ErrNotFound, ErrNotVerified, ErrParent,
	// and ErrDigest or ErrGone after a void session, but ErrNotVerified where a receipt exists and the bytes were lost.
	Register(ctx context.Context, r Registration) (rec receipt.Receipt, fresh bool, err error)

	// OpenSessions calls visit for every open session. What visit does is not part of the transaction, and visit may
	// call the store. A session whose row is damaged is passed with its account and ID and ErrDamaged.
	OpenSessions(ctx context.Context, visit func(s Session, damage error) error) error
}

// IdleSession is how long nothing must have been appended to a session before it may be ended to make room for another.
const IdleSession = time.Hour

// MaxTokens bounds the number of tokens of one server.
const MaxTokens = 100_000
