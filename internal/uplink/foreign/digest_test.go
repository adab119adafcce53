package foreign_test

import (
	"net/http"
	"testing"

	"github.com/fieldgw/fieldgw/internal/uplink/foreign"
)

// Only a whole SHA-256 in its place is one.
func TestDigestIn(t *testing.T) {
	const sum = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	const hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for line, want := range map[string]string{
		"sha-256=:" + sum + ":": hex, "md5=:AA==:, sha-256=:" + sum + ":;q=1": hex, "": "", "sha-256=" + sum: "",
		"sha-256=:" + sum: "", "sha-256=:AAAA:": "", "sha-512=:" + sum + ":": "", "sha-256=:****:": "",
	} {
		if got := foreign.DigestIn(http.Header{"Repr-Digest": {line}}); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
