package store

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// PutJSON stores v under key as JSON. Errors: those of json.Marshal and of Bucket.Put.
func PutJSON(b *Bucket, key []byte, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("put in bucket %s: %w", b.name, err)
	}
	return b.Put(key, data)
}

// GetJSON returns the value of key decoded into a T; found is false when there is none. The only error is a
// *BadValueError: the checksum is wrong, or the value is not exactly one JSON text that fits a T.
func GetJSON[T any](b *Bucket, key []byte) (v T, found bool, err error) {
	stored := b.rawGet(key)
	if stored == nil {
		return v, false, nil
	}
	data, err := b.open(key, stored)
	if err != nil {
		return v, true, err
	}
	if err := json.Unmarshal(data, &v); err != nil {
		var none T
		return none, true, &BadValueError{Bucket: b.name, Key: bytes.Clone(key), Reason: err.Error()}
	}
	return v, true, nil
}
