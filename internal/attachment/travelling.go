package attachment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// MaxTravelling bounds the travelling copy of a manifest, in bytes. It leaves room for the segment digests of 1 TiB.
const MaxTravelling = 32 << 20

// Travelling is the copy of a manifest that lies beside its payload as ID.manifest, so that a payload can be understood
// without the queue: on a card, or when the queue is damaged.
type Travelling struct {
	Manifest Manifest `json:"manifest"`
	Segments []Digest `json:"segments,omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the file's content: one line of JSON, then "crc32c" and eight hex digits over that line, so that damage
// on the medium is seen.
func (t *Travelling) Encode() ([]byte, error) {
	if err := t.Manifest.Validate(); err != nil {
		return nil, err
	}
	line, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode manifest %s: %w", t.Manifest.ID, err)
	}
	return fmt.Appendf(line, "\ncrc32c %08x\n", crc32.Checksum(line, castagnoli)), nil
}

// DecodeTravelling reads what Encode wrote. Errors wrap ErrBadManifest.
func DecodeTravelling(data []byte) (*Travelling, error) {
	line, trailer, found := bytes.Cut(data, []byte("\n"))
	if !found || string(trailer) != fmt.Sprintf("crc32c %08x\n", crc32.Checksum(line, castagnoli)) {
		return nil, fmt.Errorf("%w: checksum does not match", ErrBadManifest)
	}
	var t Travelling
	if err := json.Unmarshal(line, &t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadManifest, err)
	}
	if err := t.Manifest.Validate(); err != nil {
		return nil, err
	}
	if got, want := len(t.Segments), SegmentCount(t.Manifest.Length); got != want {
		return nil, fmt.Errorf("%w: %d segment digests for %d bytes, want %d", ErrBadManifest, got, t.Manifest.Length, want)
	}
	return &t, nil
}
