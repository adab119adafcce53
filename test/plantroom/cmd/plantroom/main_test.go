package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Proves that the command writes the fixture, prints what sha256sum would print, and tells wrong
// usage from a failure by its exit status.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-dir", dir, "-seed", "7"}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	var want bytes.Buffer
	for _, name := range []string{"photo-1.jpg", "photo-2.jpg", "photo-3.jpg", "report-signed.pdf"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256(data), name)
	}
	if stdout.String() != want.String() || stderr.Len() > 0 {
		t.Errorf("printed\n%s%swant\n%s", &stdout, &stderr, &want)
	}
	for _, c := range []struct {
		args []string
		code int
	}{
		{nil, 2},
		{[]string{"-dir", dir, "more"}, 2},
		{[]string{"-dir", dir, "-seed", "-1"}, 2},
		{[]string{"-help"}, 0},
		{[]string{"-dir", filepath.Join(dir, "photo-1.jpg")}, 1},
	} {
		stdout.Reset()
		stderr.Reset()
		if code := run(c.args, &stdout, &stderr); code != c.code || stdout.Len() > 0 || stderr.Len() == 0 {
			t.Errorf("%q: exit status %d, stdout %q, stderr %q, want status %d", c.args, code, &stdout, &stderr, c.code)
		}
	}
}
