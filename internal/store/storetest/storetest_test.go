package storetest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fieldgw/fieldgw/internal/store"
)

// recorder is a test that notes its failures and runs its cleanups when told.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }

func (r *recorder) end() {
	for _, fn := range r.cleanups {
		fn()
	}
}

var schema = store.Schema{Name: "test", Version: 1, Buckets: []string{"a"}}

func put(t *testing.T, s *store.Store) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		return tx.Bucket("a").Put([]byte("key"), []byte("a stored value"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A sound store passes, closed by its test or not; a damaged one fails the test that used it.
func TestCleanupChecks(t *testing.T) {
	r := &recorder{TB: t}
	put(t, Open(r, schema))
	closed := Open(r, schema)
	put(t, closed)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, OpenAt(r, closed.Path(), schema))
	r.end()
	if len(r.failures) > 0 {
		t.Errorf("sound stores fail with %q", r.failures)
	}

	r = &recorder{TB: t}
	s := Open(r, schema)
	put(t, s)
	file, err := os.ReadFile(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path(), bytes.ReplaceAll(file, []byte("stored"), []byte("spoilt")), 0o600); err != nil {
		t.Fatal(err)
	}
	r.end()
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], `"key"`) {
		t.Errorf("a damaged store fails with %q", r.failures)
	}
}
