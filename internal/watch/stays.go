package watch

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/fieldgw/fieldgw/internal/attachment"
)

// stays is the set of files that stay in place and are known to the taker: 64 bits of the path lead to 64 bits of the
// identity and change time. It only saves questions. What it forgets, for lack of room or by a restart, is offered once more and the
// taker's ledger recognises it. Both values are hashed with a seed of this process, so that no name can be made to match.
type stays struct {
	seed  maphash.Seed
	limit int
	marks map[uint64]stay
}

type stay struct {
	identity uint64
	walk     uint32 // the walk that saw it last
}

func newStays(limit int) stays {
	return stays{seed: maphash.MakeSeed(), limit: limit, marks: map[uint64]stay{}}
}

func (s *stays) hash(rel string, id attachment.SourceIdentity, changed int64) (path, identity uint64) {
	var b [48]byte
	path = maphash.String(s.seed, rel)
	for i, v := range []uint64{path, id.Device, id.Inode, uint64(id.Size), uint64(id.MTimeNS), uint64(changed)} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return path, maphash.Bytes(s.seed, b[:])
}

// add records a file; false when there is no room.
func (s *stays) add(rel string, id attachment.SourceIdentity, changed int64, walk uint32) bool {
	path, identity := s.hash(rel, id, changed)
	if _, known := s.marks[path]; !known && len(s.marks) >= s.limit {
		return false
	}
	s.marks[path] = stay{identity: identity, walk: walk}
	return true
}

// holds reports whether the file is recorded as it is now. A recorded file that changed is forgotten.
func (s *stays) holds(rel string, id attachment.SourceIdentity, changed int64, walk uint32) bool {
	if len(s.marks) == 0 {
		return false
	}
	path, identity := s.hash(rel, id, changed)
	mark, known := s.marks[path]
	if !known {
		return false
	}
	if mark.identity != identity {
		delete(s.marks, path)
		return false
	}
	if mark.walk != walk {
		s.marks[path] = stay{identity: identity, walk: walk}
	}
	return true
}

// remove forgets one file.
func (s *stays) remove(rel string) { delete(s.marks, maphash.String(s.seed, rel)) }

// sweep forgets what a complete walk did not see.
func (s *stays) sweep(walk uint32) {
	for path, mark := range s.marks {
		if mark.walk != walk {
			delete(s.marks, path)
		}
	}
}
