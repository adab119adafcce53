// Package storetest opens stores for tests and holds every one of them to the full check when its test ends.
//
// It owns nothing but that habit. Use Open for a store in a directory of its own, and OpenAt to open a file again, as a
// restart would.
package storetest

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/fieldgw/fieldgw/internal/store"
)

// Open makes an empty store in a temporary directory. When the test ends, the store is checked, with bbolt's own check,
// every checksum and every count, and closed; each finding fails the test.
func Open(t testing.TB, schema store.Schema) *store.Store {
	t.Helper()
	return OpenAt(t, filepath.Join(t.TempDir(), "store.db"), schema)
}

// OpenAt is Open for a path, where a store may already be. A store that the test has closed or that has failed by then is
// not checked: the one that is opened after it is.
func OpenAt(t testing.TB, path string, schema store.Schema) *store.Store {
	t.Helper()
	s, err := store.Open(path, schema, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Err() == nil {
			check(t, s)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

func check(t testing.TB, s *store.Store) {
	t.Helper()
	findings, err := s.Check(context.WithoutCancel(t.Context()))
	if errors.Is(err, store.ErrClosed) {
		return
	}
	if err != nil {
		t.Errorf("check the store: %v", err)
	}
	for _, f := range findings {
		t.Errorf("check the store: %v", f)
	}
}
