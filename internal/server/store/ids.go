package store

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// sessionBytes is how many random bytes name a session, so that its URL cannot be guessed.
const sessionBytes = 20

// NewSessionID returns a fresh session ID: 40 lower-case hex digits.
func NewSessionID() (string, error) {
	var b [sessionBytes]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make session ID: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// IsSessionID reports whether s has the form of a session ID.
func IsSessionID(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sessionBytes && hex.EncodeToString(b) == s
}

// NewMediaID returns a fresh media ID: a UUID of version 7 (RFC 9562).
func NewMediaID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make media ID: %w", err)
	}
	return id.String(), nil
}

// IsUUID reports whether s is the canonical text of a UUID that is not nil (RFC 9562).
func IsUUID(s string) bool {
	id, err := uuid.Parse(s)
	return err == nil && id != uuid.Nil && id.String() == s
}
