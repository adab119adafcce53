package server

import "sync"

// gate counts the requests under way, so that nothing is closed below them.
type gate struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{} // closed when closed and n is 0
}

func newGate() *gate { return &gate{empty: make(chan struct{})} }

// enter lets a request in, unless the gate is closed. Who got in leaves once.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.closed && g.n == 0 {
		close(g.empty)
	}
}

// shut lets nobody in any more and waits until all have left.
func (g *gate) shut() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		if g.n == 0 {
			close(g.empty)
		}
	}
	g.mu.Unlock()
	<-g.empty
}
