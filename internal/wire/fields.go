package wire

import (
	"errors"
	"fmt"

	"github.com/dunglas/httpsfv"
)

// The structured fields (RFC 9651) of the IETF dialect. Values are all lines of one header; parameters are passed over.

// ParseInteger reads a number of bytes. It is false for a header that is missing or anything else, which the dialect has
// everybody take for missing.
func ParseInteger(values []string) (int64, bool) {
	item, err := httpsfv.UnmarshalItem(values)
	if err != nil {
		return 0, false
	}
	n, ok := item.Value.(int64)
	return n, ok && n >= 0
}

// ParseBoolean reads ?0 or ?1; ok is false as for ParseInteger.
func ParseBoolean(values []string) (value, ok bool) {
	item, err := httpsfv.UnmarshalItem(values)
	if err != nil {
		return false, false
	}
	value, ok = item.Value.(bool)
	return value, ok
}

// FormatBoolean is the value as a header.
func FormatBoolean(value bool) string {
	if value {
		return "?1"
	}
	return "?0"
}

// ErrField is returned for a header that cannot be passed over and is malformed.
var ErrField = errors.New("malformed header")

// ParseDigests reads Content-Digest or Repr-Digest (RFC 9530): digests by algorithm, nil for a missing header. Errors wrap
// ErrField.
func ParseDigests(values []string) (map[string][]byte, error) {
	return members[[]byte](values)
}

// ParseWants reads Want-Content-Digest or Want-Repr-Digest (RFC 9530): weights from 0, for unwanted, to 10 by algorithm.
// Errors wrap ErrField.
func ParseWants(values []string) (map[string]int64, error) {
	wants, err := members[int64](values)
	for algorithm, weight := range wants {
		if weight < 0 || weight > 10 {
			return nil, fmt.Errorf("%w: weight %d of %s", ErrField, weight, algorithm)
		}
	}
	return wants, err
}

// FormatDigest is one digest as a header.
func FormatDigest(algorithm string, digest []byte) string {
	dict := httpsfv.NewDictionary()
	dict.Add(algorithm, httpsfv.NewItem(digest))
	text, err := httpsfv.Marshal(dict)
	if err != nil {
		return "" // no algorithm is named so
	}
	return text
}

// members reads a dictionary whose values are all of one type.
func members[T any](values []string) (map[string]T, error) {
	if len(values) == 0 {
		return nil, nil
	}
	dict, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrField, err)
	}
	out := map[string]T{}
	for _, key := range dict.Names() {
		member, _ := dict.Get(key)
		item, ok := member.(httpsfv.Item)
		if !ok {
			return nil, fmt.Errorf("%w: %s is a list", ErrField, key)
		}
		if out[key], ok = item.Value.(T); !ok {
			return nil, fmt.Errorf("%w: %s has another type", ErrField, key)
		}
	}
	return out, nil
}
