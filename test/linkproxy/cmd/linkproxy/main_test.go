package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Proves what a shell script relies on: the first line names an address that takes connections, the
// control socket is ready by then, client mode prints the answer, and both end in order.
func TestRun(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	control := filepath.Join(t.TempDir(), "control")
	ctx, cancel := context.WithCancel(t.Context())
	out, stdout := io.Pipe()
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"-target", server.Addr().String(), "-control", control}, stdout, &stderr)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "listening ")
	if !ok {
		t.Fatalf("first line %q", line)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range []struct {
		command, answer string
		code            int
	}{{"cut-after 500000", "ok\n", 0}, {"cut", "ok\n", 0}, {"explode", "", 1}} {
		var answer, complaint bytes.Buffer
		code := run(t.Context(), []string{"-control", control, "-do", c.command}, &answer, &complaint)
		if code != c.code || answer.String() != c.answer || (code == 0) != (complaint.Len() == 0) {
			t.Errorf("%s: exit status %d, stdout %q, stderr %q", c.command, code, &answer, &complaint)
		}
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit status %d: %s", code, &stderr)
	}
	if code := run(t.Context(), []string{"-control", control, "-do", "stats"}, io.Discard, io.Discard); code != 1 {
		t.Errorf("order to a proxy that ended: exit status %d", code)
	}
}

// Proves that wrong usage and impossible settings are told apart by exit status.
func TestRunUsage(t *testing.T) {
	control := filepath.Join(t.TempDir(), "control")
	for _, c := range []struct {
		args string
		code int
	}{
		{"", 2},
		{"-target 127.0.0.1:1", 2},
		{"-control " + control, 2},
		{"-control " + control + " -target 127.0.0.1:1 -do stats", 2},
		{"-control " + control + " -target 127.0.0.1:1 more", 2},
		{"-nonsense", 2},
		{"-help", 0},
		{"-control " + control + " -target 127.0.0.1:1 -listen 0.0.0.0:0", 1},
		{"-control " + control + "/none -target 127.0.0.1:1", 1},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr)
		if code != c.code || stdout.Len() > 0 || stderr.Len() == 0 {
			t.Errorf("%q: exit status %d, stdout %q, stderr %q, want status %d", c.args, code, &stdout, &stderr, c.code)
		}
	}
}
