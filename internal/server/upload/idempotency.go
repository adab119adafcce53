package upload

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// maxKey bounds an idempotency key, in bytes.
const maxKey = 255

// keyVersion is the version of UUIDs whose bits are a matter of the program that makes them (RFC 9562, section 5.8).
const keyVersion = 8

// KeyedID is the attachment ID that an Idempotency-Key stands for (draft-ietf-httpapi-idempotency-key-header: a quoted
// string), empty for an empty header. A UUID is the ID itself, so that another device of the account can take over. Any
// other key means something to its device alone: two that count from 1 must not meet in one attachment. Errors wrap
// wire.ErrInvalid.
func KeyedID(who store.Identity, header string) (string, error) {
	if header == "" {
		return "", nil
	}
	key, err := unquote(header)
	if err != nil {
		return "", err
	}
	if store.IsUUID(key) {
		return key, nil
	}
	name := strings.Join([]string{"fieldgw", who.Account, who.Device, key}, "\n")
	return uuid.NewHash(sha256.New(), uuid.NameSpaceOID, []byte(name), keyVersion).String(), nil
}

// unquote reads a string of a structured field (RFC 9651, section 3.3.3) that is not empty.
func unquote(text string) (string, error) {
	bad := fmt.Errorf("%w: %s is not a quoted string of 1 to %d bytes", wire.ErrInvalid, wire.HeaderIdempotencyKey, maxKey)
	if len(text) < 3 || len(text) > maxKey || text[0] != '"' || text[len(text)-1] != '"' {
		return "", bad
	}
	var out strings.Builder
	inner := text[1 : len(text)-1]
	for i := 0; i < len(inner); i++ {
		c := inner[i]
		if c == '\\' {
			if i++; i == len(inner) || inner[i] != '\\' && inner[i] != '"' {
				return "", bad
			}
			c = inner[i]
		} else if c < ' ' || c > '~' || c == '"' {
			return "", bad
		}
		out.WriteByte(c)
	}
	return out.String(), nil
}
