package uplink_test

import (
	"net/http"
	"testing"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// An offset is a decimal number that fits, and nothing else.
func FuzzOffsetIn(f *testing.F) {
	for _, text := range []string{"0", "9223372036854775807", "9223372036854775808", "-1", "+1", "1_0", "", " 1", "0x1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := uplink.OffsetIn(&remote.Response{Header: http.Header{wire.HeaderUploadOffset: {text}}})
		if err != nil {
			return
		}
		if n < 0 || text == "" || text[0] < '0' || text[0] > '9' {
			t.Fatalf("%q is %d", text, n)
		}
	})
}
