package interop

import (
	"context"

	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/fieldgw"
	"github.com/fieldgw/fieldgw/test/rig"
)

// peers are the servers, with our own for comparison.
var peers = []peer{
	fieldgwServer, nginxStreams, nginxBuffers, apache, lighttpd, fieldgwTus, tusd, tusdLength, tusNode, uploadx,
}

var fieldgwServer = peer{
	name:   "fieldgw-server by fieldgw",
	config: func(string) (string, error) { return `driver = "fieldgw"`, nil },
	readBack: func(ctx context.Context, r *rig.Rig, item *control.ItemDetail) (string, error) {
		return r.ContentDigest(ctx, string(item.ID))
	},
	grade:    receipt.RegisteredDurable,
	driver:   func(c *remote.Client) uplink.Driver { return fieldgw.New(c) },
	protocol: remote.Fieldgw,
}
