package attachment

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
)

// SegmentSize is the length in bytes of the pieces that have a digest of their own (4 MiB), so that a piece can be
// checked before it is sent and a resume reads one piece only.
const SegmentSize = 4 << 20

// Digest is a SHA-256 value (FIPS 180-4). Its text is 64 lower-case hex digits.
type Digest [sha256.Size]byte

// String returns the hex text.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; it takes exactly 64 hex digits.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("digest has %d characters, want %d", len(text), hex.EncodedLen(len(d)))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Hasher computes the digest of a payload and of each of its segments in one pass. The zero value is not usable.
type Hasher struct {
	whole, segment hash.Hash
	inSegment      int64
	length         int64
	segments       []Digest
}

// NewHasher returns a Hasher for the empty payload.
func NewHasher() *Hasher { return &Hasher{whole: sha256.New(), segment: sha256.New()} }

// Write adds bytes; it never fails.
func (h *Hasher) Write(p []byte) (int, error) {
	h.whole.Write(p)
	h.length += int64(len(p))
	for rest := p; len(rest) > 0; {
		n := min(int64(len(rest)), SegmentSize-h.inSegment)
		h.segment.Write(rest[:n])
		h.inSegment += n
		rest = rest[n:]
		if h.inSegment == SegmentSize {
			h.closeSegment()
		}
	}
	return len(p), nil
}

func (h *Hasher) closeSegment() {
	h.segments = append(h.segments, Digest(h.segment.Sum(nil)))
	h.segment.Reset()
	h.inSegment = 0
}

// Fingerprint is what a payload must still be: its length in bytes, its digest and those of its segments.
type Fingerprint struct {
	Length   int64    `json:"length"`
	SHA256   Digest   `json:"sha256"`
	Segments []Digest `json:"segments,omitempty"`
}

// Sum returns the fingerprint of what was written so far. Writing must not go on afterwards.
func (h *Hasher) Sum() Fingerprint {
	if h.inSegment > 0 {
		h.closeSegment()
	}
	return Fingerprint{Length: h.length, SHA256: Digest(h.whole.Sum(nil)), Segments: h.segments}
}

// Equal reports whether two fingerprints are of the same bytes.
func (f Fingerprint) Equal(g Fingerprint) bool { return f.Length == g.Length && f.SHA256 == g.SHA256 }

// SegmentCount returns how many segments a payload of the given length has.
func SegmentCount(length int64) int { return int((length + SegmentSize - 1) / SegmentSize) }
