package spelling

import (
	"strings"
	"testing"
)

// The nearest key is found over omissions, swaps and case, and a chance likeness is not offered.
func TestNearest(t *testing.T) {
	keys := []string{"workers", "socket", "endpoint", "idle_timeout", "path", "id", "level", "format"}
	for word, want := range map[string]string{
		"wokers": "workers", "sokcet": "socket", "Endpoint": "endpoint", "idle-timeout": "idle_timeout", "endpoints": "endpoint",
		"x": "", "": "", "colour": "", "fro": "", strings.Repeat("w", 65): "",
	} {
		if got := Nearest(word, keys); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"é", "e", 1}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
