package store

import (
	"encoding/binary"
	"hash/crc32"
)

// sumSize is the length of the checksum in front of every stored value, in bytes.
const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealer makes and checks the values of one bucket. It is the checksum's state after the bucket's name, so that a value
// which turns up in another bucket does not pass for one of it.
type sealer uint32

func newSealer(bucket string) sealer {
	return sealer(crc32.Update(0, castagnoli, []byte(bucket)))
}

// sum is CRC32C over bucket name, key and value. The key's length enters too, so that bytes cannot move from the key to
// the value unnoticed.
func (s sealer) sum(key, value []byte) uint32 {
	crc := crc32.Update(uint32(s)^uint32(len(key)), castagnoli, key)
	return crc32.Update(crc, castagnoli, value)
}

// seal returns what is stored for value: the checksum, big endian, then the value.
func (s sealer) seal(key, value []byte) []byte {
	sealed := make([]byte, sumSize, sumSize+len(value))
	binary.BigEndian.PutUint32(sealed, s.sum(key, value))
	return append(sealed, value...)
}

// open returns the value inside sealed, aliasing it, or says in a few words why it is damaged.
func (s sealer) open(key, sealed []byte) (value []byte, damage string) {
	if len(sealed) < sumSize {
		return nil, "shorter than its checksum"
	}
	value = sealed[sumSize:]
	if binary.BigEndian.Uint32(sealed) != s.sum(key, value) {
		return nil, "checksum does not match"
	}
	return value, ""
}

// tally is what the store keeps for each bucket beside the bucket itself.
type tally struct {
	count    uint64 // keys in the bucket
	sequence uint64 // the last number NextSequence gave out
}

const tallySize = 16

func (t tally) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, tallySize), t.count)
	return binary.BigEndian.AppendUint64(b, t.sequence)
}

func decodeTally(b []byte) (t tally, ok bool) {
	if len(b) != tallySize {
		return tally{}, false
	}
	return tally{count: binary.BigEndian.Uint64(b), sequence: binary.BigEndian.Uint64(b[8:])}, true
}
