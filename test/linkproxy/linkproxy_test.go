package linkproxy

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "seed of TestRandomOrders; 0 draws one")

// Proves that an open link is transparent: every byte of many connections comes back, ends of
// stream pass each way by themselves, and the counters say what moved.
func TestForward(t *testing.T) {
	p := newProxy(t, newServer(t, echo), 0)
	const clients, size = 8, 300_000
	var group sync.WaitGroup
	for range clients {
		conn, data := dial(t, p), randomBytes(size)
		group.Go(func() {
			if back, err := exchange(conn, data); err != nil || !bytes.Equal(back, data) {
				t.Errorf("%d bytes came back, %v", len(back), err)
			}
		})
	}
	group.Wait()
	if p.BytesUp() != clients*size || p.BytesDown() != clients*size || p.Connections() != clients {
		t.Errorf("up %d, down %d, connections %d", p.BytesUp(), p.BytesDown(), p.Connections())
	}
}

// Proves that Cut resets both ends of open connections and new connections, that nothing is left
// when it returns, and that Restore brings the link back.
func TestCutRestore(t *testing.T) {
	serverErr := make(chan error, 2)
	p := newProxy(t, newServer(t, func(conn *net.TCPConn) {
		_, err := io.Copy(conn, conn)
		serverErr <- err
	}), 0)
	conn := dial(t, p)
	ping(t, conn)
	p.Cut()
	if s := p.Stats(); s.Open != 0 || s.Mode != ModeCut {
		t.Errorf("after Cut: %+v", s)
	}
	_, err := conn.Read(make([]byte, 1))
	wantReset(t, "client", err)
	wantReset(t, "server", <-serverErr)
	wantRefused(t, "new client", p)
	if s := p.Stats(); s.Refused != 1 || s.Connections != 1 {
		t.Errorf("after a connection to a cut link: %+v", s)
	}
	p.Restore()
	ping(t, dial(t, p))
}

// Proves that CutAfter is exact: the server reads the first n bytes of what was sent and then a
// reset, whether it reads all the time or only when the link is long cut.
func TestCutAfter(t *testing.T) {
	data := randomBytes(1 << 20)
	for _, c := range []struct {
		n    int64
		late bool
	}{{1, false}, {1, true}, {20_000, true}, {chunkSize, false}, {chunkSize + 1, false}, {500_000, false}, {0, false}} {
		got, gotErr := make(chan []byte, 1), make(chan error, 1)
		start := make(chan struct{})
		p := newProxy(t, newServer(t, func(conn *net.TCPConn) {
			<-start
			b, err := io.ReadAll(conn)
			got <- b
			gotErr <- err
		}), 0)
		conn := dial(t, p)
		if !c.late {
			close(start)
		}
		if c.n == 0 { // the connection has to reach the server before this cut
			if _, err := conn.Write(data[:1]); err != nil {
				t.Fatal(err)
			}
			until(func() bool { return p.BytesUp() > 0 })
		}
		p.CutAfter(c.n)
		_, err := conn.Write(data)
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		wantReset(t, "client", err)
		if err := p.Wait(t.Context(), ModeCut); err != nil {
			t.Fatal(err)
		}
		if c.late {
			close(start)
		}
		want := max(c.n, 1)
		if b := <-got; !bytes.Equal(b, data[:want]) {
			t.Errorf("n=%d late=%v: server read %d bytes", c.n, c.late, len(b))
		}
		wantReset(t, "server", <-gotErr)
		if s := p.Stats(); s.BytesUp != want || s.Mode != ModeCut || s.CutAfterLeft != nil {
			t.Errorf("n=%d late=%v: %+v", c.n, c.late, s)
		}
	}
}

// Proves that the allowance of CutAfter is shared: with several clients at once the servers read n
// bytes together, not one more or less.
func TestCutAfterShared(t *testing.T) {
	const clients, n = 5, 234_567
	counts := make(chan int64, clients)
	p := newProxy(t, newServer(t, func(conn *net.TCPConn) {
		_, _ = io.CopyN(conn, conn, 1)
		c, err := io.Copy(io.Discard, conn)
		wantReset(t, "server", err)
		counts <- c
	}), 0)
	var conns []*net.TCPConn
	for range clients {
		conn := dial(t, p)
		ping(t, conn) // the connection has reached the server
		conns = append(conns, conn)
	}
	p.CutAfter(n)
	if left := p.Stats().CutAfterLeft; left == nil || *left != n {
		t.Errorf("left %v, want %d", left, n)
	}
	var group sync.WaitGroup
	for _, conn := range conns {
		group.Go(func() {
			_, err := conn.Write(make([]byte, n))
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
			}
			wantReset(t, "client", err)
		})
	}
	group.Wait()
	var total int64
	for range clients {
		total += <-counts
	}
	if total != n || p.BytesUp() != clients+n {
		t.Errorf("servers read %d, counted %d, want %d", total, p.BytesUp(), n)
	}
}

// Proves that an answer to the last byte of CutAfter is lost, however quickly the server answers:
// this is the lost acknowledgement that delivery must survive.
func TestCutAfterLosesAnswer(t *testing.T) {
	const n = 1000
	p := newProxy(t, newServer(t, func(conn *net.TCPConn) {
		if _, err := io.ReadFull(conn, make([]byte, n)); err == nil {
			_, _ = conn.Write([]byte("received"))
			_, _ = conn.Read(make([]byte, 1))
		}
	}), 0)
	for range 50 {
		p.CutAfter(n)
		conn := dial(t, p)
		if _, err := conn.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(conn)
		wantReset(t, "client", err)
		if len(b) > 0 {
			t.Fatalf("the answer %q came through", b)
		}
	}
	if p.BytesDown() != 0 {
		t.Errorf("%d bytes went down", p.BytesDown())
	}
}

// Proves that a stalled link keeps connections, takes new ones, passes neither data nor ends of
// stream, and goes on without loss when restored; and that it can be cut.
func TestStall(t *testing.T) {
	type event struct {
		data string
		err  error
	}
	events := make(chan event, 10)
	p := newProxy(t, newServer(t, func(conn *net.TCPConn) {
		b, err := io.ReadAll(conn)
		events <- event{string(b), err}
	}), 0)
	send := func(conn *net.TCPConn, s string) {
		t.Helper()
		if _, err := conn.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	p.Stall()
	first, second := dial(t, p), dial(t, p)
	send(first, "one")
	send(second, "one")
	// Nothing must come; if something can, this is time enough for it most of the time.
	if err := first.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("client of a stalled link: %v", err)
	}
	if s := p.Stats(); s.BytesUp != 0 || s.Mode != ModeStalled || len(events) > 0 {
		t.Errorf("stalled: %+v, %d events at the server", s, len(events))
	}
	p.Restore()
	for range 2 {
		if e := <-events; e.data != "one" || e.err != nil {
			t.Errorf("after Restore the server saw %+v", e)
		}
	}
	p.Stall()
	third := dial(t, p)
	send(third, "lost")
	until(func() bool { return p.Connections() == 3 })
	p.Cut()
	_, err := third.Read(make([]byte, 1))
	wantReset(t, "client of a link stalled and cut", err)
	if p.BytesUp() != 6 {
		t.Errorf("%d bytes went up, want 6", p.BytesUp())
	}
}

// Proves that a slow link loses nothing, and that lifting the limit takes effect on a transfer that
// waits for it: at a byte a second this test would not end.
func TestSetRate(t *testing.T) {
	p := newProxy(t, newServer(t, echo), 0)
	p.SetRate(4 << 20)
	data := randomBytes(200_000)
	if back, err := exchange(dial(t, p), data); err != nil || !bytes.Equal(back, data) {
		t.Errorf("slow: %d bytes came back, %v", len(back), err)
	}
	p.SetRate(1)
	conn := dial(t, p)
	before := p.BytesUp()
	result := make(chan error, 1)
	go func() {
		back, err := exchange(conn, data)
		if err == nil && !bytes.Equal(back, data) {
			err = errors.New("different bytes came back")
		}
		result <- err
	}()
	until(func() bool { return p.BytesUp() > before })
	p.SetRate(0)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// Proves the limits: no more than MaxConnections at one time, a reset when the server is not there,
// and no listening or forwarding that cannot be meant.
func TestRefusals(t *testing.T) {
	p := newProxy(t, newServer(t, echo), 1)
	conn := dial(t, p)
	ping(t, conn)
	wantRefused(t, "one too many", p)

	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	p = newProxy(t, gone.Addr().String(), 0)
	wantRefused(t, "no server", p)
	if s := p.Stats(); s.Refused != 1 {
		t.Errorf("no server: %+v", s)
	}
	if _, err := New(Options{Listen: "0.0.0.0:0", Target: "127.0.0.1:1"}); !errors.Is(err, ErrNotLoopback) {
		t.Errorf("listen everywhere: %v", err)
	}
	if _, err := New(Options{Target: "no port"}); err == nil {
		t.Error("a target without a port was accepted")
	}
}

// Proves that orders in any sequence and at any moment, with connections coming and going, leave a
// proxy that works, and that whatever arrives is the beginning of what was sent.
func TestRandomOrders(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d", seed)
	data := randomBytes(100_000)
	server := newServer(t, echo)
	p := newProxy(t, server, 4)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 6 {
		clients.Go(func() {
			for ctx.Err() == nil {
				conn, err := net.Dial("tcp", p.Addr())
				if err != nil {
					wantReset(t, "connect", err)
					continue
				}
				back, _ := exchange(conn.(*net.TCPConn), data)
				if !bytes.HasPrefix(data, back) {
					t.Error("other bytes came back than were sent")
				}
				conn.Close()
			}
		})
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		switch r.IntN(6) {
		case 0:
			p.Cut()
		case 1:
			p.Stall()
		case 2:
			p.CutAfter(r.Int64N(200_000))
		case 3:
			p.SetRate(r.Int64N(1 << 24))
		default:
			p.Restore()
		}
		for range r.IntN(20) { // some time for the clients, in units of work
			conn, err := net.Dial("tcp", server)
			if err != nil {
				t.Fatal(err)
			}
			ping(t, conn)
			conn.Close()
		}
	}
	s := p.Stats()
	t.Logf("%+v", s)
	if s.Connections == 0 || s.Refused == 0 || s.BytesDown == 0 {
		t.Error("the clients hardly met the link")
	}
	stop()
	p.Cut()
	clients.Wait()
	p.Restore()
	p.SetRate(0)
	ping(t, dial(t, p))
}

// Proves that the end of Run resets what is open and that Close releases a proxy that never ran.
func TestEnd(t *testing.T) {
	p, err := New(Options{Target: newServer(t, echo)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	conn := dial(t, p)
	ping(t, conn)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	_, err = conn.Read(make([]byte, 1))
	wantReset(t, "client", err)
	if err := p.Wait(ctx, ModeCut); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	again, err := New(Options{Listen: p.Addr(), Target: "127.0.0.1:1"})
	if err != nil {
		t.Fatalf("the address is still taken: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
