package tus_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/tus"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

const chunk = 64 << 10 // bytes

// servers are kinds of tus servers, each with something that another lacks. The last ones meet no enemies: they would meet the
// same ones in the same places.
var servers = []struct {
	name       string
	lengthOnly bool
	set        func(s *server)
}{
	{"plain", false, func(*server) {}},
	{"with checksums", false, func(s *server) { s.extensions, s.algorithms = "creation,termination,checksum", "md5,sha1,sha256" }},
	{"that gives nothing back", true, func(s *server) { s.closed = true }},
	{"that tells digests", false, func(s *server) { s.telling, s.closed = true, true }},
	{"without OPTIONS", false, func(s *server) { s.silent = true }},
	{"that takes any offset", false, func(s *server) { s.sloppy = true }},
}

func options(o *remote.Options) { o.Protocol = tus.Protocol() }

func newDriver(client *remote.Client, lengthOnly bool) *tus.Driver {
	return tus.New(tus.Options{Client: client, LengthOnly: lengthOnly})
}

// The driver keeps every promise that it declares, at each kind of server.
func TestConforms(t *testing.T) {
	for _, kind := range servers {
		t.Run(kind.name, func(t *testing.T) {
			s := newServer()
			kind.set(s)
			web := httptest.NewServer(s)
			t.Cleanup(web.Close)
			connect := func() uplink.Driver {
				client, err := remote.New(remote.Options{Endpoint: web.URL + "/files/", Logger: slog.New(slog.DiscardHandler), Protocol: tus.Protocol()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(client.CloseIdle)
				return newDriver(client, kind.lengthOnly)
			}
			uplinktest.Run(t, func(*testing.T) (uplink.Driver, uplink.Driver) { return connect(), connect() })
		})
	}
}

// Whatever one request meets, a delivery gets over it.
func TestAmongEnemies(t *testing.T) {
	for _, kind := range servers[:3] {
		t.Run(kind.name, func(t *testing.T) {
			uplinktest.Hostile(t, uplinktest.Kind{
				Name: "tus server " + kind.name,
				Serve: func(testing.TB) (http.Handler, func(*attachment.Manifest) []byte) {
					s := newServer()
					kind.set(s)
					return s, s.stored
				},
				Refuse: func(w http.ResponseWriter, _ *http.Request, status int) {
					w.Header().Set("Tus-Resumable", "1.0.0")
					w.WriteHeader(status)
				},
				Options: options,
				Driver:  func(c *remote.Client) uplink.Driver { return newDriver(c, kind.lengthOnly) },
				Size:    5 * chunk / 2, Chunk: chunk,
			})
		})
	}
}
