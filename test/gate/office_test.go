package gate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/control"
	"github.com/fieldgw/fieldgw/internal/receipt"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/uplink/fieldgw"
	"github.com/fieldgw/fieldgw/test/rig"
)

// serverID is what the server calls the record of the fixture.
const serverID = "S-4711"

// office is another device of the account with a good link, which knows the record's server ID and has the files too.
type office struct {
	driver uplink.Driver
	uplink *uplink.Uplink
}

func newOffice(r *rig.Rig) (*office, error) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	client, err := remote.New(remote.Options{
		Endpoint: r.ServerURL(), CAFile: r.Path("server", "tls", "cert.pem"), UserAgent: "office", Logger: log,
		Credential: remote.CredentialFile(r.Path("server", "device.token")),
	})
	if err != nil {
		return nil, err
	}
	driver := fieldgw.New(client)
	up, err := uplink.New(uplink.Options{Driver: driver, Logger: log})
	return &office{driver, up}, err
}

// deliver brings the record's server ID to the server with one of the record's attachments: under the device's attachment
// ID, which the office delivers itself when it is the first.
func (o *office) deliver(ctx context.Context, i control.ItemDetail, content []byte) error {
	m := &attachment.Manifest{
		ID: i.ID, Length: i.Length, SHA256: i.SHA256, Role: i.Role, MediaType: i.MediaType, Filename: i.Filename, CapturedAt: i.CapturedAt,
		Parent: attachment.Parent{LocalID: i.Parent.LocalID, ServerID: serverID},
	}
	return o.uplink.Deliver(ctx, m, 0, memory{bytes.NewReader(content)}, open{}, forgetful{})
}

// complete fills the server ID in for an attachment that the device has delivered.
func (o *office) complete(ctx context.Context, i control.ItemDetail) error {
	m := &attachment.Manifest{ID: i.ID, Parent: attachment.Parent{LocalID: i.Parent.LocalID, ServerID: serverID}}
	rec, err := o.driver.Register(ctx, m, attachment.Session{}, uplink.Verdict{})
	if err == nil && rec.Parent.ServerID != serverID {
		err = fmt.Errorf("the receipt has server ID %q", rec.Parent.ServerID)
	}
	return err
}

// memory is a payload that cannot be damaged.
type memory struct{ *bytes.Reader }

func (memory) Check(context.Context, int64, int64) error { return nil }

// open is a gate that nobody closes.
type open struct{}

func (open) MaySend(context.Context) error { return nil }

// forgetful records nothing: the office begins anew each time.
type forgetful struct{}

func (forgetful) SessionOpened(context.Context, attachment.Session, string, int64) error { return nil }
func (forgetful) Committed(context.Context, attachment.Session, int64) error             { return nil }
func (forgetful) Lost(context.Context, attachment.Code, string) error                    { return nil }
func (forgetful) Verified(context.Context, string) error                                 { return nil }
func (forgetful) Registered(context.Context, receipt.Receipt) error                      { return nil }
func (forgetful) Moved(int64)                                                            {}

// contentOf reads a file of the fixture.
func contentOf(name string) ([]byte, error) {
	for _, f := range files {
		if f.Name == name {
			return os.ReadFile(f.Path)
		}
	}
	return nil, fmt.Errorf("%s is no file of the fixture", name)
}
