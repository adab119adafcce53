package attachment

import (
	"fmt"

	"github.com/google/uuid"
)

// ID identifies an attachment everywhere: in the queue, in file names, as the client's request ID on the wire. It is a
// UUID version 7 (RFC 9562) in canonical lower-case text. Its time part is not trusted: the journal gives the order.
type ID string

// IDLength is how many bytes every ID has.
const IDLength = 36

// NewID makes a new ID. It fails only when the system has no randomness.
func NewID() (ID, error) {
	u, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make attachment ID: %w", err)
	}
	return ID(u.String()), nil
}

// ParseID accepts the canonical text of a version 7 UUID and nothing else. Errors wrap ErrBadID.
func ParseID(s string) (ID, error) {
	u, err := uuid.Parse(s)
	if err != nil || u.String() != s || u.Version() != 7 {
		return "", fmt.Errorf("parse attachment ID %.64q: %w", s, ErrBadID)
	}
	return ID(s), nil
}

// Shard is the directory that spreads payloads: the last two hex digits of the ID.
func (id ID) Shard() string {
	if len(id) < 2 {
		return "00"
	}
	return string(id[len(id)-2:])
}
