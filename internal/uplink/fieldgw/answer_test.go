package fieldgw

import (
	"testing"

	"github.com/fieldgw/fieldgw/internal/attachment"
	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// An answer about an attachment is accepted only when it is about this one and has what its state promises; nothing that
// a server can answer there gives up the item.
func FuzzReadAttachment(f *testing.F) {
	const id = "0196f000-0000-7000-8000-000000000001"
	f.Add([]byte(`{"attachment_id":"` + id + `","state":"verified","length":5,"sha256":"00"}`))
	f.Add([]byte(`{"attachment_id":"` + id + `","state":"registered","receipt":{}}`))
	f.Add([]byte(`{"attachment_id":"` + id + `","state":"reserved","upload":{"url":"/x"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := readAttachment(&remote.Response{Status: 200, Body: body}, attachment.ID(id))
		if err != nil {
			if class := remote.ClassOf(err); class != remote.ChannelTransient && class != remote.ItemTransient {
				t.Fatalf("class %s: %v", class, err)
			}
			return
		}
		if a.AttachmentID != id || a.State == wire.StateVerified && (a.Length == nil || a.SHA256 == "") ||
			a.State == wire.StateRegistered && a.Receipt == nil {
			t.Fatalf("accepted: %+v", a)
		}
	})
}
