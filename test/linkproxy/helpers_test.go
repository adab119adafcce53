package linkproxy

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newProxy runs a proxy to target for as long as the test lasts.
func newProxy(t *testing.T, target string, limit int) *Proxy {
	t.Helper()
	p, err := New(Options{Target: target, MaxConnections: limit})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	t.Cleanup(func() { // t.Context ends just before
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if s := p.Stats(); s.Open != 0 {
			t.Errorf("%d connections left after Run", s.Open)
		}
	})
	return p
}

// newServer accepts connections and hands each to handle, in a goroutine of its own, then closes it.
func newServer(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				handle(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

func echo(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }

func dial(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// exchange sends data through an echo server and returns what came back until the end of the stream.
func exchange(conn *net.TCPConn, data []byte) ([]byte, error) {
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		sent <- errors.Join(err, conn.CloseWrite())
	}()
	back, err := io.ReadAll(conn)
	return back, errors.Join(err, <-sent)
}

func wantReset(t *testing.T, who string, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%s: %v, want a reset connection", who, err)
	}
}

// wantRefused connects and expects a reset, which the connect itself may already report.
func wantRefused(t *testing.T, who string, p *Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	wantReset(t, who, err)
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	return data
}

// until waits for what the proxy will do next; a proxy that does not is caught by go test's own timeout.
func until(done func() bool) {
	for !done() {
		runtime.Gosched()
	}
}

// ping sends one byte through an echo server and waits for it.
func ping(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}
