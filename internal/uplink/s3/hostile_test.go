package s3_test

import (
	"net/http"
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/placement"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/s3"
	"github.com/fieldgw/fieldgw/internal/uplink/uplinktest"
)

const small = 16 << 10 // bytes of a part, in memory

// options are those of a driver and its client for a store in memory.
func options(t testing.TB) s3.Options {
	t.Helper()
	key, err := placement.ParseKey("{parent}/{id}-{filename}", "", "")
	if err != nil {
		t.Fatal(err)
	}
	return s3.Options{Store: s3.Store{Bucket: bucket, Region: "us-east-1"}, Key: key, Part: small}
}

// Whatever one request meets, a delivery gets over it, as a whole or in parts.
func TestAmongEnemies(t *testing.T) {
	for name, size := range map[string]int{"s3, whole": small / 2, "s3, in parts": 5 * small / 2} {
		uplinktest.Hostile(t, uplinktest.Kind{
			Name: name,
			Serve: func(testing.TB) (http.Handler, func(*attachment.Manifest) []byte) {
				f := newFake()
				return f, func(m *attachment.Manifest) []byte { return f.holds(string(m.ID)) }
			},
			Refuse: func(w http.ResponseWriter, _ *http.Request, status int) { refuse(w, status, "NobodyKnows") },
			Options: func(o *remote.Options) {
				credential := &uplinktest.Credential{}
				credential.Set(keys, nil, false)
				o.Credential, o.Protocol = credential, s3.Protocol(options(t).Store)
			},
			Driver: func(c *remote.Client) uplink.Driver {
				d := s3.New(c, options(t))
				d.SetFloor(1)
				return d
			},
			Size: size, Chunk: small,
		})
	}
}
