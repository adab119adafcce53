package linkproxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// newControl runs a control socket for p for as long as the test lasts.
func newControl(t *testing.T, p *Proxy) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control")
	c, err := NewControl(path, p)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("control: %v", err)
		}
	})
	return path
}

// Proves that each command has its effect by the time it is answered, and that stats is JSON that
// decodes to what the proxy says itself.
func TestControl(t *testing.T) {
	p := newProxy(t, newServer(t, echo), 0)
	path := newControl(t, p)
	ping(t, dial(t, p))
	left := int64(500_000)
	for _, c := range []struct {
		command string
		want    func(Stats) bool
	}{
		{"cut", func(s Stats) bool { return s.Mode == ModeCut && s.Open == 0 }},
		{"restore", func(s Stats) bool { return s.Mode == ModeOpen }},
		{"stall", func(s Stats) bool { return s.Mode == ModeStalled }},
		{"cut-after 500000", func(s Stats) bool { return s.Mode == ModeOpen && *s.CutAfterLeft == left }},
		{"  rate   65536 ", func(s Stats) bool { return s.Rate == 65536 }},
		{"rate 0", func(s Stats) bool { return s.Rate == 0 }},
		{"cut-after 0", func(s Stats) bool { return s.Mode == ModeCut && s.CutAfterLeft == nil }},
	} {
		if answer, err := Do(t.Context(), path, c.command); answer != "ok" || err != nil {
			t.Errorf("%s: %q, %v", c.command, answer, err)
		}
		if s := p.Stats(); !c.want(s) {
			t.Errorf("after %s: %+v", c.command, s)
		}
	}
	answer, err := Do(t.Context(), path, "stats")
	if err != nil {
		t.Fatal(err)
	}
	var s Stats
	if err := json.Unmarshal([]byte(answer), &s); err != nil || s != p.Stats() || s.Connections != 1 {
		t.Errorf("stats %s: %v, want %+v", answer, err, p.Stats())
	}
}

// Proves that what is not a command is refused with a reason and changes nothing, and that neither
// an endless line nor a client that leaves early keeps the next client from being served.
func TestControlRefuses(t *testing.T) {
	p := newProxy(t, newServer(t, echo), 0)
	path := newControl(t, p)
	for _, command := range []string{"", "Cut", "cut 1", "cut-after", "cut-after -1", "rate 1 2", "rate x", "rate 9223372036854775808", strings.Repeat("x", 500)} {
		if answer, err := Do(t.Context(), path, command); !errors.Is(err, ErrRefused) || answer != "" {
			t.Errorf("%.40q: %q, %v", command, answer, err)
		}
	}
	for _, line := range []string{strings.Repeat("cut ", 1000), "cut"} {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, line) // an endless line may be refused half-way
		_ = conn.CloseWrite()
		if answer, _ := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("%.20q without a line feed was answered with %q", line, answer)
		}
		conn.Close()
	}
	if s := p.Stats(); s.Mode != ModeOpen || s.Rate != 0 {
		t.Errorf("after refused commands: %+v", s)
	}
	if _, err := NewControl(path, p); err == nil {
		t.Error("a second control took over the socket")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Do(ctx, path, "stats"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Proves that no line makes the parser panic or yield an order outside its contract.
func FuzzParseCommand(f *testing.F) {
	for _, s := range []string{"cut", "stats", "cut-after 1", "rate 0", "rate -1", "cut-after 99999999999999999999", " \t", "cut\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		cmd, err := parseCommand(line)
		if err != nil {
			if !errors.Is(err, ErrBadCommand) || cmd != (command{}) {
				t.Errorf("%q: %+v, %v", line, cmd, err)
			}
			return
		}
		numbered, known := takesNumber[cmd.verb]
		if !known || cmd.n < 0 || (!numbered && cmd.n != 0) {
			t.Errorf("%q parsed to %+v", line, cmd)
		}
	})
}
