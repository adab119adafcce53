package linkproxy

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// Proves that a delayed link loses and reorders nothing, also at a limited rate, passes ends of stream, and that nothing
// arrives before its time.
func TestDelay(t *testing.T) {
	p := newProxy(t, newServer(t, echo), 0)
	const delay = 60 * time.Millisecond
	p.SetDelay(delay)
	p.SetRate(4 << 20)
	var group sync.WaitGroup
	for range 4 {
		conn, data := dial(t, p), randomBytes(200_000)
		group.Go(func() {
			began := time.Now()
			if back, err := exchange(conn, data); err != nil || !bytes.Equal(back, data) {
				t.Errorf("%d bytes came back, %v", len(back), err)
			}
			if took := time.Since(began); took < 2*delay {
				t.Errorf("the way there and back took %s, less than two delays of %s", took, delay)
			}
		})
	}
	group.Wait()
}

// Proves that a delayed link can be cut with bytes on their way, and leaves nothing behind.
func TestCutDelayed(t *testing.T) {
	p := newProxy(t, newServer(t, echo), 0)
	p.SetDelay(time.Hour)
	conn := dial(t, p)
	if _, err := conn.Write(randomBytes(10_000)); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	_, err := conn.Read(make([]byte, 1))
	wantReset(t, "client", err)
}

// Proves that connections break by themselves when they are told to, and not otherwise.
func TestResets(t *testing.T) {
	p := newProxy(t, newServer(t, echo), 0)
	p.SetResets(1e6) // certain with the first bytes
	conn := dial(t, p)
	if _, err := conn.Write(randomBytes(10_000)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	wantReset(t, "client", err)
	p.SetResets(0)
	ping(t, dial(t, p))
}
