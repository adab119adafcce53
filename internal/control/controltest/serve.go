package controltest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/fieldgw/fieldgw/internal/control/server"
)

// Socket names a socket in a directory of the test's own.
func Socket(t testing.TB) string { return filepath.Join(t.TempDir(), "s") }

// Serve answers at socket until the test ends or stop is called; stop waits for the end.
func Serve(t testing.TB, socket string, b server.Backend) (stop func()) {
	t.Helper()
	l, err := server.Listen(socket, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := server.New(b, server.Options{Logger: slog.New(slog.DiscardHandler)})
		if err := s.Run(ctx, l); err != nil {
			t.Errorf("control server: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}
