package rufh

import (
	"context"
	"net/http"
	"strconv"

	"github.com/fieldgw/fieldgw/internal/remote"
	"github.com/fieldgw/fieldgw/internal/uplink"
	"github.com/fieldgw/fieldgw/internal/wire"
)

// Patch sends the bytes of an append to its session's upload (draft, Upload Append). What the server confirms meanwhile goes
// to a.Confirmed. Every error is a *remote.Error.
func Patch(ctx context.Context, client *remote.Client, a uplink.Append) (*remote.Response, error) {
	u, err := client.Resolve(a.Session.URL)
	if err != nil {
		return nil, remote.Fail(remote.StepAppend, remote.KindRequest, err)
	}
	send := remote.Append{
		Step: remote.StepAppend, Method: http.MethodPatch, URL: u, Body: a.Body, Length: a.Length, Moved: a.Moved,
		Header: http.Header{
			wire.HeaderInteropVersion: {strconv.Itoa(wire.InteropVersion)},
			wire.HeaderUploadOffset:   {strconv.FormatInt(a.Offset, 10)},
			wire.HeaderUploadComplete: {wire.FormatBoolean(a.Last())},
			"Content-Type":            {wire.ContentTypePartial},
		},
	}
	if a.Confirmed != nil {
		send.Interim = func(h http.Header) {
			if offset, ok := wire.ParseInteger(h.Values(wire.HeaderUploadOffset)); ok {
				a.Confirmed(offset)
			}
		}
	}
	return client.Stream(ctx, send)
}
