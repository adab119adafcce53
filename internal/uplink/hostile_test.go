package uplink_test

import (
	"net/http"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/fieldgw"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Whatever one request meets, a fieldgw delivery gets over it, in either dialect.
func TestFieldgwAmongEnemies(t *testing.T) {
	for name, dialects := range map[string][]string{
		"fieldgw, tus": {wire.DialectTus}, "fieldgw, long appends": {wire.DialectTus, wire.DialectRUFH},
	} {
		t.Run(name, func(t *testing.T) {
			uplinktest.Hostile(t, uplinktest.Kind{
				Name: name,
				Serve: func(testing.TB) (http.Handler, func(*attachment.Manifest) []byte) {
					s := uplinktest.NewServer()
					s.Offer(dialects...)
					return s, func(m *attachment.Manifest) []byte { return s.Stored(string(m.ID)) }
				},
				Refuse: uplinktest.RefuseFieldgw,
				Driver: func(c *remote.Client) uplink.Driver { return fieldgw.New(c) },
				Size:   5 * chunk / 2, Chunk: chunk,
			})
		})
	}
}
