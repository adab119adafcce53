package uplink

import (
	"sync"
	"time"
)

// firstChunk is what an adapting pace begins with, in bytes.
const firstChunk = 1 << 20

// pace chooses the size of chunks. All deliveries share the link, so they share its pace.
type pace struct {
	floor  int64
	target time.Duration // 0: do not adapt

	mu   sync.Mutex
	most int64 // the largest chunk; comes down when the server refuses a size
	size int64 // the next chunk
}

func newPace(o Options) *pace {
	p := &pace{floor: o.ChunkFloor, target: o.ChunkTime, most: o.ChunkMax, size: o.ChunkMax}
	if p.target > 0 {
		p.size = max(min(firstChunk, p.most), p.floor)
	}
	return p
}

// next is the size of the next chunk, given what is left and what the server takes (0: no limit).
func (p *pace) next(left, serverMax int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(p.size, left)
	if serverMax > 0 {
		n = min(n, serverMax)
	}
	return n
}

// top is how much may go beyond what is confirmed and recorded.
func (p *pace) top() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// sent learns from a confirmed chunk. One that was not full says too little about a larger one; the size at most doubles
// or halves.
func (p *pace) sent(n int64, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.target == 0 || n < p.size {
		return
	}
	want := 2 * p.size
	if took > 0 {
		want = int64(float64(n) * float64(p.target) / float64(took))
	}
	p.size = max(min(want, 2*p.size, p.most), p.size/2, p.floor)
}

// refused learns that a chunk of n bytes is too large. It reports false when it cannot be made smaller.
func (p *pace) refused(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n <= p.floor {
		return false
	}
	p.most = min(p.most, max(n/2, p.floor))
	p.size = min(p.size, p.most)
	return true
}

// slowed learns that a chunk did not get through: the link may have become slower.
func (p *pace) slowed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.target > 0 {
		p.size = max(p.size/2, p.floor)
	}
}
