package store

import (
	"context"
	"errors"
	"time"

	"github.com/fieldgw/fieldgw/internal/store"
)

// CreateToken adds a token.
func (e *Embedded) CreateToken(ctx context.Context, t Token) error {
	return e.update(ctx, "create token", func(tx *store.Tx) error {
		b := tx.Bucket(bucketTokens)
		switch {
		case b.Has(key(t.Account, string(t.Hash))):
			return ErrExists
		case b.Count() >= MaxTokens:
			return ErrFull
		}
		return put(tx, bucketTokens, t.Account, string(t.Hash), t)
	})
}

// Token finds a token.
func (e *Embedded) Token(_ context.Context, account string, hash TokenHash) (t Token, err error) {
	err = e.view("read token", func(tx *store.Tx) error {
		t, err = get[Token](tx, bucketTokens, account, string(hash))
		return err
	})
	return t, err
}

// Tokens lists all tokens.
func (e *Embedded) Tokens(context.Context) ([]Token, error) {
	var all []Token
	err := e.view("list tokens", func(tx *store.Tx) (err error) {
		all, err = tokens(tx)
		return err
	})
	return all, err
}

func tokens(tx *store.Tx) ([]Token, error) {
	var all []Token
	err := tx.Bucket(bucketTokens).Scan(nil, nil, func(k, _ []byte, _ error) error {
		account, hash := splitKey(k)
		t, err := get[Token](tx, bucketTokens, account, hash)
		if errors.Is(err, store.ErrBadValue) { // listed without its device, so that it can be revoked
			t, err = Token{ID: TokenHash(hash).ID(), Account: account, Hash: TokenHash(hash)}, nil
		}
		all = append(all, t)
		return err
	})
	return all, err
}

// RevokeToken ends a token.
func (e *Embedded) RevokeToken(ctx context.Context, id string, at time.Time) (Token, error) {
	var revoked Token
	err := e.update(ctx, "revoke token "+id, func(tx *store.Tx) error {
		all, err := tokens(tx)
		if err != nil {
			return err
		}
		for _, t := range all {
			if t.ID != id {
				continue
			}
			if t.RevokedAt == nil {
				t.RevokedAt = &at
			}
			revoked = t
			return put(tx, bucketTokens, t.Account, string(t.Hash), t)
		}
		return ErrNotFound
	})
	return revoked, err
}
