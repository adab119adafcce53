// Package admin is what an operator may ask of a receiving server: make, list and end tokens, look at attachments, and
// have stored contents read back.
//
// Admin does it on open records; Serve offers it on a unix socket inside the data directory while the server runs, and
// Client asks there. It promises that both ways answer alike and that a token's text is shown once, when it is made,
// and is never logged. Read admin.go, then socket.go.
package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fieldgw/fieldgw/internal/logging"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/server/upload"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// PageSize is how many attachments a page of Attachments holds at most.
const PageSize = 200

// Errors of an operator's requests; store.ErrNotFound and store.ErrNotVerified come through as they are.
var (
	// ErrInvalid is returned for a request that cannot be meant; the text says why.
	ErrInvalid = errors.New("invalid request")
)

// Operator is what can be asked, of the running server or of its directory.
type Operator interface {
	// CreateToken makes a token. Errors: ErrInvalid.
	CreateToken(ctx context.Context, r TokenRequest) (NewToken, error)
	// RevokeToken ends a token by its ID. Errors: store.ErrNotFound.
	RevokeToken(ctx context.Context, id string) (Token, error)
	// Tokens lists all tokens.
	Tokens(ctx context.Context) ([]Token, error)
	// Attachments lists a page of attachments, complete or not.
	Attachments(ctx context.Context, q Query) ([]store.Attachment, error)
	// Attachment shows one attachment. Errors: store.ErrNotFound.
	Attachment(ctx context.Context, account, id string) (store.Attachment, error)
	// VerifyAttachment reads the stored content back, compares it with the record, and makes the record true: damaged
	// content is asked for again, sound content is registered again where it was taken for lost. Errors:
	// store.ErrNotFound, store.ErrNotVerified while bytes are missing. Damage is no error but an answer.
	VerifyAttachment(ctx context.Context, account, id string) (Finding, error)
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Account string `json:"account"`
	Device  string `json:"device"`
	// ExpiresAt is optional.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Token is a token as operators see it.
type Token struct {
	ID        string     `json:"id"`
	Account   string     `json:"account"`
	Device    string     `json:"device"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// NewToken is a token just made. Its text is a secret and is nowhere else.
type NewToken struct {
	Token
	Text string `json:"text"`
}

// Query selects attachments: all, or those of one account, behind the one named by After and AfterID.
type Query struct {
	Account string
	After   string
	AfterID string
}

// Finding is what reading a content back showed.
type Finding struct {
	// Sound says that length and digest are those of the record.
	Sound bool `json:"sound"`
	// Missing says that there is no file, or none that can be read.
	Missing bool   `json:"missing,omitempty"`
	Length  int64  `json:"length"`
	SHA256  string `json:"sha256,omitempty"`
	// State is the attachment's state after it.
	State wire.AttachmentState `json:"state"`
}

// Admin answers operators from open records and the files of an engine.
type Admin struct {
	records store.Store
	engine  *upload.Engine
	now     func() time.Time
	log     *slog.Logger
}

// New returns an Admin. It starts nothing.
func New(records store.Store, engine *upload.Engine, now func() time.Time, log *slog.Logger) *Admin {
	return &Admin{records: records, engine: engine, now: now, log: log}
}

// GenerateToken returns a token of an account and a device with a fresh secret. It records nothing. Errors: ErrInvalid.
func GenerateToken(account, device string) (wire.Token, error) {
	t := wire.Token{Account: account, Device: device}
	if !wire.ValidName(account) || !wire.ValidName(device) {
		return t, fmt.Errorf("%w: account and device are 1 to 63 of a-z, 0-9 and hyphen", ErrInvalid)
	}
	if _, err := rand.Read(t.Secret[:]); err != nil {
		return t, fmt.Errorf("make token: %w", err)
	}
	return t, nil
}

// CreateToken makes and records a token.
func (a *Admin) CreateToken(ctx context.Context, r TokenRequest) (NewToken, error) {
	if r.ExpiresAt != nil && !r.ExpiresAt.After(a.now()) {
		return NewToken{}, fmt.Errorf("create token: %w: it would have expired already", ErrInvalid)
	}
	t, err := GenerateToken(r.Account, r.Device)
	if err != nil {
		return NewToken{}, fmt.Errorf("create token: %w", err)
	}
	return a.Adopt(ctx, t, r.ExpiresAt)
}

// Adopt records a token whose text exists already, so that its holder could be given it first.
func (a *Admin) Adopt(ctx context.Context, t wire.Token, expires *time.Time) (NewToken, error) {
	hash := store.HashToken(t.Text())
	row := store.Token{ID: hash.ID(), Account: t.Account, Device: t.Device, Hash: hash, CreatedAt: a.now(), ExpiresAt: expires}
	if err := a.records.CreateToken(ctx, row); err != nil {
		return NewToken{}, err
	}
	a.log.Info("token created", slog.String(logging.KeyAccount, t.Account), slog.String(logging.KeyDevice, t.Device))
	return NewToken{Token: shown(row), Text: t.Text()}, nil
}

// RevokeToken ends a token.
func (a *Admin) RevokeToken(ctx context.Context, id string) (Token, error) {
	t, err := a.records.RevokeToken(ctx, id, a.now())
	if err != nil {
		return Token{}, err
	}
	a.log.Info("token revoked", slog.String(logging.KeyAccount, t.Account), slog.String(logging.KeyDevice, t.Device))
	return shown(t), nil
}

// Tokens lists all tokens.
func (a *Admin) Tokens(ctx context.Context) ([]Token, error) {
	rows, err := a.records.Tokens(ctx)
	out := make([]Token, 0, len(rows))
	for _, t := range rows {
		out = append(out, shown(t))
	}
	return out, err
}

func shown(t store.Token) Token {
	return Token{
		ID: t.ID, Account: t.Account, Device: t.Device, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, RevokedAt: t.RevokedAt,
	}
}

// Attachments lists a page of attachments.
func (a *Admin) Attachments(ctx context.Context, q Query) ([]store.Attachment, error) {
	account := q.After
	if q.Account != "" {
		account = q.Account
	}
	return a.records.Attachments(ctx, account, q.AfterID, q.Account != "", PageSize)
}

// Attachment shows one attachment.
func (a *Admin) Attachment(ctx context.Context, account, id string) (store.Attachment, error) {
	return a.records.Attachment(ctx, account, id)
}

// VerifyAttachment reads a content back.
func (a *Admin) VerifyAttachment(ctx context.Context, account, id string) (Finding, error) {
	row, found, err := a.engine.Audit(ctx, account, id)
	if err != nil {
		return Finding{}, err
	}
	return Finding{
		Sound:   found.SHA256 == row.Facts.SHA256 && found.Length == row.Facts.Length,
		Missing: found.SHA256 == "", Length: found.Length, SHA256: found.SHA256, State: row.State,
	}, nil
}
