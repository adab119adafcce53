package store_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/fieldgw/fieldgw/internal/durable"
	"github.com/fieldgw/fieldgw/internal/server/store"
	"github.com/fieldgw/fieldgw/internal/server/store/storetest"
)

func openEmbedded(t *testing.T) *store.Embedded {
	t.Helper()
	s, err := store.OpenEmbedded(filepath.Join(t.TempDir(), "server.db"), durable.OS(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The embedded store keeps the contract.
func TestEmbedded(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return openEmbedded(t) })
}
